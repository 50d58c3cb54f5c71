"""Points in time: what is understood, on whose clock, and what is refused with a word on how to write it."""

import datetime as dt
import time
from collections.abc import Callable
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from strandline.errors import OptionError
from strandline.times import Time, TimeKind, time_value, zone_named

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_US = 3_600_000_000
NOON = 1_767_265_200_000_000
"""2026-01-01 12:00 in Berlin."""


@pytest.fixture
def machine_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("value", "us"),
    [
        (5, 5),
        (np.int64(5), 5),
        ("-5", -5),
        ("+30000000", 30_000_000),  # how a time goes through Spark's options: with a sign nobody takes it for a date
        ("1970-01-01", 0),
        (" 1970-01-01 00:00:01 ", 1_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31 23:59:59.999999", -1),
        (dt.datetime(1970, 1, 1), 0),
        (dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), 0),
        (dt.date(1970, 1, 2), 24 * HOUR_US),
        (pd.Timestamp("1970-01-01 00:00:01"), 1_000_000),
        (pd.Timestamp("1970-01-01 01:00", tz="Europe/Berlin"), 0),
        (np.datetime64("1970-01-02"), 24 * HOUR_US),
        (np.datetime64("1970-01-01T00:00:00.000007"), 7),
        (dt.datetime.min, -62_135_596_800_000_000),
        (dt.datetime.max, 253_402_300_799_999_999),
    ],
)
def test_points_in_time_as_people_write_them(value: Time, us: int) -> None:
    assert time_value(value, "since", "timestamp", dt.UTC) == us


SAID_WITHOUT_A_ZONE = [
    "2026-01-01 12:00",
    dt.datetime(2026, 1, 1, 12),
    pd.Timestamp("2026-01-01 12:00"),
    np.datetime64("2026-01-01T12:00"),
]


@pytest.mark.parametrize("value", SAID_WITHOUT_A_ZONE)
def test_a_time_without_a_zone_is_on_the_clock_of_the_zone_that_is_given(value: Time) -> None:
    assert time_value(value, "since", "timestamp", BERLIN) == NOON
    assert time_value(value, "since", "timestamp", dt.UTC) == NOON + HOUR_US


@pytest.mark.parametrize("value", SAID_WITHOUT_A_ZONE)
def test_without_any_zone_it_is_on_the_clock_of_the_machine(value: Time, machine_in: Callable[[str], None]) -> None:
    machine_in("Europe/Berlin")
    assert time_value(value, "since", "timestamp") == NOON
    machine_in("America/New_York")
    assert time_value(value, "since", "timestamp") == NOON + 6 * HOUR_US


@pytest.mark.parametrize("value", SAID_WITHOUT_A_ZONE)
def test_a_column_without_a_zone_takes_what_is_said_as_it_is(value: Time, machine_in: Callable[[str], None]) -> None:
    machine_in("Asia/Tokyo")
    assert time_value(value, "since", "timestamp_ntz", BERLIN) == NOON + HOUR_US
    assert time_value(value, "since", "timestamp_ntz") == NOON + HOUR_US


@pytest.mark.parametrize("value", ["2026-01-01T12:00Z", dt.datetime(2026, 1, 1, tzinfo=BERLIN)])
def test_a_zone_is_refused_for_a_column_without_one(value: Time) -> None:
    with pytest.raises(OptionError, match=r"since=.* has a time zone, but the time column of this stream has none"):
        time_value(value, "since", "timestamp_ntz")


@pytest.mark.parametrize("value", [*SAID_WITHOUT_A_ZONE, dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=BERLIN)])
def test_a_time_of_a_clock_is_refused_for_a_column_of_integers(value: Time) -> None:
    with pytest.raises(OptionError, match=r"since=.* but the time column of this stream holds integers"):
        time_value(value, "since", "integer")
    assert time_value("12", "since", "integer") == 12


@pytest.mark.parametrize("moment", [dt.datetime, pd.Timestamp])
def test_an_hour_that_comes_twice_is_the_first_one_unless_fold_says_the_second(
    moment: type[dt.datetime], machine_in: Callable[[str], None]
) -> None:
    machine_in("Europe/Berlin")
    first = 1_792_888_200_000_000  # 2026-10-25 02:30, summer time
    twice = moment(2026, 10, 25, 2, 30)
    for zone in (BERLIN, None):
        assert time_value(twice, "since", "timestamp", zone) == first
        assert time_value(twice.replace(fold=1), "since", "timestamp", zone) == first + HOUR_US
    assert time_value("2026-10-25 02:30", "since", "timestamp", BERLIN) == first


def test_an_hour_that_never_comes_is_the_one_after_it_as_in_spark(machine_in: Callable[[str], None]) -> None:
    machine_in("Europe/Berlin")
    half_past_three = time_value("2026-03-29 03:30", "since", "timestamp", BERLIN)
    for zone in (BERLIN, None):
        assert time_value("2026-03-29 02:30", "since", "timestamp", zone) == half_past_three


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_the_first_and_the_last_time_of_all_are_times_on_any_machine(
    zone: str, machine_in: Callable[[str], None]
) -> None:
    machine_in(zone)
    assert time_value(dt.datetime.min, "since", "timestamp") < -62_135_000_000_000_000
    assert time_value(dt.datetime.max, "since", "timestamp") > 253_402_200_000_000_000


@pytest.mark.parametrize("value", [pd.Timestamp("1970-01-01 00:00:00.000001001"), np.datetime64(1_001, "ns")])
def test_between_two_microseconds_the_later_one_divides_the_tuples_the_same(value: Time) -> None:
    assert time_value(value, "since", "timestamp", dt.UTC) == 2


@pytest.mark.parametrize(
    "value",
    [
        *("", "yesterday", "2026-13-01", True, None, 1.5, dt.time(1), dt.timedelta(1), np.float64(1.0)),
        *(pd.NaT, np.datetime64("NaT"), np.datetime64(300_000, "Y"), np.timedelta64(5, "s")),
    ],
)
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "integer"])
def test_a_point_in_time_that_makes_no_sense_is_refused_with_its_option(value: object, kind: TimeKind) -> None:
    with pytest.raises(OptionError, match="since=") as refused:
        time_value(value, "since", kind)  # type: ignore[arg-type]
    assert "2026-01-31" in refused.value.todo


@pytest.mark.parametrize("value", ["2026", "20260131", " 2026 "])
def test_text_that_may_be_a_date_is_not_taken_for_microseconds(value: str) -> None:
    with pytest.raises(OptionError, match="may be a date"):
        time_value(value, "since", "timestamp")
    assert time_value("2026", "since", "integer") == 2026


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63) - 1, "9" * 19])
def test_a_time_that_64_bits_cannot_hold_is_refused(value: int | str) -> None:
    with pytest.raises(OptionError, match="more than 64 bits"):
        time_value(value, "since", "timestamp")


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("UTC", 0),
        ("Z", 0),
        ("+02:00", 2),
        ("-8", -8),
        ("+0530", 5.5),
        ("GMT+2", 2),
        ("UTC-03:00", -3),
        ("Etc/GMT+1", -1),
        ("PST", -8),
        ("JST", 9),
    ],
)
def test_zones_by_the_names_that_spark_takes(name: str, hours: float) -> None:
    assert dt.datetime(2026, 1, 1, tzinfo=zone_named(name)).utcoffset() == dt.timedelta(hours=hours)


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "+99:00", "../etc/passwd"])
def test_a_zone_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match="Python knows no time zone"):
        zone_named(name)


def test_a_zone_is_asked_for_only_if_it_matters() -> None:
    def unknown() -> dt.tzinfo:
        return zone_named("Mars/Olympus")

    assert time_value("1970-01-01T00:00Z", "since", "timestamp", unknown) == 0
    assert time_value(7, "since", "timestamp", unknown) == 7
    with pytest.raises(OptionError, match="Mars"):
        time_value("1970-01-01", "since", "timestamp", unknown)
