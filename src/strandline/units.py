"""Durations and points in time, as people write them and as the log keeps them.

The log keeps every time as one 64-bit integer: microseconds since 1970 UTC for timestamps, the number itself
for integer time columns.
"""

from __future__ import annotations

import datetime as dt
import re

from strandline.errors import OptionError

_UNITS_US = {
    "us": 1,
    "microsecond": 1,
    "ms": 1_000,
    "millisecond": 1_000,
    "s": 1_000_000,
    "sec": 1_000_000,
    "second": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "minute": 60_000_000,
    "h": 3_600_000_000,
    "hour": 3_600_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*$", re.IGNORECASE)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

END_OF_TIME = (1 << 63) - 1
"""The boundary of a stream that is finished: after every time and every offset there can be. To be compared with, not
to be added to."""


def duration_us(value: str | int | dt.timedelta, option: str) -> int:
    """Microseconds of "10 s", "5 minutes", a timedelta, or a plain number (for integer time columns)."""
    if isinstance(value, dt.timedelta):
        amount: float = value // dt.timedelta(microseconds=1)
    elif isinstance(value, int) and not isinstance(value, bool):
        amount = value
    elif isinstance(value, str) and (match := _DURATION.match(value)):
        unit = match[2].lower()
        scale = _UNITS_US.get(unit) or (_UNITS_US.get(unit.removesuffix("s")) if len(unit) > 3 else None)
        if scale is None:
            raise OptionError(f"{option}={value!r} has an unknown unit {match[2]!r}", todo=_DURATION_TODO)
        amount = float(match[1]) * scale
    else:
        raise OptionError(f"{option}={value!r} is not a duration", todo=_DURATION_TODO)
    if not 0 <= amount < 1 << 63:
        raise OptionError(f"{option}={value!r} is {'negative' if amount < 0 else 'too long'}", todo=_DURATION_TODO)
    return round(amount)


_DURATION_TODO = 'write it like "500 ms", "10 s", "5 minutes", "7 days" (a plain number for an integer time column)'


def earlier(time: int, duration: int) -> int:
    """A time that much before another, or the first that 64 bits can hold."""
    return max(time - duration, -(1 << 63))


def time_value(value: str | int | dt.datetime, option: str) -> int:
    """The log's integer for a point in time: a datetime, ISO text (UTC unless it says), or a number."""
    if isinstance(value, bool):
        raise OptionError(f"{option}={value!r} is not a point in time", todo=_TIME_TODO)
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value):
        value = int(value)
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise OptionError(f"{option}={value!r} is not a point in time: it has more than 64 bits", todo=_TIME_TODO)
        return value
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise OptionError(f"{option}={value!r} is not a point in time", todo=_TIME_TODO) from None
    if not isinstance(value, dt.datetime):
        raise OptionError(f"{option}={value!r} is not a point in time", todo=_TIME_TODO)
    if value.tzinfo is None:
        value = value.replace(tzinfo=dt.UTC)
    return (value - _EPOCH) // dt.timedelta(microseconds=1)


_TIME_TODO = 'pass a datetime, text like "2026-01-31 12:00:00", or an integer (microseconds, or the number itself)'


def time_text(value: int | None, *, is_timestamp: bool) -> str:
    """A point in time for people."""
    if value is None:
        return "-"
    if value == END_OF_TIME:
        return "the end"
    if not is_timestamp:
        return str(value)
    try:
        moment = _EPOCH + dt.timedelta(microseconds=value)
    except OverflowError:
        return f"{value} µs"
    return moment.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
