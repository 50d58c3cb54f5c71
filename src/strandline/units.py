"""Durations as people write them, and both durations and times as the log keeps them.

The log keeps every time as one 64-bit integer: microseconds since 1970 UTC for timestamps, the number itself
for integer time columns. What people write for a point in time is in `times`.
"""

from __future__ import annotations

import datetime as dt
import operator
import re
from collections.abc import Iterable
from typing import Final, Literal

import numpy as np

from strandline.errors import OptionError

Duration = str | int | dt.timedelta | np.timedelta64
"""A `pandas.Timedelta` is a `timedelta`."""

CONSUMED: Final = "consumed"
Retention = int | Literal["consumed"]
"""The past that a writer keeps, as the log has it: a span of time, or all that its consumers have not passed."""

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
_DURATION = re.compile(r"^\s*(-?\d+(?:\.\d+)?)\s*([a-z]+)\s*$", re.IGNORECASE)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

END_OF_TIME = (1 << 63) - 1
"""The boundary of a stream that is finished: after every time and every offset there can be. To be compared with, not
to be added to."""

TIME_MAX = 1 << 62
"""Entry points let in times up to this far from 1970 (numbers: from 0), and every operator takes them: what it adds to
them fits 64 bits."""


def duration_us(value: Duration, option: str) -> int:
    """Returns the microseconds of "10 s", "5 minutes", a timedelta, or a plain number (for integer time columns)."""
    if isinstance(value, str) and (match := _DURATION.match(value)):
        unit = match[2].lower()
        scale = _UNITS_US.get(unit) or (_UNITS_US.get(unit.removesuffix("s")) if len(unit) > 3 else None)
        if scale is None:
            raise OptionError(f"{option}={value!r} has an unknown unit {match[2]!r}", todo=_DURATION_TODO)
        amount: float | None = float(match[1]) * scale
    elif isinstance(value, (dt.timedelta, np.timedelta64)):
        amount = _span_us(value)
    else:
        amount = whole_number(value)
    if amount is None:
        raise OptionError(f"{option}={value!r} is not a duration", todo=_DURATION_TODO)
    if not 0 <= amount < 1 << 63:
        raise OptionError(f"{option}={value!r} is {'negative' if amount < 0 else 'too long'}", todo=_DURATION_TODO)
    return round(amount)


def positive_us(value: Duration, option: str) -> int:
    """Returns the microseconds of a duration that is longer than zero; raises OptionError otherwise."""
    amount = duration_us(value, option)
    if amount < 1:
        raise OptionError(f"{option}={value!r} is not a duration", todo="use more than zero")
    return amount


def clock_us(value: Duration, option: str) -> int:
    """Returns the microseconds of a duration that the clock measures; raises OptionError for a plain number but 0."""
    number = whole_number(value)
    if number is not None and number > 0:
        name = option.rpartition(" ")[2]
        raise OptionError(
            f"{option}={value!r} has no unit: it is a time of the clock, not of the tuples",
            todo=f'write {name}="{value} s", or whatever unit it is: "{value} ms", "{value} min"',
        )
    return duration_us(value, option)


def positive_clock_us(value: Duration, option: str) -> int:
    """Returns the microseconds of a duration longer than zero that the clock measures; raises OptionError otherwise."""
    clock_us(value, option)
    return positive_us(value, option)


def retention_of(value: Duration | None) -> Retention | None:
    """Returns the option `retention=` as the log keeps it; raises OptionError if it is neither a span nor "consumed".

    >>> retention_of("7 days"), retention_of("consumed"), retention_of(None)
    (604800000000, 'consumed', None)
    """
    if value is None:
        return None
    return CONSUMED if value == CONSUMED else duration_us(value, "retention")


def has_unit(value: Duration | None) -> bool:
    """Returns whether a duration was given with a unit, or not at all: a plain number is for integer time columns."""
    return whole_number(value) is None


def require_unit(value: Duration | tuple[Duration, Duration] | None, spelling: str) -> None:
    """Raises OptionError for a plain number where times are timestamps: it would mean microseconds."""
    for one in value if isinstance(value, (tuple, list)) else (value,):
        if whole_number(one):
            raise OptionError(
                f"{spelling}={value!r} has no unit, and the time column is a timestamp",
                todo=f'write "{one} s", or whatever unit it is: "{one} ms", "{one} min"; a stream that was made with '
                f'this number has "{one} us"',
            )


def _span_us(value: dt.timedelta | np.timedelta64) -> int | None:
    """Returns whole microseconds; None for NaT, and for months, which have no length."""
    if isinstance(value, np.timedelta64):
        unit, count = np.datetime_data(value.dtype)
        if np.isnat(value) or unit not in _NUMPY_UNITS_NS:
            return None
        return int(value.astype(np.int64)) * count * _NUMPY_UNITS_NS[unit] // 1_000
    return value // dt.timedelta(microseconds=1)


_NUMPY_UNITS_NS = {"ns": 1} | {unit: 1_000 * _UNITS_US[unit] for unit in ("us", "ms", "s", "m", "h")}
_NUMPY_UNITS_NS |= {"D": 1_000 * _UNITS_US["day"], "W": 1_000 * _UNITS_US["week"]}


def whole_number(value: object) -> int | None:
    """Returns the value as an integer if it is one of Python or NumPy, and no truth value; else None."""
    if isinstance(value, (bool, np.bool_, np.datetime64, np.timedelta64)):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def seconds(value: float | Duration, option: str) -> float:
    """Returns the seconds of a duration where a plain number is seconds, as in Spark."""
    if isinstance(value, (str, dt.timedelta, np.timedelta64)):
        return duration_us(value, option) / 1e6
    return float(value)


_DURATION_TODO = (
    'write it like "500 ms", "10 s", "5 minutes", "7 days", or pass a timedelta (a plain number for an integer time '
    "column)"
)


def latest(*times: int | None) -> int | None:
    """Returns the last of the times that are known; None if none is."""
    return max((time for time in times if time is not None), default=None)


def first_of_all(times: Iterable[int | None]) -> int | None:
    """Returns the first of the times; None if one of them is not known, or if there is none."""
    every = list(times)
    known = [time for time in every if time is not None]
    return min(known) if known and len(known) == len(every) else None


def is_before(time: int | None, until: int | None) -> bool:
    """Returns whether a time is before another; nothing is before None, and None is before everything else."""
    return until is not None and (time is None or time < until)


def earlier(time: int, duration: int) -> int:
    """Returns the time that much before another, or the first that 64 bits can hold."""
    return max(time - duration, -(1 << 63))


def time_text(value: int | None, *, is_timestamp: bool) -> str:
    """Returns a point in time as text for people."""
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
