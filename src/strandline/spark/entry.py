"""The entry point: any streaming DataFrame becomes a persistent stream."""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.errors import InputError, OptionError, SchemaError, StrandlineError
from strandline.failpoint import failpoint
from strandline.log import index
from strandline.log.block import Block
from strandline.log.local_storage import LocalStorage
from strandline.log.log import Log
from strandline.log.manifest import Writer
from strandline.log.retention import apply_retention
from strandline.log.spec import StreamSpec
from strandline.log.storage import Durability
from strandline.log.units import duration_us
from strandline.spark.arrow_blocks import ArrowBlocks
from strandline.spark.failure import failure_in
from strandline.spark.native_blocks import NativeBlocks
from strandline.spark.place import Place
from strandline.spark.query import Query, trigger_arguments
from strandline.spark.spark_checkpoint import FOLDER, Plan, SparkCheckpoint
from strandline.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARTITIONS = 2

# Spark tells an interruption from a failure by this text, searched for with a regular expression that overflows the
# stack on a traceback of ordinary length; so what we raise is short.
_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling a batch.\n: java.lang.InterruptedException"


class Entry:
    """A streaming DataFrame on its way into a stream; `start` sets it going."""

    def __init__(self, df: DataFrame, place: Place, spec: StreamSpec) -> None:
        self._df = df
        self._place = place
        self._spec = spec

    def start(
        self,
        spark: SparkSession | None = None,
        *,
        trigger: str | None = None,
        name: str | None = None,
        spark_checkpoint_dir: str | None = None,
        blocks: str | None = None,
    ) -> Query:
        """Starts the query; the stream is created if there is none.

        `trigger` is an interval ("200 ms"), "available-now", or None for as fast as it goes. Spark's own checkpoint
        lies inside the stream's folder unless `spark_checkpoint_dir` says otherwise. `blocks` chooses who writes them:
        "native" (Spark; file systems only) or "arrow" (Python tasks); by default whichever is faster there.
        """
        arguments = trigger_arguments(trigger)
        if spark is not None and spark is not self._df.sparkSession:
            self._require_same_context(spark)
        log = Log.create(self._place.storage(), self._spec)
        checkpoint_place = Place(spark_checkpoint_dir) if spark_checkpoint_dir else self._place.below(FOLDER)
        checkpoint = SparkCheckpoint(checkpoint_place.storage(), Plan.of(self._df))
        mended = checkpoint.reconcile(log)
        writer = BatchWriter(self._place, log, checkpoint, blocks, mended)
        stream = self._df.writeStream.foreachBatch(writer).trigger(**arguments)
        if name:
            stream = stream.queryName(name)
        spark_query = stream.option("checkpointLocation", checkpoint_place.spark_url).start()
        writer.runs_in(spark_query)
        return Query(spark_query, writer)

    def _require_same_context(self, spark: SparkSession) -> None:
        if spark.sparkContext is not self._df.sparkSession.sparkContext:
            raise OptionError(
                "the DataFrame belongs to another Spark than the one given to start()",
                todo="pass the session that made the DataFrame, or none",
            )


class BatchWriter:
    """Called by Spark with every batch: writes its blocks and publishes them, once."""

    def __init__(
        self, place: Place, log: Log, checkpoint: SparkCheckpoint, blocks: str | None, mended: str | None
    ) -> None:
        self.place = place
        self.progress: Mapping[str, Any] = {"checkpoint": mended} if mended else {}
        self.failure: StrandlineError | None = None
        self._log = log
        self._checkpoint = checkpoint
        self._blocks = _block_writer(place, log, blocks)
        self._spark_query: StreamingQuery | None = None
        self._query = ""
        self._run = ""
        self._started = threading.Event()
        self._at_work = threading.Lock()
        self._stopping = False

    def runs_in(self, spark_query: StreamingQuery) -> None:
        """Says which query this is; Spark may call with the first batch before it has told anybody."""
        self._spark_query = spark_query
        self._query, self._run = str(spark_query.id), str(spark_query.runId)
        self._started.set()

    def finish(self, timeout_s: float) -> None:
        """Returns when the batch under way is published; no other begins."""
        self._stopping = True
        if self._at_work.acquire(timeout=timeout_s):
            self._at_work.release()

    def __call__(self, df: DataFrame, batch: int) -> None:
        """One batch. Raises, and publishes nothing, if anything is not as it should be."""
        self._started.wait()
        with self._at_work:
            if self._stopping:
                self._wait_for_the_end()
            try:
                self._publish(df, batch)
            except StrandlineError as problem:
                self.failure = problem
                raise
            except Exception as problem:
                if _was_interrupted(problem):
                    raise InterruptedError(_INTERRUPTED) from None
                if (found := failure_in(str(problem), self.place.url)) is None:
                    raise
                self.failure = found
                raise found from None

    def _wait_for_the_end(self) -> None:
        while self._spark_query is not None and self._spark_query.isActive:
            SYSTEM_CLOCK.sleep(0.005)
        raise InterruptedError(_INTERRUPTED)

    def _publish(self, df: DataFrame, batch: int) -> None:
        log = self._log
        last = log.state.writer
        if last is not None and last.query == self._query and batch <= last.batch:
            return  # Spark repeats a batch whose end it did not see
        base = log.state
        began_s = stopwatch_s()
        name = f"{batch:012d}-{self._run[:8]}-{uuid.uuid4().hex[:12]}"
        blocks = self._blocks.write(df, base, name)
        written_s = stopwatch_s()
        writer = Writer(self._query, self._run, batch)
        log.append(blocks, base=base, writer=writer, source=self._checkpoint.source(batch))
        ended_s = stopwatch_s()
        if log.state.seq % index.FOLD_EVERY == 0:
            apply_retention(log)
        self.progress = self._report(batch, blocks, written_s - began_s, ended_s - written_s)
        failpoint("before-spark-commit")

    def _report(self, batch: int, blocks: Sequence[Block], write_s: float, publish_s: float) -> dict[str, Any]:
        state, late = self._log.state, self._log.spec.late
        return {
            **{k: v for k, v in self.progress.items() if k == "checkpoint"},
            "batch": batch,
            "commit": state.seq,
            "tuples": sum(b.tuples for b in blocks if b.partition != late),
            "late": sum(b.tuples for b in blocks if b.partition == late),
            "late_total": state.ends[late],
            "bytes": sum(b.size_bytes for b in blocks),
            "offsets": {p: state.ends[p] for p in range(late)},
            "boundary": state.boundary,
            "write_s": write_s,
            "publish_s": publish_s,
        }


def persist(
    df: DataFrame,
    path: str,
    *,
    key: str | Sequence[str],
    time: str,
    partitions: int = PARTITIONS,
    lateness: str | int | dt.timedelta | None = None,
    retention: str | int | dt.timedelta | None = None,
    durability: Durability = "fsync",
    storage_options: Mapping[str, Any] | None = None,
) -> Entry:
    """A streaming DataFrame as a durable, keyed, ordered, replayable stream at `path`; call `start` on the result.

    Tuples of one key keep their order in one of `partitions`. A tuple that comes more than `lateness` after the
    largest time seen goes to the stream's late side log; by default nothing is ever late. `retention` drops tuples
    that much older than the newest. `durability="os"` skips fsync: faster, and safe against crashes of processes, but
    not of the machine.
    """
    from pyspark.sql.types import StructType

    if not df.isStreaming:
        raise InputError(
            "persist takes a streaming DataFrame, this one is not",
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
    place = Place(str(path), durability, dict(storage_options or {}))
    spec = StreamSpec(
        id=str(uuid.uuid4()),
        schema=schema.jsonValue(),
        key=(key,) if isinstance(key, str) else tuple(key),
        time=time,
        partitions=partitions,
        lateness=None if lateness is None else duration_us(lateness, "lateness"),
        retention=None if retention is None else duration_us(retention, "retention"),
        created_by=f"strandline {VERSION}",
        created_us=SYSTEM_CLOCK.now_us(),
    )
    return Entry(df, place, spec)


def _block_writer(place: Place, log: Log, choice: str | None) -> NativeBlocks | ArrowBlocks:
    on_files = isinstance(log.storage, LocalStorage)
    if choice not in (None, "native", "arrow") or (choice == "native" and not on_files):
        raise OptionError(
            f"blocks={choice!r} does not work here",
            where=log.storage.url,
            todo='leave it out, or use "arrow" (or "native" on file systems)',
        )
    return NativeBlocks(place, log) if choice != "arrow" and on_files else ArrowBlocks(place, log)


def _was_interrupted(problem: BaseException) -> bool:
    text = str(problem)
    return "InterruptedException" in text or "InterruptedIOException" in text or "ClosedByInterrupt" in text
