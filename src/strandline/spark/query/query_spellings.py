"""PySpark's names for what a `Query` has under our own, and what its `StreamingQuery` has besides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from strandline.units import Duration

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from strandline.spark.query.element_run import ElementRun


class _Running(Protocol):
    """The part of a `Query` that the spellings need."""

    _run: ElementRun

    @property
    def is_active(self) -> bool: ...
    @property
    def last_progress(self) -> StreamingQueryProgress | None: ...
    @property
    def recent_progress(self) -> list[StreamingQueryProgress]: ...
    def await_termination(self, timeout: float | Duration | None = None) -> bool: ...
    def process_all_available(self) -> None: ...


class QuerySpellings:
    """PySpark's names: every name of its `StreamingQuery` works on a `Query`, too."""

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
        """Does what `await_termination` does: returns True at the end, where Spark without a timeout returns None."""
        return self.await_termination(timeout)

    def processAllAvailable(self: _Running) -> None:
        """Does what `process_all_available` does."""
        self.process_all_available()

    @property
    def id(self: _Running) -> str:
        """The id of the query, the same after every restart: Spark's, or that of the operator's stream."""
        return self._run.id

    @property
    def run_id(self: _Running) -> str:
        """The id of this run of it."""
        return self._run.run_id

    @property
    def runId(self: _Running) -> str:
        """`run_id`."""
        return self._run.run_id

    @property
    def name(self: _Running) -> str | None:
        """The name given to `start`; None if there was none."""
        return self._run.name

    @property
    def status(self: _Running) -> dict[str, Any]:
        """A message about what it does now, whether there is data, whether a batch is under way."""
        return self._run.status

    def explain(self: _Running, extended: bool = False) -> None:
        """Prints Spark's plan of the last batch; an operator over streams has none."""
        self._run.explain(extended=extended)
