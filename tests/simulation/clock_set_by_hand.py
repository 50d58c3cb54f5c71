"""Somebody sets the clock of the machine now and then: no time passes, and nobody may wait longer or shorter for it."""

from strandline.clock import ManualClock

_EVERY_TICKS = 29
_FIRST_TICK = 7
_BY_S = 3600.0


def set_the_clock(clock: ManualClock, tick: int) -> None:
    """An hour forward in some tick, an hour back in a later one, and so on; no seed is needed for that."""
    if tick % _EVERY_TICKS == _FIRST_TICK:
        clock.jump(_BY_S if tick // _EVERY_TICKS % 2 == 0 else -_BY_S)
