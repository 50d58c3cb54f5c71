"""The life of an element that writes a stream, as a `Query` shows it to its user."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.log.stream.log_state import LogState
from strandline.spark.session.place import Place

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class ElementRun(ABC):
    """One element at work, from its start to its end."""

    place: Place
    """Where the stream is that the user asked for."""
    id: str
    """The id of the query: the same after every restart."""
    run_id: str
    """The id of this run of it."""
    name: str | None
    """The name given to `start`."""
    stops_with_program: bool = True
    """True if the query is stopped when the program ends; False for a run that is made of other queries."""
    spark_query: StreamingQuery | None = None
    """Spark's streaming query, if one drives the element."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of the streams that are written."""
        return (self.place.url,)

    @property
    def states(self) -> Mapping[str, LogState]:
        """The streams that the element reads and writes, by address, as it has last seen them."""
        return {}

    @property
    @abstractmethod
    def report(self) -> Mapping[str, Any]:
        """The figures of the last batch."""

    @property
    @abstractmethod
    def running(self) -> Mapping[str, Any]:
        """The batch under way: its number, seconds so far; empty if there is none."""

    @property
    @abstractmethod
    def status(self) -> dict[str, Any]:
        """A message, whether there is data, whether a batch is under way, as Spark says it."""

    @property
    @abstractmethod
    def recent_progress(self) -> Sequence[Any]:
        """The last progress reports that Spark's listeners got, oldest first."""

    @property
    @abstractmethod
    def is_active(self) -> bool:
        """True until the run has ended."""

    @abstractmethod
    def exception(self) -> Exception | None:
        """Returns the error that has ended the run, if there is one."""

    @abstractmethod
    def wait(self, timeout_s: float | None) -> bool:
        """Waits for the end of the run; returns False if it takes longer. Ctrl-C ends the wait without harm."""

    @abstractmethod
    def stop(self, patience_s: float | None) -> None:
        """Ends the run after the batch under way; cancels that one if it takes longer."""

    @abstractmethod
    def finish(self) -> None:
        """Ends the run after the batch under way, then finishes its stream. Errors are for `exception`."""

    @abstractmethod
    def process_all_available(self) -> None:
        """Returns when everything is taken in that the inputs have now, or when the run has ended."""

    @abstractmethod
    def explain(self, *, extended: bool) -> None:
        """Prints the plan of the last batch."""
