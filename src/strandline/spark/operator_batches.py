"""What Spark calls when an operator may have something to do.

Over a stream, Spark's query is only a clock with a good reason to tick: the operator takes in whatever the input holds,
from where its own manifests say it stands. Fused with an entry point, the same happens after each batch is published,
while Spark is at the next one already.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strandline.clock import stopwatch_s
from strandline.failpoint import failpoint
from strandline.log.log import Log
from strandline.log.manifest import Writer
from strandline.spark.batch_handler import BatchHandler
from strandline.spark.batch_writer import BatchWriter
from strandline.spark.follower import Follower
from strandline.spark.heartbeat import Heartbeat
from strandline.spark.housekeeping import Housekeeping
from strandline.spark.operator_job import OperatorJob
from strandline.spark.place import Place
from strandline.spark.spark_checkpoint import FOLDER, SparkCheckpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OLD_US = 24 * 3_600_000_000
_LOOK_EVERY_S = 0.25
_NOBODY = Writer("", "", -1)


class OperatorBatches(BatchHandler):
    """An operator over a stream that exists."""

    def __init__(self, place: Place, job: OperatorJob, every_s: float = 0.0) -> None:
        super().__init__(place)
        self._job = job
        self._every_s = max(every_s, _LOOK_EVERY_S)
        self._batch = -1

    @property
    def tick_every_s(self) -> float:
        """As often as the input is looked at for commits without tuples: Spark, which counts tuples, sees none."""
        return self._every_s

    def idle(self) -> None:
        """Takes in that time has passed, or that the input is finished."""
        if self._job.time_has_passed():
            self._job.become_cancellable()
            self._job.catch_up(Writer(self._query, self._run, self._batch), lambda: not self._stopping, self._tell)

    def take_in_all(self) -> None:
        """The same now."""
        with self._at_work, self._in_words():
            if not self._stopping:
                self.idle()

    def catch_up(self) -> None:
        """The same before the query starts: without new tuples Spark may see no reason to call."""
        if self._job.time_has_passed():
            with self._in_words():
                self._job.catch_up(self._job.output.state.writer or _NOBODY, lambda: True, self._tell)

    def halt(self, timeout_s: float | None) -> bool:
        """Returns when the batch under way is published; what runs beside Spark's batches is stopped if it must."""
        is_done = super().halt(timeout_s)
        if not is_done:
            self._job.cancel()
        return is_done

    def handle(self, df: DataFrame, batch: int) -> None:
        """Takes in what the input has. The DataFrame itself is never read."""
        self._batch = batch
        self._job.catch_up(Writer(self._query, self._run, batch), lambda: not self._stopping, self._tell)
        failpoint("before-spark-commit")

    def _tell(self, report: Mapping[str, Any]) -> None:
        self.progress = {"batch": self._batch, **report}

    def settle(self, timeout_s: float | None) -> bool:
        """Ends what is done for the stream beside the batches; nobody has to wait for that."""
        self._job.housekeeping.stop()
        return super().settle(timeout_s)


class FusedBatches(BatchWriter):
    """An entry point with an operator that follows it, at most one batch behind.

    What Spark commits is that the input is published. The operator needs nothing else: should it be stopped before it
    has taken that in, it will find it in the stream.
    """

    def __init__(
        self,
        place: Place,
        log: Log,
        checkpoint: SparkCheckpoint,
        job: OperatorJob,
        *,
        blocks: str | None,
        housekeeping: Housekeeping,
        max_ahead: int | None,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        super().__init__(
            place, log, checkpoint, blocks=blocks, housekeeping=housekeeping, max_ahead=max_ahead, heartbeat=heartbeat
        )
        self._job = job
        self._operator = Follower("strandline-operator")
        self._operator_report: Mapping[str, Any] = {}
        self._is_cancelled = False

    @property
    def report(self) -> Mapping[str, Any]:
        """What the last batch did, and what the operator did last; `commit` is that of the operator's stream."""
        entry = {name: value for name, value in self.progress.items() if name not in ("commit", "housekeeping")}
        kept = {f"input_{name}": done for name, done in self._housekeeping.report.items()}
        return {**entry, **kept, **self._operator_report}

    @property
    def is_busy(self) -> bool:
        """Whether the operator is still at work."""
        return self._operator.is_busy or super().is_busy

    def settle(self, timeout_s: float | None) -> bool:
        """Waits for the operator, and for the end of the stream if there is to be one."""
        is_done = super().settle(timeout_s) and self._operator.wait(timeout_s)
        if is_done:
            self._operator.close()
            self._job.housekeeping.stop()
        return is_done

    def halt(self, timeout_s: float | None) -> bool:
        """Returns when the batch under way is published and the operator has taken it in; it is stopped if it must."""
        began_s = stopwatch_s()
        is_free = super().halt(timeout_s)
        left_s = None if timeout_s is None else max(0.0, timeout_s - (stopwatch_s() - began_s))
        if not self._operator.wait(left_s):
            self._is_cancelled = True
            self._job.cancel()
            return False
        return is_free

    def idle(self) -> None:
        """A heartbeat, which the operator takes in; none while it is still at work."""
        if not self._operator.is_busy and self._beat() and self._job.time_has_passed():
            batch = self._last_batch
            self._operator.hand_over(lambda: self._follow(batch))

    def take_in_all(self) -> None:
        """Waits until the operator has taken in everything that is published."""
        self._operator.wait(None)

    def complete(self, *, when_done: bool) -> None:
        """Finishes the stream, and lets the operator take that in."""
        super().complete(when_done=when_done)
        self._operator.wait(None)
        if self.failure is not None:
            raise self.failure
        self._follow(self._last_batch)

    @property
    def _last_batch(self) -> int:
        last = self._log.state.writer
        return -1 if last is None else last.batch

    def catch_up(self) -> None:
        """Lets the operator take in what is published, before the query starts."""
        last = self._log.state.writer
        if last is not None or self._job.time_has_passed():
            with self._in_words():
                self._job.catch_up(last or _NOBODY, lambda: True, self._tell)

    def handle(self, df: DataFrame, batch: int) -> None:
        """Publishes the batch, then lets the operator take in what is published: never the rows that came again."""
        self._publish(df, batch)
        self._operator.hand_over(lambda: self._follow(batch))
        failpoint("before-spark-commit")

    def _tell(self, report: Mapping[str, Any]) -> None:
        self._operator_report = report

    def _follow(self, batch: int) -> None:
        try:
            with self._in_words():
                self._job.become_cancellable()
                writer = Writer(self._query, self._run, batch)
                self._job.catch_up(writer, lambda: not self._is_cancelled, self._tell)
        except Exception as problem:
            if self._is_cancelled:
                self.failure = None  # somebody stopped the query, and would not wait
                return
            self.failure = self.failure or problem
            # The next batch will raise it, if there is one.
            threading.Thread(target=self._end, daemon=True).start()
            raise


def ticking_checkpoint(place: Place) -> Place:
    """Where Spark keeps what it thinks of this run. Nothing in it is needed again, so every run has its own."""
    storage = place.storage()
    folders: dict[str, Any] = {}
    for listed in storage.list(FOLDER):
        run = listed.key.split("/")[1]
        folders.setdefault(run, []).append(listed)
    newest = max((file.modified_us for files in folders.values() for file in files), default=0)
    for files in folders.values():
        if max(file.modified_us for file in files) < newest - _OLD_US:
            for file in files:
                storage.delete(file.key)
    return place.below(f"{FOLDER}/{uuid.uuid4().hex}")
