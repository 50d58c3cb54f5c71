"""The budget of footprints: an interval of every period, whatever the batches are like and whatever the clock does.

The operator of these tests always has a window that is due, and every G-check takes what it takes. The specification
is what the option says: of any stretch of time, the time of whole periods in it that an interval each allows, one
interval that was saved up, and what a single step took longer than was known.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from strandline.checkpoint.footprint_cost import _GAP_US, _INTERVALS_OWED_MAX, FootprintBudget
from tests.simulation.planted import instead_of, require_found

SEEDS = range(60)


@dataclass(frozen=True)
class Stepped:
    """One step: the time since the last, and what its G-checks took."""

    elapsed_us: int
    footprints: int
    spent_us: float


def run(
    budget: FootprintBudget, elapsed_us: list[int], price_ns: float, known_ns: float | None = None
) -> list[Stepped]:
    """Runs steps in which everything that may be saved is saved."""
    credit_us, found = None, []
    for one in elapsed_us:
        earned_us = budget.earned_us(credit_us, one)
        many = budget.footprints(earned_us, known_ns or price_ns)
        found.append(Stepped(one, many, many * price_ns / 1_000))
        credit_us = budget.left_us(earned_us, found[-1].spent_us, many * (known_ns or price_ns) / 1_000)
    return found


def some_budget(rng: Random) -> FootprintBudget:
    period_us = rng.choice([1_000, 100_000, 1_000_000, 60_000_000])
    return FootprintBudget(rng.randint(1, period_us), period_us)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_stretch_of_steps_spends_more_than_its_periods_allow(seed: int) -> None:
    require_bounded(seed)


def require_bounded(seed: int) -> None:
    rng = Random(seed)
    budget = some_budget(rng)
    price_ns = rng.choice([1.0, 1_000.0, budget.interval_us * rng.choice([1, 50, 999])])
    slowest_us = rng.choice([1, 1_000, budget.period_us, 5_000_000])
    steps = run(budget, [rng.randint(0, slowest_us) for _ in range(200)], price_ns)
    for _ in range(50):
        first = rng.randrange(len(steps))
        stretch = steps[first : rng.randint(first, len(steps))]
        passed_us = sum(one.elapsed_us for one in stretch)
        allowed_us = budget.interval_us * (1 + passed_us / budget.period_us)
        assert sum(one.spent_us for one in stretch) <= allowed_us + 1e-6 * allowed_us


@pytest.mark.parametrize("seed", SEEDS)
def test_many_short_batches_use_a_long_period_up(seed: int) -> None:
    """Nothing is lost between batches: in the long run the share of the time is the one that was asked for."""
    require_used_up(seed)


def require_used_up(seed: int) -> None:
    rng = Random(seed)
    period_us = rng.choice([100_000, 1_000_000])
    budget = FootprintBudget(period_us // rng.choice([4, 20, 100]), period_us)
    trigger_us = period_us // rng.choice([10, 50])
    price_ns = budget.interval_us * 1_000 / rng.choice([7, 100])
    elapsed = [rng.randint(0, 2 * trigger_us) for _ in range(3_000)]
    share = sum(one.spent_us for one in run(budget, elapsed, price_ns)) / sum(elapsed)
    assert 0.95 < share / (budget.interval_us / budget.period_us) < 1.05


@pytest.mark.parametrize("seed", SEEDS)
def test_no_more_than_an_interval_is_kept_and_none_of_it_is_lost(seed: int) -> None:
    rng = Random(seed)
    budget = some_budget(rng)
    credit_us, kept_us = None, float(budget.interval_us)
    for _ in range(50):
        elapsed_us = rng.choice([rng.randint(0, 2 * budget.period_us), 10_000 * budget.period_us])
        earned_us = budget.earned_us(credit_us, elapsed_us)
        assert earned_us >= min(kept_us, budget.interval_us)
        spent_us = rng.uniform(0, earned_us)
        credit_us = kept_us = budget.left_us(earned_us, spent_us, spent_us)
        assert credit_us == min(earned_us - spent_us, budget.interval_us)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stall_or_a_clock_that_jumps_allows_no_long_pause(seed: int) -> None:
    rng = Random(seed)
    budget = some_budget(rng)
    hour_us = 3_600_000_000
    elapsed = [rng.choice([-hour_us, 0, 20_000, hour_us, 10_000 * hour_us]) for _ in range(50)]
    for one in run(budget, elapsed, price_ns=1_000.0):
        counted_us = max(budget.period_us, _GAP_US)
        assert one.spent_us <= budget.interval_us * counted_us / budget.period_us


@pytest.mark.parametrize("seed", SEEDS)
def test_a_price_that_was_wrong_is_paid_back(seed: int) -> None:
    require_repaid(seed)


def require_repaid(seed: int) -> None:
    """Each footprint takes up to ten times as long as is known, and still the share of the time is held."""
    rng = Random(seed)
    budget = FootprintBudget(rng.randint(1_000, 50_000), 100_000)
    known_ns = budget.interval_us * rng.uniform(10, 100)
    elapsed = [rng.randint(0, 100_000) for _ in range(500)]
    steps = run(budget, elapsed, rng.uniform(1, 10) * known_ns, known_ns)
    spent_us, passed_us = sum(one.spent_us for one in steps), sum(elapsed)
    assert spent_us <= budget.interval_us * (_INTERVALS_OWED_MAX + 1 + passed_us / budget.period_us)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_write_that_hung_is_forgiven_after_some_periods(seed: int) -> None:
    rng = Random(seed)
    budget = some_budget(rng)
    earned_us = budget.earned_us(None, 0)
    credit_us = budget.left_us(earned_us, rng.choice([2.0, 1e3, 1e12]) * budget.interval_us, expected_us=1.0)
    waited_us = 0
    while not budget.footprints(earned_us := budget.earned_us(credit_us, step_us := rng.randint(1, 1_000_000)), 1e18):
        waited_us += step_us
        credit_us = budget.left_us(earned_us, 0.0, 0.0)
        assert waited_us <= (_INTERVALS_OWED_MAX + 2) * budget.period_us


@pytest.mark.parametrize("seed", range(10))
def test_a_footprint_that_is_known_to_take_hundreds_of_intervals_is_paid_back_in_full(seed: int) -> None:
    require_dear(seed)


def require_dear(seed: int) -> None:
    rng = Random(seed)
    budget = FootprintBudget(rng.randint(1_000, 5_000), 100_000)
    price_us = budget.interval_us * rng.randint(200, 2_000)
    steps = run(budget, [rng.randint(0, 100_000) for _ in range(20_000)], price_us * 1_000.0)
    spent_us, passed_us = sum(one.spent_us for one in steps), sum(one.elapsed_us for one in steps)
    assert spent_us <= budget.interval_us * passed_us / budget.period_us + price_us


def test_a_footprint_that_takes_longer_than_the_interval_is_written_every_other_period() -> None:
    budget = FootprintBudget(1_000, 100_000)
    steps = run(budget, [10_000] * 1_000, price_ns=5_000_000.0)
    assert sum(one.spent_us for one in steps) == pytest.approx(1_000 * 1_000 * 10_000 / 100_000, rel=0.05)


def test_an_interval_that_is_a_millionth_of_the_time_is_not_rounded_away() -> None:
    budget = FootprintBudget(1, 1_000_000)
    steps = run(budget, [1_000] * 10_000, price_ns=1_000.0)
    assert sum(one.footprints for one in steps) == 10


DEFECTS = {
    "every batch has a whole interval": ("earned_us", lambda before, self, _, elapsed: before(self, None, elapsed)),
    "what is left is forgotten": ("left_us", lambda before, self, *of: min(0.0, before(self, *of))),
    "what was spent too much is forgotten": ("left_us", lambda before, self, *of: max(0.0, before(self, *of))),
    "what was expected to take long is forgiven": (
        "left_us",
        lambda before, self, c, spent, _: before(self, c, spent, 0),
    ),
    "time counts in whole periods": (
        "earned_us",
        lambda before, self, credit, elapsed: before(self, credit, elapsed // self.period_us * self.period_us),
    ),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name: str) -> None:
    method, change = DEFECTS[name]

    def check(seed: int) -> None:
        require_bounded(seed)
        require_used_up(seed)
        require_repaid(seed)
        require_dear(seed)

    require_found(name, lambda: instead_of(FootprintBudget, method, change), check, SEEDS)
