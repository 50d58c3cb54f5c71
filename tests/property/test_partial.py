"""Partial fault tolerance, the strong form: results are those of the specification without what is on record as lost.

The specification here is the plain operator. At a loss [from, until) it goes back to how it was at `from`, lets go of
the windows that have closed since (their results are published, and complete), lets time pass, and goes on at `until`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest

from strandline.checkpoint.policy import Policy, none, partial
from strandline.clock import ManualClock
from strandline.log.operator_state.loss_record import loss_table
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.running.state.state_cache import StateCache
from tests.simulation.machines import KeptStates
from tests.specification.plain_aggregate import PlainOperator
from tests.support.operator_streams import PLANS, SCHEMA, Row, Streams, Tuples, bits, output_spec, set_aside


class Life(Streams):
    """An operator whose state is lost now and then."""

    def __init__(self, plan: AggregateDefinition, seed: int) -> None:
        self.rng = Random(seed)
        self.kept = KeptStates()
        super().__init__(plan, self._cache, clock=ManualClock(1_000_000), on_error="set_aside")
        self.tuples = Tuples(self.rng, keys=self.rng.choice([3, 12, 40]))
        self.rows: list[Row] = []
        self.boundaries: dict[int, int | None] = {}
        """Where the boundary of the output stood, by where the operator stood in its input."""

    def _cache(self, _partition: int) -> StateCache:
        return self.kept  # type: ignore[return-value]

    def run(self, policy: Policy, commits: int) -> None:
        for _ in range(commits):
            rows = self.tuples.rows(self.rng.randint(1, 25))
            self.rows += rows
            self.append(rows)
            self.clock.advance(self.rng.choice([0.0, 0.004]))
            if self.rng.random() < 0.2:
                self.kept.states.clear()
            self.drain(policy, tuples_max=self.rng.choice([1, 40]))
            state = self.output.state
            self.boundaries[state.standings[0].input] = state.boundaries[0]
            if policy.kind == "partial":  # so a failure never takes more than what came since
                assert self.clock.now_us() - state.standings[0].saved_us < 5_000


def without_what_is_lost(life: Life, losses: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Results, and windows that come out incomplete, of the plain operator."""
    plan = life.plan
    operator = PlainOperator(plan, "set_aside", SCHEMA)
    rows = [{**row, "_offset": i} for i, row in enumerate(life.rows)]
    results: list[Row] = []
    incomplete: list[Row] = []
    at = 0
    for loss in losses:
        boundary = life.boundaries[loss["until"]]
        results += operator.feed(rows[at : loss["from"]])
        saved = copy.deepcopy(operator)
        closed = operator.feed(rows[max(at, loss["from"]) : loss["until"]])
        if plan.has_times and boundary is not None:
            closed += operator.advance(boundary)
        results += closed
        let_go_of(saved, closed)
        if plan.has_times and boundary is not None:
            incomplete += saved.advance(boundary)
        operator, at = saved, loss["until"]
        operator.input_end = at
    results += operator.feed(rows[at:])
    last = life.output.state.boundaries[0]
    if plan.has_times and last is not None:
        results += operator.advance(last)
    return results, incomplete


def let_go_of(operator: PlainOperator, closed: Sequence[Row]) -> None:
    """Closes the windows that have these results."""
    keys = [column for column, _ in operator.definition.key]
    for row in closed:
        name = tuple(row[c] for c in keys)
        start, end = row["window_start"], row["window_end"]
        operator._windows[name] = [
            w
            for w in operator._windows.get(name, [])
            if (w.start >= end or w.end <= start if operator.definition.is_session else w.start != start)
        ]


def table(plan: AggregateDefinition, rows: Sequence[Row]) -> pa.Table:
    return bits(pa.Table.from_pylist([*rows], schema=output_spec(plan).arrow))


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 12))])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_results_are_those_of_the_specification_without_what_is_on_record(plan: AggregateDefinition, seed: int) -> None:
    life = Life(plan, seed)
    life.run(partial("5 ms") if seed else none(), commits=30)
    losses = loss_table(life.output).to_pylist()
    assert losses, "a run without a loss shows nothing"
    assert all(a["until"] <= b["from"] for a, b in pairwise(losses)), "nothing is lost twice"
    results, incomplete = without_what_is_lost(life, losses)
    assert life.results().equals(table(plan, results))
    aside = set_aside(life.output)
    assert not set(aside) - {"incomplete"}
    assert table(plan, aside.get("incomplete", [])).equals(table(plan, incomplete))
    assert sum(loss["incomplete"] for loss in losses) == len(incomplete)
