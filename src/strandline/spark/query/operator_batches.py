"""The Spark batches of an entry point with operators behind it: each batch is published, then handed to these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strandline.failpoint import failpoint
from strandline.log.stream.manifest import Writer
from strandline.spark.entry.batch_writer import BatchWriter
from strandline.spark.query.following import FollowingOperator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ASK_AFTER_S = 1.0
_NOBODY = Writer("", "", -1)


class FusedBatches(BatchWriter):
    """An entry point, with operators that follow it, each at most one batch behind.

    What Spark commits is that the input is published. The operators need nothing else: should one be stopped before it
    has taken that in, it will find it in the stream.
    """

    operators: list[FollowingOperator]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.operators = []

    @property
    def tick_every_s(self) -> float | None:
        """As often as there is a heartbeat; without one, as an operator needs that is to save its state in time."""
        every_s = super().tick_every_s
        if every_s is None and any(operator.is_at_risk for operator in self.operators):
            return _ASK_AFTER_S
        return every_s

    @property
    def input_housekeeping(self) -> Mapping[str, Any]:
        """What was done for this stream, by the name it has beside what was done for an operator's."""
        return {f"input_{name}": done for name, done in self._housekeeping.report.items()}

    @property
    def last_writer(self) -> Writer:
        """Who published last; whoever takes that in, notes it."""
        return self._log.state.writer or _NOBODY

    def join(self, operator: FollowingOperator) -> None:
        """From now on the operator follows, from wherever it stands."""
        self.operators.append(operator)
        operator.hand_over(self.last_writer)

    def idle(self) -> None:
        """A heartbeat, which the operators take in; none while one is at work. Then what must be saved."""
        operators = list(self.operators)
        if not any(operator.is_busy for operator in operators) and self._beat():
            for operator in operators:
                operator.notice_time(self.last_writer)
        for operator in operators:
            operator.save_in_time(self.last_writer)

    def complete(self, *, when_done: bool) -> None:
        """Finishes the stream, and lets the operators take that in."""
        super().complete(when_done=when_done)
        if self.failure is not None:
            raise self.failure
        for operator in list(self.operators):
            operator.take_in_the_end(self.last_writer)

    def handle(self, df: DataFrame, batch: int) -> None:
        """Publishes the batch, then lets operators take in what is published: never the rows that came again."""
        self._publish(df, batch)
        for operator in list(self.operators):
            operator.hand_over(Writer(self._query, self._run, batch))
        failpoint("before-spark-commit")
