"""An operator behind an entry point: takes in what is published, in a thread of its own, at most one batch behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from strandline.log.stream.manifest import Writer
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.query.error_in_text import translated
from strandline.spark.query.follower import Follower
from strandline.spark.query.listener_events import ListenerEvents
from strandline.spark.session.place import Place


class FollowingOperator:
    """Follows the batches of an entry point until it is told to leave, or fails. Its failure is nobody else's."""

    def __init__(self, place: Place, job: OperatorJob, events: ListenerEvents) -> None:
        self.place = place
        self.events = events
        self.failure: Exception | None = None
        self.when_failed: Callable[[], None] = lambda: None
        self._job = job
        self._report: Mapping[str, Any] = job.standing()
        self._thread = Follower("strandline-operator")
        self._has_left = False
        self._is_cancelled = False

    @property
    def report(self) -> Mapping[str, Any]:
        """What it did last; where it stands, before it has done anything."""
        return self._report

    @property
    def running(self) -> Mapping[str, Any]:
        """What it is at; empty if nothing."""
        return self._job.running

    @property
    def is_busy(self) -> bool:
        """Whether it is at work."""
        return self._thread.is_busy

    def catch_up(self, writer: Writer) -> None:
        """Takes in what is published, now, in the caller's thread. Raises what goes wrong."""
        with translated(self.place.url):
            self._job.catch_up(writer, lambda: not self._is_cancelled, self._tell)

    def hand_over(self, writer: Writer) -> None:
        """Lets it take in what is published, once it is done with what it was handed over before."""
        if self._has_left or self.failure is not None:
            return
        try:
            self._thread.hand_over(lambda: self._follow(writer))
        except RuntimeError:
            if not self._has_left:  # its thread is gone
                raise

    @property
    def has_news(self) -> bool:
        """Whether the input has nothing new but the time: a later boundary, or its end."""
        self._job.inputs.refresh()
        return self._job.time_has_passed()

    @property
    def is_at_risk(self) -> bool:
        """Whether there is a time by which its state has to be saved, whatever comes."""
        return self._job.is_at_risk

    def save_in_time(self, writer: Writer) -> None:
        """Lets it save its state, if nothing has come for so long that it must, and it has nothing else to do."""
        if not self.is_busy and self._job.must_save:
            self.hand_over(writer)

    def notice_time(self, writer: Writer) -> None:
        """Lets it take in that time has passed, if it has nothing else to do."""
        if not self.is_busy and self.has_news:
            self.hand_over(writer)

    def take_in_the_end(self, writer: Writer) -> None:
        """Takes in that the input is finished, in the caller's thread, unless it has failed."""
        self.wait(None)
        if self.failure is None and not self._has_left:
            self._follow(writer)

    def wait(self, timeout_s: float | None) -> bool:
        """Waits until it has nothing to do; False if that takes longer."""
        return self._thread.wait(timeout_s)

    def leave(self) -> None:
        """Nothing is taken in any more, but what it is at."""
        self._has_left = True

    def cancel(self) -> None:
        """Stops it in the middle of what it is at: that is computed again by whoever goes on."""
        self._is_cancelled = self._has_left = True
        self._job.cancel()

    def close(self) -> None:
        """Lets go of what it has, once it has nothing to do."""
        self._has_left = True
        self._thread.close()
        self._job.close()
        self.events.ended(self.failure)

    def _follow(self, writer: Writer) -> None:
        if self._has_left:
            return
        try:
            with self._job.cancellable():
                self.catch_up(writer)
        except Exception as problem:
            if not self._is_cancelled:  # then somebody would not wait, and knows
                self.failure = problem
                self.when_failed()

    def _tell(self, report: Mapping[str, Any]) -> None:
        self._report = report
        self.events.progressed(report)
