"""The entry point: any streaming DataFrame becomes a persistent stream."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import InputError, OptionError, SchemaError, StreamNotFoundError
from strandline.log.storage.storage import Durability
from strandline.log.stream import schema_change
from strandline.log.stream.log_errors import finished
from strandline.log.stream.spec import StreamSpec
from strandline.schema_text import key_names
from strandline.spark.describe.operator_input import OperatorInput
from strandline.spark.describe.reprs import entry_html, entry_text
from strandline.spark.entry.batch_writer import BatchWriter, written_by_spark
from strandline.spark.entry.entry_handle import EntryHandle
from strandline.spark.entry.entry_run import EntryRun
from strandline.spark.entry.heartbeat import Heartbeat, require_heartbeat
from strandline.spark.entry.spark_checkpoint import FOLDER, SourcePlan, SparkCheckpoint
from strandline.spark.operator.affinity import is_local
from strandline.spark.operator.housekeeping import Housekeeping, checked_choice
from strandline.spark.operator.processing_element import EntryPoint, Opened, ProcessingElement, QueryOptions
from strandline.spark.query.fused_run import FusedRun
from strandline.spark.query.listener_events import ListenerEvents
from strandline.spark.query.query import Query
from strandline.spark.query.restart import Restart
from strandline.spark.query.restarting_run import started
from strandline.spark.query.trigger import AVAILABLE_NOW, Trigger, interval_s, plain_trigger, trigger_arguments
from strandline.spark.session.copies import require_writer
from strandline.spark.session.place import Place, path_text
from strandline.spark.session.preconditions import has_stopped, require_classic, require_ready, written_already
from strandline.spark.session.worker_python import require_workers
from strandline.units import Duration, clock_us, duration_us, require_unit, retention_of
from strandline.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 2
AUTO = "auto"
"""A day for timestamps, nothing for numbers, of which a clock knows nothing."""
_DAY = "1 day"
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Entry(EntryPoint, OperatorInput):
    """A streaming DataFrame on its way into a stream; `start` sets it going.

    An operator on it runs in the same Spark query, which persists the DataFrame and feeds the operator.
    """

    def __init__(
        self,
        df: DataFrame,
        place: Place,
        spec: StreamSpec,
        max_ahead: int | None = None,
        heartbeat_us: int | None = None,
        compaction: str = "auto",
        schema_evolution: str | None = None,
    ) -> None:
        self._df = df
        self._input_place = place
        self._spec = spec
        self._max_ahead = max_ahead
        self._heartbeat_us = heartbeat_us
        self._compaction = compaction
        self._schema_evolution = schema_evolution
        self._starting = threading.Lock()
        self._run: EntryRun | None = None

    def __repr__(self) -> str:
        return entry_text(self._input_place.url, self._spec)

    def _repr_html_(self) -> str:
        return entry_html(self._input_place.url, self._spec)

    def start(
        self,
        spark: SparkSession | None = None,
        *,
        trigger: Trigger = None,
        name: str | None = None,
        spark_checkpoint_dir: str | None = None,
        blocks: str | None = None,
        final: bool = False,
        restart: Duration | None = None,
    ) -> Query:
        """Starts the query; the stream is created if there is none.

        `trigger` is an interval ("200 ms", a timedelta), "available-now", or None for as fast as it goes; PySpark's way
        to say it, dict(availableNow=True), does as well. Spark's own checkpoint lies inside the stream's folder unless
        `spark_checkpoint_dir` says otherwise. `blocks` chooses who writes them: "native" (Spark; file systems only) or
        "arrow" (Python tasks); by default whichever is faster there.
        With `final`, for "available-now" alone, the stream is finished when all that is available is published.
        With `restart="10 s"` the query starts again after an error that may pass (a store, a network, a lost executor),
        after pauses that grow up to this.
        """

        def begin() -> Query:
            with self._starting:
                options = QueryOptions(plain_trigger(trigger), name, spark_checkpoint_dir, final=final)
                return self._begun(spark, None, options, blocks)

        return started(self._input_place, begin, Restart.of(restart))

    def made_of(self, upstream: Mapping[str, Any]) -> Entry:
        """Notes the origin of the stream, which must stay the same while the stream lives; returns this object."""
        self._spec = replace(self._spec, upstream=upstream)
        return self

    # ------------------------------------------------------------------ as the input of an operator

    @property
    def _input_spec(self) -> StreamSpec:
        """The specification of the stream."""
        return self._spec

    def start_with(self, spark: SparkSession, operator: ProcessingElement) -> Query:
        """Starts that query, or lets the operator join it if it runs already: operators of one source share it."""
        with self._starting:
            if (query := self._joined(operator)) is not None:
                return query
            return self._begun(spark, operator, operator.query)

    def persist_with(self, spark: SparkSession, options: QueryOptions) -> Query:
        """Starts the query for an operator over several inputs, or a handle on it if it runs already."""
        with self._starting:
            run, options = self._run, QueryOptions(options.trigger, final=options.final)
            if run is not None and run.is_open:
                run.require_same(options)
                if (handle := run.join(EntryHandle(run, None))) is not None:
                    return Query(handle)
            return self._begun(spark, None, options)

    def _joined(self, operator: ProcessingElement) -> Query | None:
        """Returns a handle for an operator that has joined the run; None if there is no run, or none that is open."""
        run = self._run
        if run is None or not run.is_open:
            return None
        run.require_same(operator.query)
        run.require_no_other(operator.place)
        self._require_fit(operator)
        require_workers(self._df.sparkSession)
        following = self._following(operator)
        if (handle := run.join(EntryHandle(run, following))) is not None:
            return Query(handle)
        following.abandon(None)
        return None

    def _begun(
        self,
        spark: SparkSession | None,
        operator: ProcessingElement | None,
        options: QueryOptions,
        blocks: str | None = None,
    ) -> Query:
        """Starts a run, behind the end of the last one, which may be finishing the stream still."""
        last = self._run
        if last is not None and not last.is_open:
            last.wait_for_the_end()
        if operator is not None and last is not None and not last.end_is_heard:  # a little earlier it would have joined
            options = options.behind(last.options)
        run = self._start(spark, operator, options, blocks)
        return Query(run.hold(EntryHandle(run, None if operator is None else run.operators[0])))

    def _following(self, operator: ProcessingElement) -> FusedRun:
        # With a handle of its own, because it reads the stream while another one is being appended to.
        spark = self._df.sparkSession
        job = operator.job(spark, Opened([self._input_place.open()]))
        url, given = operator.place.url.rstrip("/"), operator.query.name
        name = f"{given}: operator" if given else f"operator {url.rpartition('/')[2]}"
        events = ListenerEvents(spark, name, job.output.spec.id, f"Strandline[{self._input_place.url}]")
        return FusedRun(operator.place, job, events)

    def _start(
        self,
        spark: SparkSession | None,
        operator: ProcessingElement | None,
        options: QueryOptions,
        blocks: str | None = None,
    ) -> EntryRun:
        require_writer(self._input_place)
        trigger, name, final = options.trigger, options.name, options.final
        if final and trigger != AVAILABLE_NOW:
            raise OptionError(
                f"final=True does not go with trigger={trigger!r}: such a query never knows that its source has ended",
                where=self._input_place.url,
                todo='use trigger="available-now", or call query.finish() when the source has ended',
            )
        if spark is not None and spark.sparkContext is not self._df.sparkSession.sparkContext:
            raise OptionError(
                "the DataFrame belongs to another Spark session than the one given to start()",
                todo="pass the session that made the DataFrame, or leave it out",
            )
        folder = options.spark_checkpoint_dir
        checkpoint_place = Place(folder) if folder else self._input_place.below(FOLDER)
        session, urls = self._df.sparkSession, [self._input_place.url, *([operator.place.url] if operator else [])]
        require_ready(session, urls, name, checkpoint_place)
        by_spark = written_by_spark(self._input_place, self._spec, blocks)
        if operator is not None:
            self._require_fit(operator)
        if operator is not None or not (by_spark and is_local(session.sparkContext)):
            require_workers(session)
        checkpoint = SparkCheckpoint(checkpoint_place.storage(), SourcePlan.of(self._df))
        self._require_no_other(checkpoint.query_id())  # before columns are added, which would stop the other one
        log = schema_change.created(self._input_place.storage(), self._spec, self._schema_evolution)
        if log.state.finished and not final:
            raise finished(self._input_place.url)
        checkpoint.claim(log)
        mended = checkpoint.reconcile(log)
        retention = log.retention = self._spec.retention if self._spec.retention is not None else log.spec.retention
        heartbeat = None
        if self._heartbeat_us is not None and log.spec.lateness is not None:
            # Spark looks into the source once an interval; what came since is not late for that.
            heartbeat = Heartbeat(self._heartbeat_us, log.spec.lateness + round(interval_s(trigger) * 1e6))
        writer = BatchWriter(
            self._input_place,
            log,
            checkpoint,
            by_spark=written_by_spark(self._input_place, log.spec, blocks),  # of the stream as it is: of an old format
            housekeeping=Housekeeping(self._input_place, retention, self._compaction),
            max_ahead=self._max_ahead,
            heartbeat=heartbeat,
        )
        run = EntryRun(writer, options)
        if operator is not None:
            run.operators.append(self._following(operator))
        try:
            for following in run.operators:
                # Published, but not taken in before the last run ended: Spark may see no reason to call for it.
                following.catch_up(writer.last_writer)
            if mended:
                writer.progress = {**writer.progress, "checkpoint": mended}
            stream = self._df.writeStream.foreachBatch(run).trigger(**trigger_arguments(trigger))
            if name:
                stream = stream.queryName(name)
            stream = stream.option("checkpointLocation", checkpoint_place.spark_url)
            spark_query = stream.start()
        except Exception as problem:
            for following in run.operators:
                following.abandon(problem)
            raise
        run.begin(spark_query, stream.start, lambda: has_stopped(self._df.sparkSession))
        self._run = run
        return run

    def _require_no_other(self, query_id: str | None) -> None:
        """Raises if the query runs already: Spark would stop the first of its runs without a word."""
        for active in self._df.sparkSession.streams.active:
            if query_id is not None and str(active.id) == query_id:
                raise written_already(self._input_place.url, f"a query of this program (run {active.runId})")

    def _require_fit(self, operator: ProcessingElement) -> None:
        """Raises if the operator's stream is there and is another operator's, or the same over another input."""
        stream_id = self._spec.id
        with contextlib.suppress(StreamNotFoundError):
            stream_id = self._input_place.open().spec.id
        operator.require_fit([stream_id])


def persist(
    df: DataFrame,
    path: str,
    *,
    key: str | Sequence[str],
    time: str,
    partitions: int = PARTITIONS,
    lateness: Duration | None = None,
    retention: Duration | None = None,
    max_ahead: Duration | None = AUTO,
    heartbeat: Duration | None = None,
    durability: Durability = "fsync",
    storage_options: Mapping[str, Any] | None = None,
    compaction: str = "auto",
    schema_evolution: str | None = None,
) -> Entry:
    """Makes a streaming DataFrame a durable, keyed, ordered, replayable stream at `path`; call `start` on the result.

    Tuples of one key keep their order in one of `partitions`. A tuple that comes more than `lateness` after the
    largest time seen goes to the stream's late side log; by default nothing is ever late. `retention` drops tuples
    that much older than the newest, or with "consumed" those that all registered consumers have passed. A tuple whose
    time is more than `max_ahead` after this machine's clock goes to the side log, too: one wrong time would make
    everything after it late, and retention drop everything before it. By default that is a day for timestamps; None
    switches it off. With `heartbeat`, while nothing comes, the stream's boundary follows the clock that often, minus
    `lateness`: windows close, and what comes later than that is late.
    `durability="os"` skips fsync: faster, and safe against crashes of processes, but not of the machine.
    Small blocks of the past are joined while the query runs, unless `compaction="off"`.
    A DataFrame with more columns at its end than the stream has is refused, unless `schema_evolution="add"`: then they
    are added to the stream, and tuples so far have nulls there.
    """
    from pyspark.sql.types import StructType

    from strandline.spark.entry.table_options import without_options

    require_classic(df)
    if not df.isStreaming:
        raise InputError(
            "sl.source and sl.persist take a streaming DataFrame, and this DataFrame is not streaming",
            todo="read the source with spark.readStream",
        )
    if durability not in ("fsync", "os"):
        raise OptionError(f"durability={durability!r} is unknown", todo='use "fsync" or "os"')
    schema = df.schema
    assert isinstance(schema, StructType)
    if not isinstance(time, str):
        raise SchemaError(f"time={time!r} is not a column name", todo="name the time column")
    if not isinstance(key, Sequence):
        raise SchemaError(f"key={key!r} is not a column name", todo="name the key column, or a list of columns")
    place = Place(path_text(path), durability, dict(storage_options or {}))
    spec = StreamSpec(
        id=str(uuid.uuid4()),
        schema=without_options(schema.jsonValue()),
        key=key_names(key),
        time=time,
        partitions=partitions,
        lateness=None if lateness is None else duration_us(lateness, "lateness"),
        retention=retention_of(retention),
        created_by=f"strandline {VERSION}",
        created_us=SYSTEM_CLOCK.now_us(),
    )
    if spec.time_is_timestamp:
        require_unit(lateness, "lateness")
        require_unit(retention, "retention")
    heartbeat_us = None if heartbeat is None else clock_us(heartbeat, "heartbeat")
    if heartbeat_us is not None:
        require_heartbeat(spec, heartbeat_us, place.url)
    evolution = schema_change.checked_evolution(schema_evolution)
    return Entry(df, place, spec, _max_ahead(max_ahead, spec), heartbeat_us, checked_choice(compaction), evolution)


def _renamed(function: Callable[_P, _T], name: str) -> Callable[_P, _T]:
    """Returns a copy under another name, so that `help` and tracebacks show the one that a user calls."""
    assert isinstance(function, FunctionType)
    code = function.__code__.replace(co_name=name, co_qualname=name)
    copy = FunctionType(code, function.__globals__, name, function.__defaults__)
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, function.__annotations__
    return copy


def _max_ahead(value: Duration | None, spec: StreamSpec) -> int | None:
    if value == AUTO:
        value = _DAY if spec.time_is_timestamp else None
    if value is None:
        return None
    if not spec.time_is_timestamp:
        raise OptionError(
            f"max_ahead={value!r} needs a time column of type timestamp, and {spec.time!r} holds numbers",
            todo="leave max_ahead out, or use a timestamp column as time",
        )
    return clock_us(value, "max_ahead")


source = _renamed(persist, "source")
"""`persist` by the name that it has where an operator follows: `source(df, …).window(…)`."""
