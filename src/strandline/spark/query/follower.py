"""Work that another thread hands over: at most one piece behind, in order, and no failure is lost."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from threading import Lock


class Follower:
    """Does one piece of work in a thread of its own, while the caller prepares the next."""

    def __init__(self, name: str) -> None:
        # The same thread for all pieces: Spark keeps a thread in the JVM for each of ours.
        self._thread = ThreadPoolExecutor(1, name)
        self._piece: Future[None] | None = None
        self._turn = Lock()

    def hand_over(self, work: Callable[[], None]) -> None:
        """Starts the work once the piece before it is done. Raises what stopped that one."""
        with self._turn:
            if self._piece is not None:
                self._piece.result()
            self._piece = self._thread.submit(work)

    @property
    def is_busy(self) -> bool:
        """True while it is at work."""
        return self._piece is not None and not self._piece.done()

    def wait(self, timeout_s: float | None) -> bool:
        """Waits until it has nothing to do; returns False if that takes longer. Raises no failure of the work."""
        return self._piece is None or bool(wait_for([self._piece], timeout_s).done)

    def close(self) -> None:
        """Ends the thread; nothing may be handed over afterwards."""
        self._thread.shutdown(wait=False)
