"""A thread that ticks beside a query: for what has to happen while nothing comes, when Spark calls nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Ticker:
    """Calls `tick` again and again, `pause_s` in between, one call after the other, until that returns False."""

    def __init__(self, name: str, pause_s: float | Callable[[], float], tick: Callable[[], bool]) -> None:
        self._pause_s = pause_s if callable(pause_s) else lambda: pause_s
        self._tick = tick
        self._stopped = threading.Event()
        # A daemon: a program that ends without stopping its query must not be kept alive by it.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """The first tick comes after one pause."""
        self._thread.start()

    def stop(self) -> None:
        """No further tick begins."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._pause_s()):
            if not self._tick():
                return
