"""Waiting for a stream whose writer has not started yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from strandline.clock import SYSTEM_CLOCK, Clock
from strandline.errors import StreamNotFoundError

_FIRST_LOOK_S = 0.05
_LOOK_S = 1.0
T = TypeVar("T")


def once_there(open_: Callable[[], T], patience_us: int, clock: Clock = SYSTEM_CLOCK) -> T:
    """Calls `open_` again and again for so long while there is no stream; then raises `StreamNotFoundError`."""
    end_us = clock.steady_us() + patience_us
    pause_s = _FIRST_LOOK_S
    while True:
        try:
            return open_()
        except StreamNotFoundError:
            left_s = (end_us - clock.steady_us()) / 1e6
            if left_s <= 0:
                raise
        clock.sleep(min(pause_s, left_s))
        pause_s = min(_LOOK_S, 2 * pause_s)
