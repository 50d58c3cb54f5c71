"""A running writer: a Spark streaming query, seen from Strandline."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from strandline.clock import stopwatch_s
from strandline.errors import StrandlineError
from strandline.spark.describe.reprs import query_html, query_text
from strandline.spark.query import running, spark_log
from strandline.spark.query.error_in_text import failure_in
from strandline.spark.query.query_spellings import QuerySpellings
from strandline.spark.query.waiting import Waiting
from strandline.units import Duration, seconds

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from strandline.spark.query.batch_handler import BatchHandler

_PATIENCE_S = 60.0


class Query(QuerySpellings):
    """Handle on a query that writes a stream.

    `with query:` stops it at the end of the block. What still runs when the program ends is stopped then.
    """

    def __init__(self, spark_query: StreamingQuery, writer: BatchHandler) -> None:
        self.spark_query = spark_query
        self._writer = writer
        self._waiting = Waiting(spark_query)
        self._has_told = False
        running.began(self)

    def __enter__(self) -> Query:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops the query; raises what had stopped it before, unless that was raised already or something else is."""
        self.stop()
        if problem is None and not self._has_told and (failure := self.exception()) is not None:
            raise failure

    @property
    def urls(self) -> tuple[str, ...]:
        """Where the streams are that it writes: of an operator behind an entry point, both."""
        return self._writer.urls

    @property
    def progress(self) -> dict[str, Any]:
        """What the last batch did: its number, tuples, late tuples, bytes, offsets, boundary, seconds.

        Before the first one that this program publishes it says where the stream stands, without a `batch`; empty for a
        stream to which nothing was ever written.

        While one is under way, `running` tells of that.
        """
        running = self._writer.running
        return {**self._writer.report, **({"running": dict(running)} if running else {})}

    @property
    def is_active(self) -> bool:
        """Whether the query still runs."""
        return bool(self.spark_query.isActive) or self._writer.is_busy

    def await_termination(self, timeout: float | Duration | None = None) -> bool:
        """Waits until the query ends (True) or `timeout` has passed (False), in seconds or as any duration.

        Raises what stopped the query.
        """
        began_s = stopwatch_s()
        timeout_s = None if timeout is None else seconds(timeout, "timeout")

        def left_s() -> float | None:
            return None if timeout_s is None else max(0.0, timeout_s - (stopwatch_s() - began_s))

        if not self._waiting.wait(timeout_s):
            return False
        is_settled = self._writer.settle(left_s())  # whoever starts the query again must not meet it
        if (problem := self._failure(self._waiting.problem)) is not None:
            self._has_told = True
            running.ended(self)
            raise problem from None
        if is_settled:
            running.ended(self)
        return is_settled

    def exception(self) -> BaseException | None:
        """What stopped the query; None if it runs or ended well."""
        return self._failure(self.spark_query.exception())

    def stop(self) -> None:
        """Stops the query after the batch under way, or without it if that takes longer than a minute.

        Nothing is lost either way: a batch that was not published is the first of the next start.
        """
        self._writer.halt(timeout_s=_PATIENCE_S)
        self.spark_query.stop()
        self._writer.settle(timeout_s=_PATIENCE_S)
        running.ended(self)

    def finish(self) -> None:
        """Stops the query after the batch under way, then finishes its stream: nothing can be added to it any more.

        All windows of time close: of the operator behind this entry point at once, of others when they take it in.
        Raises what stopped the query, and finishes nothing, if it has failed.
        """
        if (problem := self.exception()) is not None:
            raise problem  # before anything is stopped for others, who share the source
        self._writer.require_can_complete()
        self._writer.halt(timeout_s=None)
        self.spark_query.stop()
        if (problem := self.exception()) is not None:
            raise problem
        self._writer.finish_stream()
        self._writer.settle(timeout_s=None)
        running.ended(self)
        if (problem := self._failure(None)) is not None:
            raise problem

    def __repr__(self) -> str:
        return query_text(self)

    def _repr_html_(self) -> str:
        return query_html(self)

    # ------------------------------------------------------------------ as PySpark has it, see QuerySpellings

    @property
    def last_progress(self) -> StreamingQueryProgress | None:
        """What Spark's listeners were told last of this query; None before its first batch."""
        return next(reversed(self.recent_progress), None)

    @property
    def recent_progress(self) -> list[StreamingQueryProgress]:
        """The last of those, up to Spark's `spark.sql.streaming.numRecentProgressUpdates`, oldest first."""
        told = self._writer.spark_progress
        return list(self.spark_query.recentProgress if told is None else told)

    def process_all_available(self) -> None:
        """Waits until everything that the source has now is published, and taken in by the operator if there is one.

        For tests: with a source that never rests it may not return. Raises what stopped the query.
        """
        try:
            self._writer.look()
            self.spark_query.processAllAvailable()
        except Exception as problem:
            raise self._failure(problem) or problem from None
        self._writer.take_in_all()
        if (failure := self.exception()) is not None:
            raise failure

    def _failure(self, problem: BaseException | None) -> BaseException | None:
        """What Spark says of the end, as what it means; without the history, which Spark's log has."""
        found: BaseException | None = self._writer.failure
        if found is None and problem is not None:
            found = failure_in(str(problem), self._writer.place.url) or problem
        return spark_log.named(found) if isinstance(found, StrandlineError) else found
