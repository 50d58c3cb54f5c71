"""The run of an operator: a thread of the driver takes in what is published, and lets listeners know."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strandline.clock import stopwatch_s
from strandline.log.stream.log_state import LogState
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.query.error_in_text import translated
from strandline.spark.query.life import Life
from strandline.spark.query.listener_events import ListenerEvents
from strandline.spark.query.publications import PUBLICATIONS
from strandline.spark.query.waiting import wait_for
from strandline.spark.session.place import Place


class OperatorRun(ABC):
    """An operator at work. What makes it take in tuples is up to a subclass."""

    def __init__(self, place: Place, job: OperatorJob, events: ListenerEvents, name: str | None = None) -> None:
        self.place = place
        self.life = Life()
        self._job = job
        self._events = events
        self.name = name
        self.id = job.output.spec.id
        self.run_id = events.run
        self._bell = threading.Event()
        """Ends the wait of the thread: a publication, a request or the end has come."""
        self._requests = threading.Condition()
        self._asked = self._answered = 0
        """How many requests there were, and the number of the last one that is done."""
        self._is_cancelled = False
        self._began_s: float | None = None
        self._progress: Mapping[str, Any] = job.standing()

    def start(self) -> None:
        """Lets the thread begin."""
        from pyspark import InheritableThread

        self._events.started()
        # A daemon: a program that ends without stopping its query must not be kept alive by it.
        InheritableThread(self._drive, name="strandline-operator", daemon=True).start()

    # ------------------------------------------------------------------ as its query shows it

    @property
    def states(self) -> Mapping[str, LogState]:
        """The inputs and the output, by address, as of the last look."""
        inputs = zip(self._job.inputs.places, self._job.inputs.logs, strict=True)
        return {**{place.url: log.state for place, log in inputs}, self.place.url: self._job.output.state}

    @property
    def report(self) -> Mapping[str, Any]:
        """The figures of the last batch; before the first one, of where the operator stands."""
        return self._progress

    @property
    def running(self) -> Mapping[str, Any]:
        """The steps under way; empty if there are none."""
        return self._job.running

    @property
    def status(self) -> dict[str, Any]:
        """As Spark says it."""
        is_busy = self._began_s is not None
        message = "Processing new data" if is_busy else "Waiting for data to arrive"
        return {
            "message": message if self.is_active else "Stopped",
            "isDataAvailable": is_busy,
            "isTriggerActive": is_busy,
        }

    @property
    def recent_progress(self) -> Sequence[Any]:
        return list(self._events.recent)

    @property
    def is_active(self) -> bool:
        return not self.life.has_ended

    def exception(self) -> Exception | None:
        """Returns the error that has ended the run."""
        return self.life.failure

    def explain(self, *, extended: bool) -> None:
        """Says that Spark has no plan for it."""
        print(f"Strandline works on {self.place.url} itself: its steps are jobs without a plan of Spark's")

    def wait(self, timeout_s: float | None) -> bool:
        """Waits for the end of the run."""
        return wait_for(self.life.wait, timeout_s)

    def stop(self, patience_s: float | None) -> None:
        self.life.stop()
        self._bell.set()
        if not self.life.wait(patience_s):
            self.cancel()
            self.life.wait(patience_s)

    def cancel(self) -> None:
        """Ends the run and its batch under way, which the next start computes again."""
        self._is_cancelled = True
        self.life.stop()
        self._bell.set()
        self._job.cancel()

    # ------------------------------------------------------------------ requests of other threads

    def _is_answered(self, request: int, timeout_s: float | None) -> bool:
        """Waits until the thread has done what was asked for, or has ended; returns False if it takes longer."""
        with self._requests:
            return self._requests.wait_for(lambda: self._answered >= request or self.life.has_ended, timeout_s)

    def _answer(self, request: int) -> None:
        with self._requests:
            self._answered = request
            self._requests.notify_all()

    # ------------------------------------------------------------------ its thread

    def _drive(self) -> None:
        with contextlib.ExitStack() as ending:  # backwards
            ending.callback(self._end)
            ending.callback(self._close)
            try:
                PUBLICATIONS.begin_writing(self.id)
                ending.callback(PUBLICATIONS.end_writing, self.id)
                with translated(self.place.url), self._job.cancellable():
                    self.life.begin()
                    self._work()
            except Exception as problem:
                if not self._is_cancelled:  # else the caller of `stop` did not wait for this batch
                    self.life.fail(problem)

    @abstractmethod
    def _work(self) -> None:
        """Takes in tuples until the run stops."""

    def _close(self) -> None:
        """Ends everything beside the thread, and tells listeners of the end."""
        try:
            self._job.close()
        finally:
            self._events.ended(self.life.failure)

    def _end(self) -> None:
        self.life.end()
        with self._requests:
            self._requests.notify_all()

    @contextlib.contextmanager
    def _shown(self) -> Iterator[None]:
        """Shows that a batch is under way."""
        self._began_s = stopwatch_s()
        try:
            yield
        finally:
            self._began_s = None

    def _tell(self, report: Mapping[str, Any]) -> None:
        self._progress = report
        self._events.progressed(report)
