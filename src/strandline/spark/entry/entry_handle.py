"""One user's hold on the run of an entry point: with an operator behind it, or for the sake of the stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.clock import stopwatch_s
from strandline.log.stream.log_state import LogState
from strandline.spark.entry.entry_run import EntryRun
from strandline.spark.query.element_run import ElementRun
from strandline.spark.query.error_in_text import meaning
from strandline.spark.query.fused_run import FusedRun
from strandline.spark.query.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_S = 0.1


class EntryHandle(ElementRun):
    """The run of an entry point as one of several users sees it: its end is theirs, theirs is not its end."""

    spark_query: StreamingQuery

    def __init__(self, run: EntryRun, operator: FusedRun | None) -> None:
        self.run = run
        self.operator = operator
        self.place = run.place if operator is None else operator.place
        self.spark_query = query = run.spark_query
        """Spark's streaming query, which all users of the run share."""
        self.id, self.run_id, self.name = str(query.id), str(query.runId), query.name
        self.has_left = False
        """True if this user has left, and the run goes on without it."""
        self._is_for_all = False
        """True if this user finishes the stream, and raises the errors of the run, even after leaving it."""

    @property
    def urls(self) -> tuple[str, ...]:
        """The addresses of the streams that are written: the entry point's, and the operator's."""
        entry = self.run.place.url
        return (entry,) if self.operator is None else (entry, self.operator.place.url)

    @property
    def states(self) -> Mapping[str, LogState]:
        """The stream of the entry point, and those of its operator."""
        own = {self.run.place.url: self.run.writer.state}
        return own if self.operator is None else {**self.operator.states, **own}

    @property
    def report(self) -> Mapping[str, Any]:
        """The figures of the last batch, and those of the operator; `commit` is that of the operator's stream."""
        writer = self.run.writer
        if self.operator is None:
            return writer.progress
        entry = {name: value for name, value in writer.progress.items() if name not in ("commit", "housekeeping")}
        return {**entry, **writer.input_housekeeping, **self.operator.report}

    @property
    def running(self) -> Mapping[str, Any]:
        """The work of the operator, or else of the entry point; empty if there is none."""
        return (self.operator.running if self.operator is not None else {}) or self.run.running

    @property
    def status(self) -> dict[str, Any]:
        """Spark's words on what its query does now."""
        return dict(self.spark_query.status)

    @property
    def recent_progress(self) -> Sequence[Any]:
        """The last progress reports that Spark's listeners got of the operator, or else of Spark's query."""
        return list(self.spark_query.recentProgress) if self.operator is None else self.operator.recent_progress

    @property
    def is_active(self) -> bool:
        """True while the run goes on for this user, or its operator is at work."""
        return (self._holds and not self.run.life.has_ended) or (self.operator is not None and self.operator.is_busy)

    @property
    def _holds(self) -> bool:
        return self._is_for_all or not self.has_left

    def exception(self) -> Exception | None:
        """Returns what stopped the operator, or else the run, unless this user had left it before."""
        own = None if self.operator is None else self.operator.life.failure
        return own or (self.run.life.failure if self._holds else None)

    def wait(self, timeout_s: float | None) -> bool:
        """Waits for the end of the run, or until this user has left it, and until its operator has nothing to do."""
        if not wait_for(self._has_ended, timeout_s):
            return False
        self._end_operator(None)
        self.run.end_is_heard |= self._holds and self.run.life.has_ended
        return True

    def _has_ended(self, timeout_s: float) -> bool:
        began_s = stopwatch_s()
        if self._holds and not self.run.life.wait(min(timeout_s, _LOOK_S)):  # this user may leave it meanwhile
            return False
        left_s = max(0.0, timeout_s - (stopwatch_s() - began_s))
        return self.operator is None or self.operator.rest(left_s)

    def stop(self, patience_s: float | None) -> None:
        """Leaves the run; the last user ends it after the batch under way. Its operator takes in what is published."""
        began_s = stopwatch_s()
        is_last = self.run.leave(self)
        if is_last:
            self.run.stop(patience_s)
        left_s = None if patience_s is None else max(0.0, patience_s - (stopwatch_s() - began_s))
        if self.operator is not None and not self.operator.rest(left_s):
            self.operator.cancel()
        if is_last:
            self.run.end_is_heard |= self.run.end(patience_s)
        self._end_operator(patience_s)

    def finish(self) -> None:
        """Ends the run for all its users, then finishes its stream."""
        self._is_for_all = True
        self.run.close()
        self.run.stop(None)
        if self.operator is not None:
            self.operator.rest(None)
        if self.exception() is None:
            self.run.finish()
        else:
            self.run.end(None)
        self.run.end_is_heard = True
        self._end_operator(None)

    def process_all_available(self) -> None:
        """Returns when everything is published that the source has now, and taken in by the operator."""
        try:
            self.spark_query.processAllAvailable()
        except Exception as problem:
            if self.exception() is None:
                raise meaning(problem, self.place.url) from None
        if self.operator is not None:
            self.operator.rest(None)

    def explain(self, *, extended: bool) -> None:
        self.spark_query.explain(extended)

    def _end_operator(self, patience_s: float | None) -> None:
        """Ends the thread of the operator, which has nothing to do."""
        if self.operator is not None:
            self.operator.stop(patience_s)
