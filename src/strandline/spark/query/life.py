"""The states through which every run goes, from its start to its end."""

from __future__ import annotations

import threading
from enum import Enum


class LifeState(Enum):
    """Where a run is in its life. FINISHED and FAILED are final."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    """No further batch begins; the one under way ends, or is cancelled."""
    FINISHED = "finished"
    FAILED = "failed"


class Life:
    """The state of one run. All its transitions are made here; threads may wait for the end."""

    def __init__(self) -> None:
        self.state = LifeState.STARTING
        self.failure: Exception | None = None
        """The error that has ended the run, or is about to; None if there is none."""
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @property
    def goes_on(self) -> bool:
        """True as long as further batches may begin."""
        return self.state in (LifeState.STARTING, LifeState.RUNNING)

    @property
    def has_ended(self) -> bool:
        """True once nothing of the run works any more."""
        return self._ended.is_set()

    def begin(self) -> None:
        """Goes from STARTING to RUNNING, unless a stop was faster."""
        with self._lock:
            if self.state is not LifeState.STOPPING:
                self._to(LifeState.RUNNING)

    def stop(self) -> None:
        """Goes to STOPPING; does nothing if the run stops already, or has ended."""
        with self._lock:
            if self.goes_on:
                self._to(LifeState.STOPPING)

    def fail(self, failure: Exception) -> None:
        """Keeps the first error, and goes to STOPPING; `end` then goes to FAILED. Raises if the run has ended."""
        with self._lock:
            self._require(LifeState.FAILED)
            self.failure = self.failure or failure
            if self.goes_on:
                self._to(LifeState.STOPPING)

    def end(self) -> None:
        """Goes to FAILED if an error was kept, else to FINISHED, and wakes all threads that wait for the end."""
        with self._lock:
            self._to(LifeState.FINISHED if self.failure is None else LifeState.FAILED)
            self._ended.set()

    def wait(self, timeout_s: float | None) -> bool:
        """Waits for the end of the run; returns False if it takes longer."""
        return self._ended.wait(timeout_s)

    def _to(self, state: LifeState) -> None:
        self._require(state)
        self.state = state

    def _require(self, state: LifeState) -> None:
        """Raises unless the run can go to this state: one that has ended cannot, nor one that is there."""
        if self.state in (LifeState.FINISHED, LifeState.FAILED, state):
            raise RuntimeError(f"a run that is {self.state.value} cannot become {state.value}")
