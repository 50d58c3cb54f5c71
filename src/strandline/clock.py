"""The only reader of time, so that one seed reproduces a run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol

_STAT = Path("/proc/self/stat")


class Clock(Protocol):
    """Wall-clock time and waiting, as the rest of the library sees them."""

    def now_us(self) -> int:
        """Returns microseconds since 1970-01-01 UTC, for values that are written and shown. They jump when the clock is
        set."""

    def steady_us(self) -> int:
        """Returns microseconds since some moment before this process, for measuring waits. They never jump."""

    def sleep(self, seconds: float) -> None:
        """Waits for that many seconds of this clock."""


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def steady_us(self) -> int:
        return time.monotonic_ns() // 1_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that a test moves by hand; sleeping moves it too, and with `tick_us` every look at it."""

    def __init__(self, now_us: int = 0, tick_us: int = 0) -> None:
        self._now_us = now_us
        self._tick_us = tick_us
        self._jumped_us = 0

    def now_us(self) -> int:
        self._now_us += self._tick_us
        return self._now_us

    def steady_us(self) -> int:
        return self.now_us() - self._jumped_us

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Moves the clock forward."""
        self._now_us += round(seconds * 1_000_000)

    def jump(self, seconds: float) -> None:
        """Sets the wall clock, forward or back; no time passes."""
        self._jumped_us += round(seconds * 1_000_000)
        self._now_us += round(seconds * 1_000_000)


SYSTEM_CLOCK = SystemClock()


def stopwatch_s() -> float:
    """Returns the seconds of a monotonic clock, for measuring how long something took."""
    return time.perf_counter()


def uptime_s() -> float:
    """Returns the seconds since the machine was started, asleep or awake, as far as the system can tell."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def process_age_s() -> float | None:
    """Returns the seconds since this process was started, or forked; None if the system does not tell."""
    try:
        fields = _STAT.read_text().rpartition(")")[2].split()  # behind the command, which may hold anything
        return max(0.0, uptime_s() - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return None


def process_cpu_s() -> float:
    """Returns the seconds that a processor has worked for this process."""
    used = os.times()
    return used.user + used.system
