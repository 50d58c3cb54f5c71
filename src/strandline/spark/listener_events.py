"""An operator in Spark's streaming tab and for its listeners.

An operator over a stream runs in a Spark query that reads no rows, because the operator's tasks read the blocks: its
numbers are put where Spark would have counted them. An operator behind an entry point shares that one's query and is
behind it by a batch: to Spark's listeners it is a query of its own. Both ways go through internals of Spark 4.3; where
they do not work, nothing is shown, and nothing else changes.
"""

from __future__ import annotations

import json
import uuid
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.units import time_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

METRICS = "strandline"
_WHOLE = ("open_windows", "extent", "replay", "results", "footprints", "waiting", "state_bytes")
_SECONDS = ("predicted_recovery_s", "predicted_cold_recovery_s", "step_s", "checkpoint_s")
_RECENT = 100


def metrics_of(report: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a report, over all partitions."""
    whole = {name: report.get(name, 0) for name in _WHOLE}
    sums = {name: sum(value.values()) if isinstance(value, Mapping) else int(value) for name, value in whole.items()}
    return {**sums, **{name: float(report.get(name, 0.0)) for name in _SECONDS}}


# ---------------------------------------------------------------------- a Spark query of its own


def observed(ticks: DataFrame) -> DataFrame:
    """The same ticks, with a column in which Spark reports the numbers of an operator. No row ever passes it."""
    from pyspark.sql import functions as F

    told = F.max("report")
    kinds = {**dict.fromkeys(_WHOLE, "long"), **dict.fromkeys(_SECONDS, "double")}
    numbers = [F.get_json_object(told, f"$.{name}").cast(kind).alias(name) for name, kind in kinds.items()]
    return ticks.select(F.lit("").alias("report")).observe(METRICS, *numbers)


class QueryNumbers:
    """Puts the numbers of an operator into the progress of the Spark query that it runs in."""

    def __init__(self) -> None:
        self._works = True
        # Every name looked up in the JVM, and every call there, costs a round trip.
        self._run: Any = None
        self._row: Any = None
        self._texts: Any = None

    def put(self, query: StreamingQuery | None, jvm: Any, tuples: int, report: Mapping[str, Any]) -> None:
        """For the batch that is under way: `tuples` were taken in, and the report tells the rest."""
        if not self._works or query is None or not report:
            return
        try:
            if self._run is None:
                self._run = query._jsq.streamingQuery()
                self._texts = jvm.org.apache.spark.unsafe.types.UTF8String
            plan = self._run.lastExecution().executedPlan()
            plan.collectLeaves().head().metrics().apply("numOutputRows").add(tuples)
            if self._row is None:
                rows = jvm.org.apache.spark.sql.catalyst.expressions.SpecificInternalRow
                self._row = rows(plan.child().schema())
            self._row.update(0, self._texts.fromString(json.dumps(metrics_of(report))))
            plan.accumulator().add(self._row)
        except Exception:
            self._works = False


# ---------------------------------------------------------------------- a query to listeners only


class ListenerEvents:
    """Tells Spark's listeners of an operator as of a query: that it has started, what each batch did, that it ended."""

    def __init__(self, spark: SparkSession, name: str, operator: str, description: str) -> None:
        self._spark = spark
        self._name = name
        self._id = operator
        self._run = str(uuid.uuid4())
        self._description = description
        self._batch = -1
        self._told_s: float | None = None
        self._works = True
        self._has_ended = False
        self._rows: tuple[Any, Any] | None = None
        self.recent: deque[Any] = deque(maxlen=_RECENT)
        """What was told, as PySpark's StreamingQueryProgress."""

    def started(self) -> None:
        """Once, before the first batch; again, it does nothing."""
        if self._told_s is not None:
            return
        self._told_s = stopwatch_s()
        self._post("QueryStartedEvent", self._uuid(self._id), self._uuid(self._run), self._name, _now())

    def progressed(self, report: Mapping[str, Any]) -> None:
        """After each batch."""
        from pyspark.sql.streaming.listener import StreamingQueryProgress

        self.started()
        self._batch += 1
        body = self._body(report)
        self.recent.append(StreamingQueryProgress.fromJson(body))
        if not self._works:
            return
        try:
            streaming = self._jvm.org.apache.spark.sql.streaming
            progress = getattr(streaming, "StreamingQueryProgress$").__getattr__("MODULE$").fromJson(json.dumps(body))
            # Rows that were read from JSON have no values, as far as Spark's listeners are concerned.
            progress.observedMetrics().put(METRICS, self._row(body["observedMetrics"][METRICS]))
        except Exception:
            self._works = False
            return
        self._post("QueryProgressEvent", progress)

    def ended(self, failure: Exception | None) -> None:
        """Once, at the end."""
        if self._told_s is None or self._has_ended:
            return
        self._has_ended = True
        try:
            option = self._jvm.scala.Option
            problem = option.apply(None if failure is None else str(failure))
            self._post("QueryTerminatedEvent", self._uuid(self._id), self._uuid(self._run), problem, option.apply(None))
        except Exception:
            self._works = False

    def _body(self, report: Mapping[str, Any]) -> dict[str, Any]:
        now_s = stopwatch_s()
        tuples, took_s = int(report["input_tuples"]), max(1e-6, float(report["operator_s"]))
        since_s = max(took_s, now_s - (self._told_s or now_s))
        self._told_s = now_s
        rates = {"inputRowsPerSecond": tuples / since_s, "processedRowsPerSecond": tuples / took_s}
        took_ms = round(took_s * 1e3)
        numbers = metrics_of(report)
        source = {"description": self._description, "startOffset": None, "endOffset": None, "latestOffset": None}
        state = {
            "operatorName": METRICS,
            "numRowsTotal": numbers["open_windows"],
            "numRowsUpdated": numbers["footprints"],
            "allUpdatesTimeMs": round(numbers["step_s"] * 1e3),
            "numRowsRemoved": numbers["results"],
            "allRemovalsTimeMs": 0,
            "commitTimeMs": round(numbers["checkpoint_s"] * 1e3),
            "memoryUsedBytes": numbers["state_bytes"],
            "numRowsDroppedByWatermark": 0,
            "numShufflePartitions": len(report["extent"]),
            "numStateStoreInstances": len(report["extent"]),
            "customMetrics": {},
        }
        return {
            "id": self._id,
            "runId": self._run,
            "name": self._name,
            "timestamp": _now(),
            "batchId": self._batch,
            "batchDuration": took_ms,
            "numInputRows": tuples,
            **rates,
            "durationMs": {"addBatch": took_ms, "triggerExecution": took_ms},
            "eventTime": {},
            "stateOperators": [state],
            "sources": [{**source, "numInputRows": tuples, **rates, "metrics": {}}],
            "sink": {"description": METRICS, "numOutputRows": numbers["results"], "metrics": {}},
            "observedMetrics": {METRICS: numbers},
        }

    def _row(self, numbers: Mapping[str, float]) -> Any:
        """The numbers as one of Spark's rows."""
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        if self._rows is None:
            ddl = ", ".join(f"{name} {'double' if name in _SECONDS else 'bigint'}" for name in numbers)
            schema = self._jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl)
            converter = catalyst.CatalystTypeConverters.createToScalaConverter(schema)
            self._rows = catalyst.expressions.SpecificInternalRow(schema), converter
        row, converter = self._rows
        for place, value in enumerate(numbers.values()):
            (row.setDouble if isinstance(value, float) else row.setLong)(place, value)
        return converter.apply(row)

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    def _uuid(self, text: str) -> Any:
        return self._jvm.java.util.UUID.fromString(text)

    def _post(self, event: str, *arguments: Any) -> None:
        if not self._works:
            return
        try:
            made = getattr(self._jvm.org.apache.spark.sql.streaming, f"StreamingQueryListener${event}")(*arguments)
            self._spark._jsparkSession.streams().postListenerEvent(made)
        except Exception:
            self._works = False


def _now() -> str:
    return time_text(SYSTEM_CLOCK.now_us(), is_timestamp=True).replace(" ", "T") + "Z"
