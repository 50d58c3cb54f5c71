"""What Spark calls when an operator may have something to do.

Over a stream, Spark's query is only a clock with a good reason to tick: the operator takes in whatever the input holds,
from where its own manifests say it stands. Fused with an entry point, the same happens after each batch is published.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from strandline.failpoint import failpoint
from strandline.log.log import Log
from strandline.log.manifest import Writer
from strandline.spark.batch_handler import BatchHandler
from strandline.spark.batch_writer import BatchWriter
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
        report = self._job.catch_up(writer, lambda: not self._stopping)
        if report is not None:
            self.progress = {"batch": batch, **report}
        failpoint("before-spark-commit")


class FusedBatches(BatchWriter):
    """An entry point with an operator on the rows it has just published."""

    def __init__(
        self,
        place: Place,
        log: Log,
        checkpoint: SparkCheckpoint,
        job: OperatorJob,
        *,
        blocks: str | None,
        retention_: int | None,
    ) -> None:
        super().__init__(place, log, checkpoint, blocks=blocks, retention_=retention_)
        self._job = job

    def catch_up(self) -> None:
        """Lets the operator take in what is published, before the query starts."""
        last = self._log.state.writer
        if last is not None:
            self._job.catch_up(last, lambda: True)

    def handle(self, df: DataFrame, batch: int) -> None:
        """Publishes the batch, then lets the operator take in what is published: never the rows that came again."""
        self._publish(df, batch)
        entry = dict(self.progress)
        report = self._job.catch_up(Writer(self._query, self._run, batch), lambda: True)
        if report is not None:
            self.progress = {**{k: v for k, v in entry.items() if k not in report}, **report}
        failpoint("before-spark-commit")


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
