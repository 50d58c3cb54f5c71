"""Durations and points in time: what is understood, and what is refused with a word on how to write it."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import strandline as sl
from strandline.checkpoint.policy import cec, instant, partial
from strandline.errors import OptionError
from strandline.operators.aggregate.windows import session_window, time_window
from strandline.spark.query.trigger import plain_trigger
from strandline.units import Duration, duration_us, seconds, time_text


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
        (dt.timedelta(days=100_000), 8_640_000_000_000_000),
        (pd.Timedelta("1.5 s"), 1_500_000),
        (pd.Timedelta(1_999, "ns"), 1),
        (np.timedelta64(10, "s"), 10_000_000),
        (np.timedelta64(2, "D"), 172_800_000_000),
        (np.timedelta64(5_000, "ns"), 5),
        (np.timedelta64(3, "25us"), 75),
        (42, 42),
        (np.int32(42), 42),
    ],
)
def test_durations_as_people_write_them(value: Duration, us: int) -> None:
    assert duration_us(value, "lateness") == us


@pytest.mark.parametrize(
    "value",
    [
        *("", "ten seconds", "10", "10 parsecs", "-1 s", "1 s 2 s", "10 ss", "9" * 400 + " s"),
        *(-1, 1 << 63, True, None, 1.5, dt.timedelta(seconds=-1), dt.timedelta.max),
        *(np.timedelta64(1, "M"), np.timedelta64(5), np.timedelta64("NaT"), np.timedelta64(-1, "s"), pd.NaT, np.True_),
        *(dt.time(1), dt.datetime(2026, 1, 1), np.datetime64("2026-01-01"), np.float64(1.5)),
    ],
)
def test_a_duration_that_makes_no_sense_is_refused_with_its_option(value: object) -> None:
    with pytest.raises(OptionError, match="lateness=") as refused:
        duration_us(value, "lateness")  # type: ignore[arg-type]
    assert "10 s" in refused.value.todo


def test_a_negative_duration_is_called_negative() -> None:
    for value in ("-1 s", "-1s", -1, dt.timedelta(seconds=-1)):
        with pytest.raises(OptionError, match="is negative"):
            duration_us(value, "restart")


def feed(**options: Any) -> Any:
    return sl.testing.stream("id long, at timestamp", key="id", time="at", lateness="1 s", **options)


@pytest.mark.parametrize(
    ("spelling", "make"),
    [
        ("cec: interval=5", lambda: cec(interval=5, period=100)),
        ("cec: period=100", lambda: cec(interval="5 ms", period=100)),
        ("cec: recover_within=2", lambda: cec(recover_within=2)),
        ("instant: every=10", lambda: instant(10)),
        ("partial: every=10", lambda: partial(10)),
        ("duration=3", lambda: sl.testing.HandClock().advance(3)),
        ("heartbeat=5", lambda: feed(heartbeat=5)),
        ("max_ahead=5", lambda: feed(max_ahead=5)),
        ("wait=3", lambda: sl.stream("nowhere", wait=3)),
        ("patience=3", lambda: sl.replicas("a", "b", patience=3)),
    ],
)
def test_a_plain_number_is_refused_where_the_clock_measures(spelling: str, make: Callable[[], object]) -> None:
    with pytest.raises(OptionError, match=f"{spelling} has no unit: it is a time of the clock") as refused:
        make()
    name, _, value = spelling.rpartition(" ")[2].partition("=")
    assert refused.value.todo.startswith(f'write {name}="{value} s"')


def test_zero_needs_no_unit() -> None:
    with pytest.raises(OptionError, match="instant: every=0 is not a duration") as refused:
        instant(0)
    assert refused.value.todo == "use more than zero"
    sl.testing.HandClock().advance(0)


def test_a_heartbeat_of_the_test_kit_has_the_limits_of_a_source() -> None:
    for heartbeat in ("0 s", "999 us"):
        with pytest.raises(OptionError, match="heartbeat is shorter than a millisecond"):
            feed(heartbeat=heartbeat)
    assert feed(heartbeat=dt.timedelta(seconds=1)).clock


def test_times_are_shown_as_their_column_has_them() -> None:
    assert time_text(None, is_timestamp=True) == "-"
    assert time_text(1_500_000, is_timestamp=True) == "1970-01-01 00:00:01.500"
    assert time_text(1_500_000, is_timestamp=False) == "1500000"
    assert time_text(1 << 62, is_timestamp=True) == f"{1 << 62} µs"


@pytest.mark.parametrize("value", [2, 2.0, "2 s", dt.timedelta(seconds=2), np.timedelta64(2, "s"), pd.Timedelta("2s")])
def test_where_a_number_is_seconds_any_duration_will_do(value: float | Duration) -> None:
    assert seconds(value, "timeout") == 2.0


@pytest.mark.parametrize("second", [dt.timedelta(seconds=1), pd.Timedelta("1s"), np.timedelta64(1, "s")])
def test_windows_policies_and_triggers_take_a_timedelta_as_they_take_text(second: Duration) -> None:
    assert time_window(second * 10, advance=second) == time_window("10 s", advance="1 s")
    assert session_window(second) == session_window("1 s")
    assert cec(interval=second, period=second * 5) == cec(interval="1 s", period="5 s")
    assert cec(recover_within=second * 9) == cec(recover_within="9 s")
    assert instant(second) == instant("1 s")
    assert plain_trigger(second) == "1000000 us"


@pytest.mark.parametrize("trigger", [200, np.int64(200), 0.2, "often", pd.NaT])
def test_a_trigger_that_says_no_interval_is_refused(trigger: Any) -> None:
    with pytest.raises(OptionError, match="trigger=") as refused:
        plain_trigger(trigger)
    assert "200 ms" in refused.value.todo
