"""What a policy asks for is done at the price that was measured, or as nearly as it can be; results never differ."""

import json
import warnings
from dataclasses import replace
from random import Random
from unittest import mock

import pytest

from strandline.checkpoint import footprint_cost
from strandline.checkpoint.footprint_cost import FootprintCost
from strandline.checkpoint.policy import Policy, cec
from strandline.checkpoint.saving import Occasion, with_costs
from strandline.clock import ManualClock
from strandline.errors import StrandlineWarning
from strandline.log.operator_state.standing import FOOTPRINT_NS, Standing
from strandline.log.stream import block_sequence
from strandline.running import step
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done
from strandline.spark.operator.recovery_warnings import RecoveryWarnings
from tests.simulation.machines import KeptStates
from tests.support.operator_streams import PLANS, Streams, Tuples

OPEN = PLANS["tumbling count"]
BATCH = 30


class Kept(Streams):
    """An operator with some forty windows of four tuples, over batches of thirty."""

    def __init__(self) -> None:
        self.kept = KeptStates()
        super().__init__(OPEN, self._cache, clock=ManualClock(1_000_000))
        self.tuples = Tuples(Random(3), keys=60, skew=3)

    def _cache(self, _partition: int) -> StateCache:
        return self.kept  # type: ignore[return-value]

    def run(self, policy: Policy, batches: int = 40, seconds: float = 0.1) -> list[Done]:
        done = []
        for _ in range(batches):
            self.clock.advance(seconds)  # type: ignore[attr-defined]
            self.append(self.tuples.rows(BATCH))
            done += [one for batch in self.drain(policy) for one in batch]
        return done


def settled(done: list[Done]) -> list[Done]:
    return done[5:]


def test_an_extent_below_the_open_windows_does_not_save_all_of_them_in_every_batch() -> None:
    for done in (settled(Kept().run(cec(extent=1))), settled(Kept().run(cec(recover_within="1 us")))):
        assert sum(one.checked for one in done) < 0.5 * sum(one.standing.open for one in done)
    done = settled(Kept().run(cec(extent=1)))
    assert {one.missed[0].option for one in done} == {"extent"}
    assert all(one.standing.extent <= 2 * one.standing.open for one in done)


def test_a_replay_below_a_batch_holds_one_batch() -> None:
    done = settled(Kept().run(cec(replay=1)))
    assert {one.missed[0].option for one in done} == {"replay"}
    assert max(one.standing.replay for one in done) == BATCH
    strict = settled(Kept().run(cec(replay=BATCH)))
    assert not any(one.missed for one in strict)
    assert [one.standing.replay for one in strict] == [one.standing.replay for one in done]


def test_results_do_not_depend_on_what_is_measured() -> None:
    policy = cec(extent="1x", interval="1 ms", period="1 s")
    found, plain = [], Kept()
    plain.run(cec())
    for second in (0.0, 1e-6, 1e-3, 10.0):
        shown = iter(i * second for i in range(1 << 30))
        with (
            mock.patch.object(step, "stopwatch_s", lambda shown=shown: next(shown)),
            mock.patch.object(block_sequence, "stopwatch_s", lambda shown=shown: next(shown)),
            mock.patch.object(footprint_cost, "FOOTPRINTS_MIN", 1),
        ):
            case = Kept()
            checked = sum(one.checked for one in case.run(policy))
        assert case.results().equals(plain.results())
        found.append(checked)
    assert found == sorted(found, reverse=True)
    assert found[0] > 4 * found[-1] > 0, "the dearer a footprint, the fewer there are, and never none"


def test_many_small_batches_share_the_interval_of_a_long_period() -> None:
    """Every G-check takes a millisecond: of two seconds of batches they may take a fiftieth, and what was saved up."""
    seconds = {"now": 0.0}
    case = Kept()
    save = type(OPEN.fresh()).save

    def slow(self, position, limits):  # type: ignore[no-untyped-def]
        saved = save(self, position, limits)
        seconds["now"] += 1e-3 * saved.rows
        return saved

    def now_s() -> float:
        return seconds["now"]

    with (
        mock.patch.object(step, "stopwatch_s", now_s),
        mock.patch.object(block_sequence, "stopwatch_s", now_s),
        mock.patch.object(type(OPEN.fresh()), "save", slow),
        mock.patch.object(footprint_cost, "FOOTPRINTS_MIN", 1),
    ):
        case.run(cec(extent="1x"), batches=10)  # measures the price
        done = case.run(cec(extent="1x", interval="20 ms", period="1 s"), batches=200, seconds=0.01)
    spent_s = sum(one.checked for one in done) * 1e-3
    assert 0.04 <= spent_s <= 0.02 + 2.0 * 0.02 + 0.02
    assert spent_s == pytest.approx(sum(one.footprint_s for one in done))
    assert done[-1].standing.footprint_ns == pytest.approx(1e6, rel=0.1)


@pytest.mark.parametrize(("windows", "each_s"), [(50, 0.04), (99, 0.04), (120, 0.04), (50, 0.2), (1, 10.0), (1, 0.1)])
def test_footprints_that_take_long_hold_the_interval(windows: int, each_s: float) -> None:
    """All windows are due in every batch: of two hours, a twentieth goes into G-checks, after what was learnt."""
    policy = cec(extent="1x", interval="5 ms", period="100 ms")
    standing, now_s, elapsed_s, spent_s = None, 0.0, 0.0, 0.0
    while now_s < 7_200:
        elapsed_us = round(elapsed_s * 1e6)
        checked = min(windows, policy.asked(windows, elapsed_us, standing).limits.budget)
        cost = FootprintCost(checked, checked, max(checked, 1), checked * each_s, write_s=0.0, store_s=0.0)
        after = Standing(input=0, commit=0, open=windows, oldest=0, extent=0, replay=0)
        standing = with_costs(after, policy, Occasion(standing, 0, elapsed_us), cost)
        elapsed_s = 0.1 + cost.checked_s
        now_s, spent_s = now_s + elapsed_s, spent_s + cost.checked_s
    assert 0.5 * 0.05 * now_s < spent_s <= 0.05 * now_s + 1.1 * windows * each_s


def test_a_partition_that_seldom_has_tuples_grows_less() -> None:
    states = [KeptStates(), KeptStates()]
    case = Streams(OPEN, lambda p: states[p], partitions_=2, clock=ManualClock(1_000_000))  # type: ignore[arg-type,return-value]
    tuples = Tuples(Random(3), keys=60, skew=3)
    for batch in range(200):
        case.clock.advance(0.1)  # type: ignore[attr-defined]
        case.append({0: tuples.rows(30), **({1: tuples.rows(30)} if batch % 20 == 0 else {})})
        case.drain(cec(failures_per_day=1))
    busy, quiet = (standing.growth for standing in case.output.state.standings)
    assert quiet < busy / 10


def test_after_a_quiet_time_growth_is_soon_what_it_was() -> None:
    policy, cost = cec(failures_per_day=1), FootprintCost(0, 0, 1_000, 0.0, 0.0, 0.0)
    after = Standing(input=0, commit=0, open=1, oldest=0, extent=0, replay=0)

    def stepped(before: Standing, tuples: int) -> Standing:
        return with_costs(after, policy, Occasion(before, 0, 100_000, tuples=tuples), replace(cost, rows=tuples))

    standing = busy = stepped(stepped(after, 1_000), 1_000)
    for _ in range(60):
        standing = stepped(standing, 0)
    assert standing.growth < 1e-6 * busy.growth
    for _ in range(5):
        standing = stepped(standing, 1_000)
    assert standing.growth > 0.8 * busy.growth


def test_the_rarer_failures_are_the_less_is_saved() -> None:
    written = [sum(d.checked for d in Kept().run(cec(failures_per_day=f))) for f in (1e-6, 1e7, 1e12)]
    assert written == sorted(written)
    assert written[0] == 0 < written[1] < written[2]


def test_a_balance_is_told_in_the_standing_and_comes_back_from_it() -> None:
    standing = Kept().run(cec(failures_per_day=1))[-1].standing
    assert 0 < standing.growth <= 1
    again = Standing.from_json(json.loads(json.dumps(standing.to_json())))
    assert again == standing


def test_a_standing_says_nothing_of_what_was_not_measured() -> None:
    plain = Standing(input=1, commit=0, open=1, oldest=0, extent=1, replay=1)
    assert not {"footprint_ns", "credit_us", "growth"} & plain.to_json().keys()
    assert plain.footprint_cost == FOOTPRINT_NS
    measured = replace(plain, footprint_ns=7.5, credit_us=-0.5, growth=0.25)
    assert Standing.from_json(measured.to_json()) == measured
    assert replace(plain, credit_us=0.0).to_json()["credit_us"] == 0.0


def test_a_few_footprints_change_the_price_only_if_they_took_long_or_less_than_is_known() -> None:
    few = FootprintCost(footprints=99, checked=99, rows=99, save_s=9e-3, write_s=0.0, store_s=0.0)
    assert few.footprint_ns(0.0) == 0.0
    assert few.footprint_ns(5.0) == 5.0
    assert few.footprint_ns(1e6) < 1e6, "or a price that was too high once would never come down"
    assert replace(few, save_s=0.99).footprint_ns(0.0) == pytest.approx(1e7)
    many = replace(few, footprints=1_000, checked=500, rows=2_000, save_s=4e-3, write_s=1.002, store_s=1.0)
    assert many.footprint_ns(4_000.0) == pytest.approx(4_000 + 0.3 * (5_000 - 4_000))
    assert many.checked_s == pytest.approx(2e-3 + 1.002 / 4)
    assert replace(many, checked=0).checked_s == 0.0


def test_a_target_that_cannot_be_met_is_told_once_after_two_batches() -> None:
    done = [one for one in Kept().run(cec(extent=1, replay=1), batches=6) if one.missed]
    target = RecoveryWarnings(cec(extent=1, replay=1), "streams/out")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        target.compare_steps(done[:1])
        assert not seen
        target.compare_steps([replace(done[0], missed=())])
        target.compare_steps(done[:1])
        assert not seen, "the batch between them met its targets"
        for one in done:
            target.compare_steps([one])
    assert [w.category for w in seen] == [StrandlineWarning] * 2
    texts = sorted(str(w.message) for w in seen)
    assert texts[0].startswith("extent=1 cannot be met")
    assert texts[1].startswith("replay=1 cannot be met by batches of 30 tuples")
    assert all("streams/out" in text for text in texts)
