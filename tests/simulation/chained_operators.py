"""Operators over the results of others: whatever can be over streams of tuples, if those results look like tuples.

The operators that come first in a chain, or in its middle, have results with the columns k, s, v and x and some time.
They are those of other simulations by other names, so that there are no kernels to compile for them; a join has results
like no tuple, which only joins and barriers care nothing about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.inputs import stream_definition
from strandline.log.stream.spec import StreamSpec
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.windows import session_window, time_window
from strandline.operators.keyed.keyed_function import keyed
from strandline.operators.keyed.record_layout import EMIT
from strandline.operators.one_table import GivenInput
from strandline.operators.operator import Definition
from strandline.operators.partition_wide.definition import PartitionWideDefinition
from strandline.operators.partition_wide.user_operator import UserOperator
from tests.simulation.simulated_keyed import SimulatedKeyed, runs, totals
from tests.simulation.simulated_operators import (
    CONDITIONS,
    Expected,
    Placed,
    SimulatedAggregate,
    SimulatedJoin,
    SimulatedOperator,
    some_barrier,
    some_join,
    variant,
)
from tests.simulation.simulated_stateless import ALL, FILTERS, LIKE_TUPLES, SimulatedStateless
from tests.support.operator_streams import COLUMNS, FAILING, PLANS, bits, input_spec, plan, rows_table

TUMBLING = plan(time_window(10), ["s"], x=agg.sum("x"), v=agg.first("v"), k=agg.count("x"))
SESSION = plan(
    session_window(5),
    ["k"],
    x=agg.sum("x", where=pc.field("x") > 0),
    s=agg.first("s", where=pc.field("x") > 0),
    v=agg.last("v", where=pc.field("v") < 500),
)


@keyed(state="n long, x double", output="s string, v long, x double", expire=9)
def latest(state: Any, row: Any, out: Any) -> int:
    state.n += 1
    if not row.is_null("x"):
        state.x += row.x
    out.s = row.s
    out.v = state.n
    out.x = state.x
    return EMIT if state.n % 4 else 0


class Reordered(UserOperator):
    """Tuples in the order of their times, as soon as nothing before them can come."""

    output = "k long, s string, v long, x double, t long"
    time = "t"

    def __init__(self, named: str) -> None:
        self.named = named
        """What its input calls the time."""
        self.waiting = rows_table([]).drop_columns(["_offset"])

    def process(self, tuples: pa.Table) -> None:
        taken = tuples.select(["k", "s", "v", "x", self.named]).rename_columns(self.waiting.column_names)
        self.waiting = pa.concat_tables([self.waiting, taken])

    def advance(self, boundary: int) -> pa.Table:
        is_due = pc.less(self.waiting.column("t"), boundary)
        due = self.waiting.filter(is_due)
        self.waiting = self.waiting.filter(pc.invert(is_due))
        return due.take(np.argsort(due.column("t").to_numpy(), kind="stable"))

    def get_checkpoint(self) -> dict[str, Any]:
        return {name: self.waiting.column(name) for name in self.waiting.column_names}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        self.waiting = pa.table(state)


@dataclass(frozen=True)
class SimulatedReordered:
    """A user's class over the union of several streams; there is nothing to compile."""

    inputs: int
    key: tuple[str, ...] = ("k",)
    time: str = "t"
    """What the first of its inputs calls the time."""

    @cached_property
    def definition(self) -> PartitionWideDefinition:
        columns = {self.time if name == "t" else name: kind for name, kind in COLUMNS.items()}
        given = GivenInput(columns, self.key, self.time, 0)
        return PartitionWideDefinition.over(Reordered(self.time), given, ("t",) * (self.inputs - 1))

    def spec_of_input(self, number: int, partitions: int) -> StreamSpec:
        return input_spec(self.key, partitions)

    def again_over(self, inputs: Sequence[StreamSpec]) -> Definition:
        return self.definition

    def expected(self, tuples: Placed, boundary: int | None) -> Expected:
        rows = sorted((row for _, row in tuples), key=lambda row: row["t"])
        due = [row for row in rows if boundary is not None and row["t"] < boundary]
        return Expected(bits(rows_table(due).drop_columns(["_offset"])), [])


@dataclass(frozen=True)
class OverResults:
    """An operator whose first input has the results of another one, and calls the time as that does."""

    operator: SimulatedOperator
    """As it is over streams of tuples."""
    first: StreamSpec

    @property
    def inputs(self) -> int:
        return self.operator.inputs

    @cached_property
    def definition(self) -> Definition:
        if isinstance(self.operator, SimulatedReordered):
            return replace(self.operator, time=self.first.time).definition
        time = (self.first.time, "long")
        if isinstance(self.operator, SimulatedAggregate):
            return variant(self.operator.definition, time=time)
        made: Any = self.operator.definition
        return replace(made, time=time)  # type: ignore[no-any-return]

    def spec_of_input(self, number: int, partitions: int) -> StreamSpec:
        return self.operator.spec_of_input(number, partitions) if number else self.first

    def again_over(self, inputs: Sequence[StreamSpec]) -> Definition:
        return self.definition

    def expected(self, tuples: Placed, boundary: int | None) -> Expected:
        time = self.first.time
        return self.operator.expected([(i, row if i else {**row, "t": row[time]}) for i, row in tuples], boundary)


def results_of(operator: SimulatedOperator, partitions: int) -> StreamSpec:
    """What a stream of an operator's results is, to one over them."""
    return stream_definition.output_spec(operator.definition, operator.spec_of_input(0, partitions))


def some_upstream(rng: Random, first: StreamSpec | None = None) -> SimulatedOperator:
    """An operator that others can be over; it is over such results itself, if they are given."""
    inputs = rng.choice([2, 2, 3] if first is None else [1, 1, 2, 3])
    if first is None and rng.random() < 0.15:
        return replace(some_join(rng), condition=None)
    more = ("t",) * (inputs - 1)
    aggregates = [SimulatedAggregate(variant(p, more_times=more), False) for p in (TUMBLING, SESSION)]
    if rng.random() < 0.2:
        return _some_stateless(rng, inputs, first)
    others = [SimulatedKeyed(latest, "k", inputs), SimulatedReordered(inputs)]
    every: list[SimulatedOperator] = [*aggregates, *others]
    if first is None:
        return rng.choice(every)
    return OverResults(rng.choice([one for one in every if one.spec_of_input(1, 1).key == first.key]), first)


def _some_stateless(rng: Random, inputs: int, first: StreamSpec | None) -> SimulatedStateless:
    """A filter of a union, whose first stream has the results of another operator or is one of tuples."""
    if first is None:
        before = tuple(rng.choice(LIKE_TUPLES) for _ in range(inputs))
        return SimulatedStateless(before, rng.choice(LIKE_TUPLES), rng.choice([("k",), ("s",)]))
    return SimulatedStateless((ALL,) * inputs, rng.choice(FILTERS), first.key, first)


def some_operator_over(rng: Random, upstream: SimulatedOperator) -> SimulatedOperator:
    """Any operator over the results of another one and some streams of tuples, by the same key."""
    first = results_of(upstream, 1)
    is_like_tuples = not isinstance(upstream, SimulatedJoin)
    kinds = ["aggregate", "aggregate", "keyed", "class", "stateless"] if is_like_tuples else []
    kind = rng.choice([*kinds, "join", "join", "barrier"])
    inputs = rng.choice([1, 1, 2, 3])
    more = ("t",) * (inputs - 1)
    if kind == "aggregate":
        known = [p for p in (*PLANS.values(), FAILING) if tuple(c for c, _ in p.key) == first.key]
        if first.time != "t":
            known = [p for p in known if not p.shape]  # what is selected there is called t
        return OverResults(SimulatedAggregate(variant(rng.choice(known), more_times=more), False), first)
    if kind == "stateless":
        return _some_stateless(rng, inputs, first)
    if kind == "keyed":
        return OverResults(SimulatedKeyed(totals if first.key == ("s",) else runs, first.key[0], inputs), first)
    if kind == "class":
        return OverResults(SimulatedReordered(inputs, first.key), first)
    key = {"key": rng.choice([first.key, ("k", "s")]) if is_like_tuples else first.key}
    if kind == "barrier":
        return replace(some_barrier(rng), first=first, **key)
    condition = rng.choice([None, *CONDITIONS[:2]]) if is_like_tuples else None
    join = replace(some_join(rng), first=first, condition=condition, **key)
    if isinstance(upstream, SimulatedJoin) and upstream.windows.meets_any:
        # Both would have a column right_k; a user gives one of them another name.
        return replace(join, windows=replace(join.windows, match="key"))
    return join
