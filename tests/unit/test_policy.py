"""Policies: what they accept, and when they ask for footprints."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from strandline.checkpoint.policy import Policy, cec, instant, none, partial
from strandline.errors import OptionError
from strandline.log.operator_state.standing import FOOTPRINT_NS, Standing

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
        ({"failures_per_day": 0}, "failures_per_day=0 is not a number from 1e-12 to 1e+12"),
        ({"failures_per_day": math.inf}, "failures_per_day=inf is not a number from 1e-12 to 1e+12"),
        ({"failures_per_day": 1e-320, "balance": 1e-10}, "failures_per_day=1e-320 is not a number from"),
        ({"failures_per_day": 10**400}, "is not a number from"),
        ({"failures_per_day": math.nan}, "failures_per_day=nan is not a number from 1e-12 to 1e+12"),
        ({"failures_per_day": "daily"}, "failures_per_day='daily' is not a number from 1e-12 to 1e+12"),
        ({"balance": -1, "failures_per_day": 1}, "balance=-1 is not a number from 1e-12 to 1e+12"),
        ({"balance": True}, "balance=True is not a number from 1e-12 to 1e+12"),
        ({"failures_per_day": 1, "recover_within": "2 s"}, "both set the length of a recovery"),
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


def test_absolute_targets_are_what_they_are_while_they_can_be_met() -> None:
    for open_windows in (0, 7, 100):
        limits = cec(extent=100, replay=50).limits(open_windows, 5, STANDING)
        assert (limits.extent, limits.replay, limits.cost) == (100, 50, math.inf)
        assert limits.budget > 10**18
    assert cec(extent=0, replay=0).limits(0, 0, None).extent == 0


def test_an_extent_below_the_open_windows_is_twice_their_number_and_said() -> None:
    asked = cec(extent=100).asked(101, 5, STANDING)
    assert asked.limits.extent == 202
    (missed,) = asked.missed
    assert missed.option == "extent"
    assert "extent=100 cannot be met" in missed.text
    assert "holds 202" in missed.text
    assert cec(extent=100).asked(100, 5, STANDING).missed == ()


def test_tuples_that_come_back_with_the_replay_need_no_room_in_the_extent() -> None:
    asked = cec(extent=100).asked(10**6, 5, STANDING, footprints=100)
    assert (asked.limits.extent, asked.missed) == (100, ())


def test_a_replay_below_a_batch_is_the_batch_and_said() -> None:
    asked = cec(replay=100).asked(5, 5, STANDING, tuples=101)
    assert asked.limits.replay == 101
    (missed,) = asked.missed
    assert missed.option == "replay"
    assert "replay=100 cannot be met by batches of 101 tuples" in missed.text
    assert cec(replay=100).asked(5, 5, STANDING, tuples=100).missed == ()
    nothing_was_open = replace(STANDING, open=0)
    assert cec(replay=100).asked(5, 5, nothing_was_open, tuples=101).missed == ()


def test_a_user_who_has_set_no_target_gets_no_warning_about_one() -> None:
    asked = cec().asked(5, 5, STANDING, tuples=2_000_000)
    assert (asked.limits.replay, asked.missed) == (2_000_000, ())


def test_a_target_time_below_the_reading_of_the_windows_is_twice_that_and_said() -> None:
    policy, measured = cec(recover_within="1 s"), replace(STANDING, extent_ns=1_000.0, replay_ns=100.0)
    asked = policy.asked(10**7, 5, measured, tuples=1_000)
    assert asked.limits.cost == 2 * 10**10 + 10**5
    (missed,) = asked.missed
    assert "to read the 10,000,000 footprints" in missed.text
    assert policy.asked(10**7, 5, STANDING, tuples=1_000).missed == (), "said though nothing was measured"
    assert policy.asked(10, 5, measured, tuples=1_000).limits.cost == policy.allowed_s(measured) * 1e9


def test_the_budget_is_an_interval_of_every_period_at_the_measured_price() -> None:
    policy = cec(extent=1, interval="5 ms", period="100 ms")
    a_period = int(5_000 * 1_000 / FOOTPRINT_NS)
    assert policy.limits(9, 0, None).budget == a_period
    assert policy.limits(9, 100_000, None).budget == a_period
    assert policy.limits(9, 1_000_000, None).budget == 10 * a_period
    dear = replace(STANDING, footprint_ns=20_000.0, credit_us=2_000.0)
    assert policy.limits(9, 0, dear).budget == 100
    assert policy.limits(9, 20_000, dear).budget == 150
    assert policy.limits(9, 20_000, replace(dear, credit_us=-1_000.0)).budget == 0
    assert policy.limits(9, 100_000, replace(dear, footprint_ns=1e9)).budget == 1
    assert cec(extent=1, interval=timedelta(seconds=1), period=timedelta(seconds=1)).limits(9, 0, None).budget > 10**5


def test_a_balance_asks_for_the_recovery_at_which_both_costs_are_equal() -> None:
    policy = cec(failures_per_day=24, balance=10)
    measured = replace(STANDING, extent_ns=1_000.0, replay_ns=100.0, footprint_ns=2_000.0, growth=0.02)
    limits = policy.limits(1_000, 5, measured)
    assert (limits.extent, limits.replay, limits.extent_cost, limits.replay_cost) == (math.inf, math.inf, 1e3, 1e2)
    beyond_s = limits.cost / 1e9 - 1_000 * 1e-6
    age_s, failures_a_second = beyond_s / 0.02, 10 * 24 / 86_400
    assert failures_a_second * age_s * beyond_s == pytest.approx(1_000 * 2e-6)
    assert policy.limits(1_000, 5, replace(measured, growth=0.0)).cost > limits.cost, "more is saved before it is known"


def test_a_balance_goes_with_targets_that_are_held_in_any_case() -> None:
    assert cec(balance=2) == cec(failures_per_day=1, balance=2)
    assert cec(failures_per_day=3).extent_ratio is None
    limits = cec(extent="2x", replay=50, failures_per_day=1).limits(10, 0, STANDING)
    assert (limits.extent, limits.replay) == (20, 50)
    assert 0 < limits.cost < math.inf
    assert repr(cec(replay=5, failures_per_day=1)) == "cec(replay=5, failures_per_day=1, balance=1)"


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


def test_a_target_time_that_cannot_be_met_does_not_save_every_window_in_every_batch() -> None:
    assert cec(recover_within="1 ms").limits(10, 0, None).cost == 2 * 10 * 900


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


def test_numbers_of_numpy_are_numbers() -> None:
    one, five = np.int64(1), np.int64(5)
    assert cec(extent=five, replay=five) == cec(extent=5, replay=5)
    assert repr(cec(extent=five, replay=five)) == repr(cec(extent=5, replay=5))
    assert cec(slow="1 s", at_most=five) == cec(slow="1 s", at_most=5)  # type: ignore[arg-type]
    assert cec(failures_per_day=one, balance=np.float32(2)) == cec(failures_per_day=1, balance=2)


def test_policies_are_values() -> None:
    assert cec(extent="2x", replay=5) == cec(extent=" 2 X", replay=5)
    assert len({cec(), cec(), none(), none(), instant("1 s"), instant(timedelta(seconds=1))}) == 3


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
