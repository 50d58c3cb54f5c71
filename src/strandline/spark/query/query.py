"""The handle on an element that writes a stream."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from strandline.errors import StrandlineError
from strandline.spark.describe.reprs import query_html, query_text
from strandline.spark.query import running, spark_log
from strandline.spark.query.element_run import ElementRun
from strandline.units import Duration, seconds

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

_PATIENCE_S = 60.0


class Query:
    """Handle on a query that writes a stream.

    `with query:` stops it at the end of the block. What still runs when the program ends is stopped then.
    """

    def __init__(self, run: ElementRun) -> None:
        self._run = run
        self._has_told = False
        if run.stops_with_program:
            running.began(self, run.name if run.spark_query is None else None)

    @property
    def spark_query(self) -> StreamingQuery | None:
        """Spark's own streaming query, which drives an entry point; None for an operator over streams."""
        return self._run.spark_query

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
        """The addresses of the streams that it writes: of an operator behind an entry point, both."""
        return self._run.urls

    @property
    def progress(self) -> dict[str, Any]:
        """The last batch: its number, tuples, late tuples, bytes, offsets, boundary, seconds.

        Before the first one that this program publishes it says where the stream stands, without a `batch`; empty for a
        stream to which nothing was ever written.

        While a batch is under way, `running` tells of that one.
        """
        running = self._run.running
        return {**self._run.report, **({"running": dict(running)} if running else {})}

    @property
    def is_active(self) -> bool:
        """True while the query runs."""
        return self._run.is_active

    def await_termination(self, timeout: float | Duration | None = None) -> bool:
        """Waits until the query ends (True) or `timeout` has passed (False), in seconds or as any duration.

        Raises what stopped the query.
        """
        if not self._run.wait(None if timeout is None else seconds(timeout, "timeout")):
            return False
        running.ended(self)
        if (problem := self.exception()) is not None:
            self._has_told = True
            raise problem from None
        return True

    def exception(self) -> Exception | None:
        """Returns what stopped the query, without its history, which Spark's log has; None if it runs or ended well."""
        found = self._run.exception()
        return spark_log.named(found) if isinstance(found, StrandlineError) else found

    def stop(self) -> None:
        """Stops the query after the batch under way, or without it if that takes longer than a minute.

        Nothing is lost either way: a batch that was not published is the first of the next start.
        """
        self._run.stop(_PATIENCE_S)
        running.ended(self)

    def finish(self) -> None:
        """Stops the query after the batch under way, then finishes its stream: nothing can be added to it any more.

        All windows of time close: of the operator behind this entry point at once, of others when they take it in.
        Raises what stopped the query, and finishes nothing, if it has failed.
        """
        self._raise_failure()  # before anything is stopped for others, who share the source
        self._run.finish()
        running.ended(self)
        self._raise_failure()

    def __repr__(self) -> str:
        return query_text(self)

    def _repr_html_(self) -> str:
        return query_html(self)

    # ------------------------------------------------------------------ as PySpark has it, and under its spellings

    @property
    def last_progress(self) -> StreamingQueryProgress | None:
        """The last progress report that Spark's listeners got of this query; None before its first batch."""
        return next(reversed(self.recent_progress), None)

    @property
    def recent_progress(self) -> list[StreamingQueryProgress]:
        """The last of these reports, up to Spark's `spark.sql.streaming.numRecentProgressUpdates`, oldest first."""
        return list(self._run.recent_progress)

    def process_all_available(self) -> None:
        """Waits until everything that the source has now is published, and taken in by the operator if there is one.

        For tests: with a source that never rests it may not return. Raises what stopped the query.
        """
        self._run.process_all_available()
        self._raise_failure()

    @property
    def id(self) -> str:
        """The id of the query, the same after every restart: Spark's, or that of the operator's stream."""
        return self._run.id

    @property
    def run_id(self) -> str:
        """The id of this run of it."""
        return self._run.run_id

    @property
    def name(self) -> str | None:
        """The name given to `start`; None if there was none."""
        return self._run.name

    @property
    def status(self) -> dict[str, Any]:
        """A message about what it does now, whether there is data, whether a batch is under way."""
        return self._run.status

    def explain(self, extended: bool = False) -> None:
        """Prints Spark's plan of the last batch; an operator over streams has none."""
        self._run.explain(extended=extended)

    isActive = is_active
    lastProgress = last_progress
    recentProgress = recent_progress
    runId = run_id
    awaitTermination = await_termination  # Spark's returns None at the end
    processAllAvailable = process_all_available

    def _raise_failure(self) -> None:
        if (problem := self.exception()) is not None:
            raise problem


def stop_all(queries: Iterable[Query]) -> None:
    """Stops queries after the batches under way. One that cannot be stopped keeps no other from it."""
    for query in queries:
        with contextlib.suppress(Exception):  # the first failure is the one that is told
            query.stop()
