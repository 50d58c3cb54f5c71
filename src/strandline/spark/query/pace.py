"""When a run that follows streams looks at them."""

from __future__ import annotations

from strandline.clock import SYSTEM_CLOCK, Clock

_OFTEN_S = 0.01
_SELDOM_S = 0.25
_OFTEN_LOOKS = 500
"""After so many looks in vain, five seconds or more, looks are seldom: each is a request to the store."""


class Pace:
    """The time of the next look: at multiples of the trigger's interval, as Spark's triggers, or as fast as it goes."""

    def __init__(self, every_s: float, clock: Clock = SYSTEM_CLOCK, *, is_hurried: bool = False) -> None:
        """Takes the interval. `is_hurried`: it is that of the sources; what they publish is looked at at once."""
        self.every_s = every_s
        self._clock = clock
        self._is_hurried = is_hurried
        self._in_vain = 0
        self._began_us = clock.now_us()

    @property
    def has_interval(self) -> bool:
        """True if looks come at multiples of an interval."""
        return self.every_s > _OFTEN_S

    @property
    def heeds_publications(self) -> bool:
        """True if a publication of this program ends the wait for the next look."""
        return self._is_hurried or not self.has_interval

    def begins(self) -> None:
        """Notes that a look begins now."""
        self._began_us = self._clock.now_us()

    def saw(self, *, is_new: bool) -> None:
        """Notes whether the look has found something new."""
        self._in_vain = 0 if is_new else self._in_vain + 1

    def pause_s(self, *, is_woken: bool) -> float:
        """Returns how long to wait for the next look. `is_woken`: publications in the streams end the wait.

        With an interval, that is until the first multiple of it after the beginning of the last look: if the batch
        took longer, the next one begins at once. Without one, hardly at all, until many looks have been in vain.
        """
        if self.has_interval:
            every_us = round(self.every_s * 1e6)
            due_us = (self._began_us // every_us + 1) * every_us
            return max(0.0, min(self.every_s, (due_us - self._clock.now_us()) / 1e6))
        return _SELDOM_S if is_woken or self._in_vain >= _OFTEN_LOOKS else _OFTEN_S
