"""A clock that a test moves by hand."""

from __future__ import annotations

import datetime as dt

from strandline.clock import ManualClock
from strandline.times import Time, time_value
from strandline.units import Duration, clock_us

START = "2026-01-01"


class HandClock:
    """Stands still until it is moved. Times without a zone are UTC.

    >>> clock = HandClock("2026-01-01 12:00")
    >>> clock.advance("90 s")
    >>> print(clock)
    2026-01-01 12:01:30+00:00
    """

    def __init__(self, start: Time = START) -> None:
        self._clock = ManualClock(time_value(start, "start", "timestamp", dt.UTC))

    def __str__(self) -> str:
        return str(dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=self.now_us()))

    def now_us(self) -> int:
        return self._clock.now_us()

    def steady_us(self) -> int:
        return self._clock.steady_us()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def advance(self, duration: Duration) -> None:
        """Moves the clock forward, by "1 min" or a `timedelta`; raises `OptionError` for a number without a unit."""
        self._clock.advance(clock_us(duration, "duration") / 1_000_000)
