"""The run of an operator behind an entry point: it takes in each batch that this publishes, at most one behind."""

from __future__ import annotations

from collections.abc import Callable

from strandline.log.stream.manifest import Writer
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.query.error_in_text import translated
from strandline.spark.query.listener_events import ListenerEvents
from strandline.spark.query.operator_run import OperatorRun
from strandline.spark.session.place import Place


class FusedRun(OperatorRun):
    """An operator that the run of an entry point drives. Its failure stops no other operator."""

    def __init__(self, place: Place, job: OperatorJob, events: ListenerEvents) -> None:
        super().__init__(place, job, events)
        self.when_failed: Callable[[], None] = lambda: None
        self._is_started = False
        self._writer: Writer | None = None

    @property
    def is_busy(self) -> bool:
        """True while it is at work."""
        return self._answered < self._asked and not self.life.has_ended

    @property
    def is_at_risk(self) -> bool:
        """True if there is a time by which its state has to be saved, even if nothing comes."""
        return self._job.is_at_risk

    def begin(self) -> None:
        """Lets its thread begin, if it has not begun yet."""
        with self._requests:
            self._begin()

    def catch_up(self, writer: Writer) -> None:
        """Takes in what is published, in the caller's thread, before it begins. Raises what goes wrong."""
        with translated(self.place.url):
            self._job.catch_up(writer, lambda: True, self._tell)

    def hand_over(self, writer: Writer) -> None:
        """Lets it take in what is published, once it is done with what it was handed over before."""
        with self._requests:
            if self.life.goes_on:
                self._begin()
                self._requests.wait_for(lambda: not self.is_busy)
                self._writer = writer
                self._asked += 1
                self._bell.set()

    def idle(self, writer: Writer, *, is_new: bool) -> None:
        """Lets it look at its input after a heartbeat, or when it must save its state, if it has nothing else to do."""
        if not self.is_busy and (is_new or self._job.must_save):
            self.hand_over(writer)

    def rest(self, timeout_s: float | None) -> bool:
        """Waits until it has nothing to do; returns False if that takes longer."""
        return self._is_answered(self._asked, timeout_s)

    def abandon(self, problem: Exception | None) -> None:
        """Ends a run that has not begun, because of an error, or because no handle was given out."""
        if problem is not None:
            self.life.fail(problem)
        self._close()
        self._end()

    def _begin(self) -> None:
        if not self._is_started:
            self._is_started = True
            self.start()

    def _work(self) -> None:
        """Takes in what it is handed over, all of it: after a stop, too, unless it is cancelled."""
        while not self._is_cancelled and (self.life.goes_on or self._answered < self._asked):
            self._bell.wait()
            self._bell.clear()
            asked = self._asked
            if asked > self._answered and self._writer is not None and not self._is_cancelled:
                with self._shown():
                    self._job.catch_up(self._writer, lambda: not self._is_cancelled, self._tell)
            self._answer(asked)

    def _close(self) -> None:
        super()._close()
        if self.life.failure is not None:
            self.when_failed()
