"""What Spark calls when an operator may have something to do.

Over a stream, Spark's query is only a clock with a good reason to tick: the operator takes in whatever the input holds,
from where its own manifests say it stands. Fused with an entry point, the same happens after each batch is published,
while Spark is at the next one already.
"""

from __future__ import annotations

import contextlib
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
from strandline.spark.housekeeping import Housekeeping
from strandline.spark.operator_job import OperatorJob
from strandline.spark.place import Place
from strandline.spark.spark_checkpoint import FOLDER, SparkCheckpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OLD_US = 24 * 3_600_000_000


class OperatorBatches(BatchHandler):
    """An operator over a stream that exists."""

    def __init__(self, place: Place, job: OperatorJob) -> None:
        super().__init__(place)
        self._job = job

    def handle(self, df: DataFrame, batch: int) -> None:
        """Takes in what the input has. The DataFrame itself is never read."""
        writer = Writer(self._query, self._run, batch)

        def tell(report: Mapping[str, Any]) -> None:
            self.progress = {"batch": batch, **report}

        self._job.catch_up(writer, lambda: not self._stopping, tell)
        failpoint("before-spark-commit")

    def settle(self, timeout_s: float | None) -> bool:
        """Ends what is done for the stream beside the batches; nobody has to wait for that."""
        self._job.housekeeping.stop()
        return True


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
    ) -> None:
        super().__init__(place, log, checkpoint, blocks=blocks, housekeeping=housekeeping, max_ahead=max_ahead)
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
        return self._operator.is_busy

    def settle(self, timeout_s: float | None) -> bool:
        """Waits for the operator."""
        is_done = self._operator.wait(timeout_s)
        if is_done:
            self._operator.close()
            self._job.housekeeping.stop()
        super().settle(0.0)
        return is_done

    def finish(self, timeout_s: float) -> None:
        """Returns when the batch under way is published and the operator has taken it in; it is stopped if it must."""
        began_s = stopwatch_s()
        super().finish(timeout_s)
        if not self._operator.wait(max(0.0, timeout_s - (stopwatch_s() - began_s))):
            self._is_cancelled = True
            self._job.cancel()

    def catch_up(self) -> None:
        """Lets the operator take in what is published, before the query starts."""
        last = self._log.state.writer
        if last is not None:
            with self._in_words():
                self._job.catch_up(last, lambda: True, self._tell)

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

    def _end(self) -> None:
        """Ends the query once it is idle: an operator that has failed is not to go unnoticed for want of input."""
        self._stopping = True
        with self._at_work:
            query = self._spark_query
        with contextlib.suppress(Exception):  # whoever stopped it, or Spark, was faster
            if query is not None and query.isActive:
                query.stop()


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
