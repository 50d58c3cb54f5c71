"""The policy of slow windows in plain Python: which of them gets a G-check next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from strandline.operators.operator import Limits, SlowLimits


class _Window(Protocol):
    opened: int
    output: int


W = TypeVar("W", bound=_Window)


class PlainSlowWindows:
    """Windows that are not known to be slow, in the order of their opening, and how far footprints were looked at."""

    def __init__(self) -> None:
        self._openings: list[_Window] | None = None
        """None: nobody has asked for slow windows last time."""
        self._passed = 0

    def save(
        self, windows: Sequence[W], new: Sequence[W], limits: Limits, written: int, leave: Callable[[W], None]
    ) -> None:
        """Leaves the footprints of slow windows that are due, among those that are open, in the order of opening.

        The `new` ones among them have their first footprint now; `written` G-checks were made before.
        """
        if limits.slow is None:
            self._openings = None
            return
        if self._openings is None:
            self._openings, self._passed = list(windows), 0
        else:
            self._openings += new
        for _ in range(limits.slow_budget(written)):
            found = self._next(windows, limits.slow)
            if found is None:
                break
            leave(found)

    def _next(self, windows: Sequence[W], slow: SlowLimits) -> W | None:
        """Of the first window that has become slow and the first in the queue: the one with the older footprint."""
        assert self._openings is not None
        slow_now = [w for w in windows if w.opened < slow.opened_before]
        due = [w for w in slow_now if w.output < slow.written_before]
        became: W | None = None
        for window in [w for o in self._openings for w in slow_now if w is o]:
            if window.output < slow.written_before:
                became = window
                break
            self._passed = min(self._passed, window.output)
            self._drop(window)
        queue = [w for w in due if w.output >= self._passed]
        stale = min(queue, key=lambda w: w.output, default=None)
        self._passed = max(self._passed, slow.written_before if stale is None else stale.output)
        if became is None or (stale is not None and stale.output < became.output):
            return stale
        self._drop(became)
        return became

    def _drop(self, window: _Window) -> None:
        self._openings = [o for o in self._openings or [] if o is not window]
