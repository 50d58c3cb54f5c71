"""The batches of an entry point: blocks are written, one manifest publishes them; heartbeats, and the end."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.errors import OptionError
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import quiet
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.stream.log_errors import finished, second_writer
from strandline.log.stream.log_state import LogState
from strandline.log.stream.manifest import Writer
from strandline.log.stream.reason import LATE
from strandline.log.stream.spec import StreamSpec
from strandline.spark.entry.arrow_blocks import ArrowBlocks
from strandline.spark.entry.heartbeat import Heartbeat
from strandline.spark.entry.native_blocks import NativeBlocks
from strandline.spark.entry.set_aside import EntryLimits
from strandline.spark.entry.side_log_watch import SideLogWatch, by_reason
from strandline.spark.entry.spark_checkpoint import SparkCheckpoint
from strandline.spark.operator.housekeeping import Housekeeping
from strandline.spark.session.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_LOOKS_MAX = 20
_LOOK_S = 0.005
_NO_WRITER = Writer("", "", -1)


class BatchWriter:
    """Writes the blocks of each batch and publishes them, once. For one thread at a time."""

    def __init__(
        self,
        place: Place,
        log: Log,
        checkpoint: SparkCheckpoint,
        *,
        by_spark: bool,
        housekeeping: Housekeeping,
        max_ahead: int | None,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self.place = place
        self.stream = log.spec.id
        self.progress: dict[str, Any] = {}
        """The figures of the last batch."""
        self._log = log
        self._checkpoint = checkpoint
        self._blocks = NativeBlocks(place, log) if by_spark else ArrowBlocks(place, log)
        self._limits = EntryLimits.of(log.spec, max_ahead)
        self._base = log.state
        """The state after our own last append: an append or columns that came since are a second writer's."""
        self._housekeeping = housekeeping
        self._watch = SideLogWatch(log.spec, place.url)
        self._heartbeat = heartbeat
        self.heartbeat_s = None if heartbeat is None else heartbeat.every_s
        """The seconds between two heartbeats; None if there are none."""
        self._published_s = stopwatch_s()
        if log.state.writer is not None:
            self.progress = self._report(None, [], 0.0, 0.0)

    def begin(self, spark_query: StreamingQuery) -> None:
        """Says which query of Spark's it writes for."""
        self._spark_query = spark_query
        self._query, self._run = str(spark_query.id), str(spark_query.runId)

    @property
    def state(self) -> LogState:
        """The state of the stream, as far as this writer knows it."""
        return self._log.state

    @property
    def last_writer(self) -> Writer:
        """The writer of the newest commit: an operator that takes that in notes it."""
        return self._log.state.writer or _NO_WRITER

    @property
    def input_housekeeping(self) -> Mapping[str, Any]:
        """The report of housekeeping, under the names that it has beside that of an operator's stream."""
        return {f"input_{name}": done for name, done in self._housekeeping.report.items()}

    def close(self) -> None:
        """Ends what is done beside the batches."""
        self._housekeeping.stop()

    def publish(self, df: DataFrame, batch: int) -> Writer:
        """Publishes the batch, unless it is one that Spark repeats because it did not see its end.

        Raises, and publishes nothing, if anything is not as it should be.
        """
        log, writer = self._log, Writer(self._query, self._run, batch)
        base, last = log.state, log.state.writer
        if last is not None and last.query == self._query and batch <= last.batch:
            return writer  # Spark repeats a batch whose end it did not see
        if last != self._base.writer or base.added != self._base.added:
            raise second_writer(base.seq, last, self.place.url)
        if base.finished:
            if not df.isEmpty():
                raise finished(self.place.url)
            return writer  # Spark may call without rows, for the sake of what it keeps before the stream
        began_s = stopwatch_s()
        name = f"{batch:012d}-{self._run[:8]}-{uuid.uuid4().hex[:12]}"
        now_us = log.clock.now_us()
        limits = replace(self._limits, boundaries=base.boundaries, now_us=now_us)
        blocks = self._blocks.write(df, limits, base.ends, name)
        written_s = stopwatch_s()
        source = self._checkpoint.source(batch)
        log.append(Append(blocks, writer=writer, source=source, durability=self.place.durability), base=base)
        self._base = self._own(log.state, writer, base)
        ended_s = self._published_s = stopwatch_s()
        self._housekeeping.after_batch(log, base.seq)
        self._watch.saw(blocks, now_us)
        self.progress = self._report(batch, blocks, written_s - began_s, ended_s - written_s)
        return writer

    def _own(self, state: LogState, writer: Writer | None, base: LogState) -> LogState:
        """Returns the state after an own append; raises if another writer has published behind it.

        Every 64 commits an append ends with a fold, which reads on to the newest root, whichever writer made it.
        """
        if state.writer != writer or state.added != base.added:
            raise second_writer(state.seq, state.writer, self.place.url)
        return state

    # ------------------------------------------------------------------ while nothing comes, and when nothing will

    def beat(self, goes_on: Callable[[], bool]) -> bool:
        """Publishes how far time is, if Spark has found that nothing waits in the source; returns whether it did."""
        heartbeat = self._heartbeat
        if heartbeat is None or stopwatch_s() - self._published_s < heartbeat.every_s / 2:
            return False
        boundary = heartbeat.boundary()  # before Spark is asked: what it then has not found came later than this
        if not self._nothing_waits(goes_on):
            return False
        since = self._log.state.seq
        commit = quiet.pass_time(self._log, boundary, self._run, self.place.durability, self._base)
        if commit is None:
            return False
        self._base = state = self._own(self._log.state, commit.writer, self._base)
        self._published_s = stopwatch_s()
        self._housekeeping.after_batch(self._log, since)
        before = self.progress or self._report(None, [], 0.0, 0.0)
        self.progress = {**before, "commit": state.seq, "boundary": state.boundary}
        return True

    def _nothing_waits(self, goes_on: Callable[[], bool]) -> bool:
        """Returns whether Spark has looked into the source, found nothing new, and is not looking now.

        Tuples may wait that are older than the clock says, after a pause of this program or while Spark's look hangs:
        a heartbeat then would make them late.
        """
        for _ in range(_LOOKS_MAX):
            status = self._spark_query.status
            if status.get("isDataAvailable", True) or not goes_on():
                return False
            if not status["isTriggerActive"]:
                return str(status["message"]).startswith("Waiting for")
            SYSTEM_CLOCK.sleep(_LOOK_S)
        return False

    def is_all_published(self) -> bool:
        """Returns whether Spark has planned no batch after the last one that is published."""
        return not self._checkpoint.planned_after(self.last_writer.batch)

    def finish(self) -> None:
        """Publishes that nothing will follow."""
        since = self._log.state.seq
        commit = quiet.finish(self._log, self._run, self.place.durability, self._base)
        if commit is not None:
            self._base = self._own(self._log.state, commit.writer, self._base)
        self._housekeeping.after_batch(self._log, since)

    def _report(self, batch: int | None, blocks: Sequence[Block], write_s: float, publish_s: float) -> dict[str, Any]:
        """Returns the figures of a batch; of None where the stream stands, before this program's first one."""
        state, late = self._log.state, self._log.spec.late
        set_aside = by_reason(b for b in blocks if b.partition == late)
        return {
            **{k: v for k, v in self.progress.items() if k == "checkpoint"},
            **({} if batch is None else {"batch": batch}),
            "commit": state.seq,
            "tuples": sum(b.tuples for b in blocks if b.partition != late),
            "late": set_aside.pop(LATE, 0),
            "set_aside": set_aside,
            "late_total": state.ends[late],
            "bytes": sum(b.size_bytes for b in blocks),
            "offsets": {p: state.ends[p] for p in range(late)},
            "boundary": state.boundary,
            "write_s": write_s,
            "publish_s": publish_s,
            **self._housekeeping.report,
        }


def written_by_spark(place: Place, spec: StreamSpec, choice: str | None) -> bool:
    """Returns whether Spark writes the blocks of such a stream itself, by default or by choice; raises if it cannot."""
    # Spark writes the tuples' own columns; the files of format 1 have more.
    can = isinstance(place.storage(), LocalStorage) and not spec.is_stamped
    if choice not in (None, "native", "arrow") or (choice == "native" and not can):
        raise OptionError(
            f"blocks={choice!r} does not work here",
            where=f"{place.url} (format {spec.format})",
            todo='leave it out, or use "arrow" ("native" is for file systems, and for streams of format 2)',
        )
    return choice != "arrow" and can
