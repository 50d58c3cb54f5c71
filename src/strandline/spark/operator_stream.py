"""An operator's stream, seen from outside: starting one over an existing stream, its open windows, its recovery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strandline.errors import OptionError
from strandline.log.log import Log
from strandline.recovery.stream_definition import definition_of
from strandline.recovery.window_report import current_windows, saved_windows
from strandline.spark.listener_events import observed
from strandline.spark.operator_batches import OperatorBatches, ticking_checkpoint
from strandline.spark.preconditions import require_ready
from strandline.spark.query import Query
from strandline.spark.trigger import AVAILABLE_NOW, interval_s, trigger_arguments
from strandline.spark.worker_python import require_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.aggregation import OperatorStart
    from strandline.spark.place import Place


def start_over_stream(
    ticks: DataFrame, spark: SparkSession, input_place: Place, input_log: Log, start: OperatorStart
) -> Query:
    """Starts a query that ticks whenever the input has grown."""
    from strandline.spark.place import Place

    arguments = trigger_arguments(start.trigger)
    if start.final:
        raise OptionError(
            "final= is for an entry point: an operator over a stream finishes its results when its input is finished",
            where=start.place.url,
            todo="leave it out here, and finish the input where that is written",
        )
    checkpoint = Place(start.spark_checkpoint_dir) if start.spark_checkpoint_dir else start.place
    require_ready(spark, [start.place.url], start.name, checkpoint)
    start.require_fit(input_place, input_log.spec.id)
    require_workers(spark)
    job = start.job(spark, input_place, input_log)
    handler = OperatorBatches(start.place, job, interval_s(start.trigger), follows=start.trigger != AVAILABLE_NOW)
    handler.catch_up()
    stream = observed(ticks).writeStream.foreachBatch(handler).trigger(**arguments)
    if start.name:
        stream = stream.queryName(start.name)
    spark_query = stream.option("checkpointLocation", ticking_checkpoint(checkpoint).spark_url).start()
    handler.runs_in(spark_query)
    return Query(spark_query, handler)


def open_windows(log: Log, place: Place, *, now: bool) -> pa.Table:
    """The windows of the operator that writes the stream: as saved, or as they are now."""
    if not now:
        return saved_windows(log)
    definition_of(log.spec, log.storage.url)
    path = str((log.spec.upstream or {}).get("path", ""))
    return current_windows(log, place.beside(path).open())


def recovery_forecast(log: Log) -> list[dict[str, Any]]:
    """What a recovery of each partition would read, and how long it would take."""
    definition_of(log.spec, log.storage.url)
    return [
        {
            "partition": p,
            "open_windows": s.open,
            "extent": s.extent,
            "replay": s.replay,
            "input": s.input,
            "oldest_input": s.oldest,
            "mode": s.mode,
            "predicted_s": round(s.predicted_s, 3),
            "predicted_cold_s": round(s.predicted_cold_s, 3),
            "measured": s.is_measured,
        }
        for p, s in enumerate(log.state.standings)
    ]
