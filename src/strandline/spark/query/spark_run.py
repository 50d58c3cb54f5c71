"""The run of an entry point: Spark's streaming query, and the handler that it calls with every batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.clock import stopwatch_s
from strandline.spark.query.element_run import ElementRun
from strandline.spark.query.error_in_text import meaning
from strandline.spark.query.waiting import Waiting

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from strandline.spark.query.batch_handler import BatchHandler


class SparkRun(ElementRun):
    """An element that Spark's streaming query drives."""

    spark_query: StreamingQuery

    def __init__(self, spark_query: StreamingQuery, handler: BatchHandler) -> None:
        self.place = handler.place
        self.spark_query = spark_query
        self._handler = handler
        self._waiting = Waiting(spark_query)

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of the streams that are written: of an operator behind an entry point, both."""
        return self._handler.urls

    @property
    def id(self) -> str:
        """Spark's id of the query."""
        return str(self.spark_query.id)

    @property
    def run_id(self) -> str:
        """Spark's id of this run of it."""
        return str(self.spark_query.runId)

    @property
    def name(self) -> str | None:
        """The name given to `start`."""
        return self.spark_query.name

    @property
    def report(self) -> Mapping[str, Any]:
        """The figures of the last batch."""
        return self._handler.report

    @property
    def running(self) -> Mapping[str, Any]:
        """The batch under way."""
        return self._handler.running

    @property
    def status(self) -> dict[str, Any]:
        """What Spark is doing now."""
        return dict(self.spark_query.status)

    @property
    def recent_progress(self) -> Sequence[Any]:
        """The last progress reports that Spark's listeners got, oldest first."""
        told = self._handler.spark_progress
        return list(self.spark_query.recentProgress if told is None else told)

    @property
    def is_active(self) -> bool:
        """Whether Spark's query runs, or work is left of which Spark does not know."""
        return bool(self.spark_query.isActive) or self._handler.is_busy

    def exception(self) -> BaseException | None:
        """Returns the error that has ended the query."""
        return self._meaning(self._handler.failure or self._waiting.problem or self.spark_query.exception())

    def _meaning(self, problem: BaseException | None) -> BaseException | None:
        return meaning(problem, self.place.url) if isinstance(problem, Exception) else problem

    def wait(self, timeout_s: float | None) -> bool:
        """Waits for the end of Spark's query, and of the work that is left then."""
        began_s = stopwatch_s()
        if not self._waiting.wait(timeout_s):
            return False
        return self._handler.settle(None if timeout_s is None else max(0.0, timeout_s - (stopwatch_s() - began_s)))

    def stop(self, patience_s: float | None) -> None:
        """Ends the query after the batch under way, or without it if that takes longer."""
        self._handler.halt(patience_s)
        self.spark_query.stop()
        self._handler.settle(patience_s)

    def finish(self) -> None:
        """Ends the query after the batch under way, then finishes its stream."""
        self._handler.require_can_complete()
        self._handler.halt(None)
        self.spark_query.stop()
        if self.exception() is None:
            self._handler.finish_stream()
            self._handler.settle(None)

    def process_all_available(self) -> None:
        """Returns when everything is published that the source has now, and taken in by the operator."""
        try:
            self.spark_query.processAllAvailable()
        except Exception as problem:
            raise self._meaning(self._handler.failure or problem) or problem from None
        self._handler.take_in_all()

    def explain(self, *, extended: bool) -> None:
        """Prints Spark's plan of the last batch."""
        self.spark_query.explain(extended)
