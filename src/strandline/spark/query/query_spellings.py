"""PySpark's names for what a `Query` has under our own, and what its `StreamingQuery` has besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from strandline.units import Duration

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery


class _Running(Protocol):
    """What the spellings stand on."""

    spark_query: StreamingQuery

    @property
    def is_active(self) -> bool: ...
    @property
    def last_progress(self) -> StreamingQueryProgress | None: ...
    @property
    def recent_progress(self) -> list[StreamingQueryProgress]: ...
    def await_termination(self, timeout: float | Duration | None = None) -> bool: ...
    def process_all_available(self) -> None: ...


class QuerySpellings:
    """For hands that are used to PySpark: every name of its `StreamingQuery` works on a `Query`, too."""

    @property
    def isActive(self: _Running) -> bool:
        """`is_active`."""
        return self.is_active

    @property
    def lastProgress(self: _Running) -> StreamingQueryProgress | None:
        """`last_progress`."""
        return self.last_progress

    @property
    def recentProgress(self: _Running) -> list[StreamingQueryProgress]:
        """`recent_progress`."""
        return self.recent_progress

    def awaitTermination(self: _Running, timeout: float | Duration | None = None) -> bool:
        """`await_termination`. Without a timeout, too, it returns True at the end, where Spark returns None."""
        return self.await_termination(timeout)

    def processAllAvailable(self: _Running) -> None:
        """`process_all_available`."""
        self.process_all_available()

    @property
    def id(self: _Running) -> str:
        """Spark's id of the query: the same after every restart of an entry point."""
        return str(self.spark_query.id)

    @property
    def run_id(self: _Running) -> str:
        """Spark's id of this run of it."""
        return str(self.spark_query.runId)

    @property
    def runId(self: _Running) -> str:
        """`run_id`."""
        return str(self.spark_query.runId)

    @property
    def name(self: _Running) -> str | None:
        """The name given to `start`; None if there was none."""
        return self.spark_query.name

    @property
    def status(self: _Running) -> dict[str, Any]:
        """What Spark is doing now: its message, whether there is data, whether a trigger is active."""
        return self.spark_query.status

    def explain(self: _Running, extended: bool = False) -> None:
        """Prints Spark's plan of the last batch."""
        self.spark_query.explain(extended)
