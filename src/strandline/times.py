"""Points in time, as people write them, as the log's integers.

A time column is one of three kinds, and says what a time without a zone means. Of a `timestamp` such a time is on the
clock of a zone: the session's, as Spark has it, or this machine's where there is no session. A `timestamp_ntz` has no
zone at all: what is said is what is stored. Of an integer column a time is a number and nothing else.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Callable
from typing import Literal

import numpy as np

from strandline.errors import OptionError
from strandline.units import whole_number

Time = str | int | dt.date | np.datetime64
"""A `datetime` is a `date`, and a `pandas.Timestamp` is a `datetime`."""
TimeKind = Literal["timestamp", "timestamp_ntz", "integer"]
Zone = dt.tzinfo | Callable[[], dt.tzinfo | None] | None
"""A time zone, or who is to be asked for it if it matters; None is this machine's."""

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_US = dt.timedelta(microseconds=1)
_NUMBER = re.compile(r"[+-]?\d+")
_DATE = re.compile(r"\d{4}|\d{8}")
"""A year, or a day without hyphens: not meant as microseconds."""
_SHORT_ZONES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
"""The meaning of Java's, and so Spark's, short names of zones."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
_TODO = 'pass a datetime, text like "2026-01-31 12:00:00", or an integer (microseconds, or the number itself)'


def time_value(value: Time, option: str, kind: TimeKind, zone: Zone = None) -> int:
    """Returns the log's integer for a point in time; raises `OptionError` if it is none of this kind.

    A time without a zone is on the clock of `zone`, of None on this machine's. Of times between two microseconds the
    later one is meant: it divides the tuples just as they do.
    """
    if isinstance(value, str) and kind != "integer" and _DATE.fullmatch(value.strip()):
        raise OptionError(
            f"{option}={value!r} may be a date or a number of microseconds",
            todo='write the date with hyphens, "2026-01-31", or pass the number as an int',
        )
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        value = int(value)
    if (number := whole_number(value)) is not None:
        if not -(1 << 63) <= number < 1 << 63:
            raise OptionError(f"{option}={value!r} is not a point in time: it has more than 64 bits", todo=_TODO)
        return number
    moment, rest_us = _moment(value, option)
    if kind == "integer":
        raise OptionError(
            f"{option}={value!r} is a time of a clock, but the time column of this stream holds integers",
            todo="pass an integer of that column",
        )
    if kind == "timestamp_ntz":
        if moment.tzinfo is not None:
            raise OptionError(
                f"{option}={value!r} has a time zone, but the time column of this stream has none (timestamp_ntz)",
                todo="leave the zone out",
            )
        moment = moment.replace(tzinfo=dt.UTC)
    elif moment.tzinfo is None:
        known = zone() if callable(zone) else zone
        moment = moment.replace(tzinfo=known or _machine_zone(moment))
    return (moment - EPOCH) // _US + rest_us


def zone_named(name: str) -> dt.tzinfo:
    """Returns the time zone of this name in Spark: "Europe/Berlin", "UTC", "Z", "+02:00", "GMT+2"."""
    if name == "Z":
        return dt.UTC
    if match := _OFFSET.fullmatch(name):
        sign, *parts = match.groups(default="0")
        hours, minutes, seconds = (int(part) for part in parts)
        offset = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if offset < dt.timedelta(days=1):
            return dt.timezone(-offset if sign == "-" else offset)
    try:
        return zoneinfo.ZoneInfo(_SHORT_ZONES.get(name, name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise OptionError(
            f"Python knows no time zone {name!r}, in which a time without one would be read",
            todo='write the zone with the time, for example "2026-01-31 12:00:00+01:00", or install the package tzdata',
        ) from None


def _moment(value: object, option: str) -> tuple[dt.datetime, int]:
    """Returns a datetime, and the microsecond to add if the value has nanoseconds."""
    refused = OptionError(f"{option}={value!r} is not a point in time", todo=_TODO)
    if isinstance(value, str):
        try:
            return dt.datetime.fromisoformat(value.strip()), 0
        except ValueError:
            raise refused from None
    if isinstance(value, np.datetime64):
        if np.isnat(value) or np.datetime_data(value.dtype)[0] == "generic":
            raise refused
        us = value.astype("datetime64[us]")
        found = us.item()
        if not isinstance(found, dt.datetime):  # beyond the years 1 to 9999
            raise refused
        return found, int(us < value)
    if isinstance(value, dt.datetime):
        if value != value:  # NaT of pandas, which is a datetime
            raise refused
        return _plain(value), int(getattr(value, "nanosecond", 0) > 0)
    if isinstance(value, dt.date):
        return dt.datetime.combine(value, dt.time()), 0
    raise refused


def _plain(value: dt.datetime) -> dt.datetime:
    """Makes a plain datetime of one of pandas, which counts nanoseconds and ends in 2262."""
    return dt.datetime.combine(value.date(), value.timetz())


def _machine_zone(moment: dt.datetime) -> dt.timezone:
    """Returns the difference of this machine's clock from UTC at a time on it."""
    day = dt.timedelta(days=2)
    # Python reckons with a day more or less, which the first and the last one do not have.
    near = min(max(moment, dt.datetime.min + day), dt.datetime.max - day)
    offset = near.replace(fold=moment.fold).astimezone().utcoffset()
    assert offset is not None
    return dt.timezone(offset)
