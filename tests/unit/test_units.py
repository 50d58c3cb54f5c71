"""Durations and points in time: what is understood, and what is refused with a word on how to write it."""

import datetime as dt

import pytest

from strandline.errors import OptionError
from strandline.units import duration_us, time_text, time_value


@pytest.mark.parametrize(
    ("value", "us"),
    [
        ("10 s", 10_000_000),
        ("10s", 10_000_000),
        (" 500 MS ", 500_000),
        ("1.5 minutes", 90_000_000),
        ("2 hours", 7_200_000_000),
        ("7 days", 604_800_000_000),
        ("1 week", 604_800_000_000),
        ("3 us", 3),
        ("0 s", 0),
        (dt.timedelta(milliseconds=1), 1_000),
        (42, 42),
    ],
)
def test_durations_as_people_write_them(value: str | int | dt.timedelta, us: int) -> None:
    assert duration_us(value, "lateness") == us


@pytest.mark.parametrize(
    "value",
    [
        *("", "ten seconds", "10", "10 parsecs", "-1 s", "1 s 2 s", "10 ss", "9" * 400 + " s"),
        *(-1, 1 << 63, True, None, 1.5, dt.timedelta(seconds=-1)),
    ],
)
def test_a_duration_that_makes_no_sense_is_refused_with_its_option(value: object) -> None:
    with pytest.raises(OptionError, match="lateness=") as refused:
        duration_us(value, "lateness")  # type: ignore[arg-type]
    assert "10 s" in refused.value.todo


@pytest.mark.parametrize(
    ("value", "time"),
    [
        (5, 5),
        (-5, -5),
        ("5", 5),
        ("-5", -5),
        ("1970-01-01", 0),
        ("1970-01-01 00:00:01", 1_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31 23:59:59.999999", -1),
        (dt.datetime(1970, 1, 1), 0),
        (dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), 0),
    ],
)
def test_points_in_time_as_people_write_them(value: str | int | dt.datetime, time: int) -> None:
    assert time_value(value, "since") == time


@pytest.mark.parametrize("value", ["", "yesterday", "2026-13-01", True, None, 1.5, dt.date(2026, 1, 1)])
def test_a_point_in_time_that_makes_no_sense_is_refused_with_its_option(value: object) -> None:
    with pytest.raises(OptionError, match="since=") as refused:
        time_value(value, "since")  # type: ignore[arg-type]
    assert "2026-01-31" in refused.value.todo


def test_times_are_shown_as_their_column_has_them() -> None:
    assert time_text(None, is_timestamp=True) == "-"
    assert time_text(1_500_000, is_timestamp=True) == "1970-01-01 00:00:01.500"
    assert time_text(1_500_000, is_timestamp=False) == "1500000"
    assert time_text(1 << 62, is_timestamp=True) == f"{1 << 62} µs"


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, "9" * 19])
def test_a_time_that_64_bits_cannot_hold_is_refused(value: int | str) -> None:
    with pytest.raises(OptionError, match="more than 64 bits"):
        time_value(value, "since")
