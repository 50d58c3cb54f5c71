"""Policies: what they accept, and when they ask for footprints."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from strandline.checkpoint.policy import FOOTPRINT_NS, Policy, cec, instant, none, partial
from strandline.errors import OptionError
from strandline.log.operator_state.standing import Standing

STANDING = Standing(input=100, commit=3, open=10, oldest=40, extent=30, replay=60)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"extent": -1}, "extent=-1 is not understood"),
        ({"extent": True}, "extent=True is not understood"),
        ({"extent": 1.5}, "extent=1.5 is not understood"),
        ({"extent": "2"}, "extent='2' is not understood"),
        ({"extent": "0.5x"}, "extent='0.5x' is not understood"),
        ({"extent": "x"}, "extent='x' is not understood"),
        ({"extent": "-2x"}, "extent='-2x' is not understood"),
        ({"replay": -1}, "replay=-1 is not a number of tuples"),
        ({"replay": "many"}, "replay='many' is not a number of tuples"),
        ({"replay": True}, "replay=True is not a number of tuples"),
        ({"replay": 2.0}, "replay=2.0 is not a number of tuples"),
        ({"interval": "5 ms"}, "interval= and period= belong together"),
        ({"period": "5 ms"}, "interval= and period= belong together"),
        ({"interval": "0 ms", "period": "5 ms"}, "is not a duration"),
        ({"interval": "6 ms", "period": "5 ms"}, "interval= is longer than period="),
        ({"interval": "often", "period": "5 ms"}, "interval"),
        ({"recover_within": "2 s", "extent": "2x"}, "sets extent and replay by itself"),
        ({"recover_within": "2 s", "replay": 7}, "sets extent and replay by itself"),
        ({"recover_within": "0 s"}, "is not a duration"),
        ({"recover_within": "soon"}, "recover_within"),
    ],
)
def test_what_cec_cannot_do_is_refused_with_a_way_out(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as raised:
        cec(**options)
    assert message in str(raised.value)
    assert raised.value.todo


@pytest.mark.parametrize("every", ["0 s", "-1 s", "sometimes", 0])
def test_instant_wants_a_duration(every: Any) -> None:
    with pytest.raises(OptionError, match="instant: every"):
        instant(every)


def test_without_targets_cec_has_some() -> None:
    assert cec() == cec(extent="2x", replay=1_000_000)
    assert cec(extent=5).replay is None
    assert cec(replay=5) == Policy("cec", replay=5)


@pytest.mark.parametrize(("text", "ratio"), [("2x", 2.0), (" 1.5 X ", 1.5), ("1x", 1.0), ("10 x", 10.0)])
def test_an_extent_may_follow_the_number_of_open_windows(text: str, ratio: float) -> None:
    policy = cec(extent=text)
    assert (policy.extent, policy.extent_ratio) == (None, ratio)
    assert policy.limits(0, 0, None).extent == 0
    assert policy.limits(1000, 0, None).extent == 1000 * ratio
    assert policy.limits(1000, 0, None).replay == math.inf


def test_absolute_targets_are_what_they_are_however_many_windows_are_open() -> None:
    for open_windows in (0, 7, 10**9):
        limits = cec(extent=100, replay=50).limits(open_windows, 5, STANDING)
        assert (limits.extent, limits.replay, limits.cost) == (100, 50, math.inf)
        assert limits.budget > 10**18
    assert cec(extent=0, replay=0).limits(5, 0, None).extent == 0


def test_the_budget_is_a_share_of_the_time_since_the_last_step_and_at_least_of_a_period() -> None:
    policy = cec(extent=1, interval="5 ms", period="100 ms")
    a_period = int(5_000 * 1_000 / FOOTPRINT_NS)
    assert policy.limits(9, 0, None).budget == a_period
    assert policy.limits(9, 100_000, None).budget == a_period
    assert policy.limits(9, 1_000_000, None).budget == 10 * a_period
    assert cec(extent=1, interval=timedelta(seconds=1), period=timedelta(seconds=1)).limits(9, 0, None).budget > 10**5


def test_a_target_time_becomes_a_price_per_tuple_from_what_was_measured() -> None:
    policy = cec(recover_within="2 s")
    assumed = policy.limits(10, 0, None)
    assert (assumed.extent, assumed.replay) == (math.inf, math.inf)
    assert 0 < assumed.cost < 2e9
    measured = policy.limits(10, 0, replace(STANDING, extent_ns=7.0, replay_ns=3.0))
    assert (measured.extent_cost, measured.replay_cost) == (7.0, 3.0)
    assert measured.cost == assumed.cost
    unmeasured = policy.limits(10, 0, STANDING)
    assert (unmeasured.extent_cost, unmeasured.replay_cost) == (assumed.extent_cost, assumed.replay_cost)
    assert policy.limits(10, 0, None).budget > 10**18


def test_a_target_time_that_cannot_be_met_asks_for_all_that_can_be_done() -> None:
    assert cec(recover_within="1 ms").limits(10, 0, None).cost == 0


def test_a_target_time_may_have_a_budget() -> None:
    assert cec(recover_within="1 s", interval="1 ms", period="100 ms").limits(10, 0, None).budget == 1_000


def test_a_whole_checkpoint_is_due_at_first_and_then_every_so_often() -> None:
    policy = instant("10 s")
    assert policy.whole_is_due(None, 0)
    assert policy.whole_is_due(STANDING, 0), "no whole checkpoint was made so far"
    saved = replace(STANDING, mode="instant", saved=10, saved_us=1_000_000)
    assert not policy.whole_is_due(saved, 1_000_000)
    assert not policy.whole_is_due(saved, 10_999_999)
    assert policy.whole_is_due(saved, 11_000_000)


def test_a_clock_that_was_set_back_costs_a_checkpoint_and_not_an_hour_without_any() -> None:
    """Clocks of two machines differ by less than the interval, which costs nothing."""
    policy, saved_us = partial("10 s"), 3_600_000_000
    standing = replace(STANDING, mode=policy.mode, saved_us=saved_us)
    assert policy.whole_is_due(standing, saved_us - 3_600_000_000)
    assert policy.is_overdue(standing, saved_us - 10_000_000)
    assert not policy.whole_is_due(standing, saved_us - 9_999_999)


def test_every_policy_says_how_a_recovery_goes() -> None:
    assert [p.mode for p in (cec(), instant("1 s"), none())] == ["eventual", "instant", "none"]


def test_policies_are_values() -> None:
    assert cec(extent="2x", replay=5) == cec(extent=" 2 X", replay=5)
    assert len({cec(), cec(), none(), none(), instant("1 s"), instant(1_000_000)}) == 3


# ---------------------------------------------------------------------- what a recovery takes before it reads anything

STARTED = replace(STANDING, open_s=0.1, start_s=0.9, extent_ns=500.0, replay_ns=100.0)


def test_a_target_holds_in_a_new_process_if_that_leaves_it_time() -> None:
    assert cec(recover_within="3 s").allowed_s(STARTED) == pytest.approx((3 - 1.0) * 0.7)
    assert cec(recover_within="3 s").missed_target(STARTED) is None
    # Before anything is measured, something is assumed.
    assert cec(recover_within="3 s").allowed_s(None) == cec(recover_within="3 s").allowed_s(STANDING)


@pytest.mark.parametrize("target", ["200 ms", "1 s", "1.2 s"])
def test_a_target_below_the_start_of_a_process_holds_in_a_warm_one_and_is_said(target: str) -> None:
    policy = cec(recover_within=target)
    assert policy.recover_within_us is not None
    target_s = policy.recover_within_us / 1e6
    assert policy.allowed_s(STARTED) == pytest.approx((target_s - 0.1) * 0.7)
    said = policy.missed_target(STARTED)
    assert said is not None
    assert "1.00 s (as measured)" in said
    assert "A target of 1.3 s or more can be met" in said
    assert cec(recover_within="1.3 s").missed_target(STARTED) is None


def test_nobody_is_told_of_what_was_not_measured_or_not_asked_for() -> None:
    assert cec(recover_within="1 ms").missed_target(STANDING) is None
    assert cec().missed_target(STARTED) is None


def test_predictions_say_whether_they_were_measured() -> None:
    assert not STANDING.is_measured
    assert STARTED.is_measured
    assert not replace(STARTED, start_s=0.0).is_measured
    # Older versions wrote down what they assumed.
    assert not replace(STARTED, extent_ns=900.0).is_measured
    assert replace(STARTED, extent_ns=900.0, extent=0).is_measured
    assert STARTED.predicted_s == pytest.approx(0.1 + (30 * 500 + 60 * 100) / 1e9)
    assert STARTED.predicted_cold_s == pytest.approx(STARTED.predicted_s + 0.9)


def test_one_slow_start_does_not_count_for_much() -> None:
    first = STANDING.started(1.0)
    assert first.start_s == 1.0
    assert first.started(20.0).start_s == pytest.approx(1.6)
    assert first.started(0.5).start_s == pytest.approx(0.85)
