"""The operators that simulations run, each with what it has to give: said by its specification in plain Python.

Kernels are compiled by the types that they work on, so there are few of these: the aggregates are a fixed list, joins
and barriers have whatever windows, sizes and bounds a seed likes over the columns that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any, Protocol

import pyarrow as pa

from strandline.inputs import stream_definition
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.barrier.definition import BarrierDefinition, BarrierInput
from strandline.operators.join.definition import JoinDefinition, JoinInput
from strandline.operators.join.join_windows import JoinWindows
from strandline.operators.join.predicate import Predicate
from strandline.operators.operator import Definition
from tests.specification.plain_aggregate import PlainOperator
from tests.specification.plain_barrier import BarrierTuple, PlainBarrier, result_row
from tests.specification.plain_join import PlainJoin
from tests.specification.plain_serialised_input import plain_serialised
from tests.support.operator_streams import (
    COLUMNS,
    FAILING,
    PLANS,
    SCHEMA,
    Row,
    bits,
    input_spec,
    output_spec,
    uninterrupted_and_aside,
)

Placed = list[tuple[int, Row]]
"""Tuples in the order in which an operator takes them in, each with its input and its place."""


@dataclass(frozen=True)
class Expected:
    """What an operator to which nothing ever happened makes of some tuples."""

    results: pa.Table
    """As bits, in their order."""
    aside: list[Row]
    """What is set aside, in the columns that do not depend on where steps end."""
    windows: list[Row] | None = None
    """What is open in the end, in the columns of footprints; None if nobody has to ask."""


class SimulatedOperator(Protocol):
    """An operator, and what it has to give."""

    @property
    def definition(self) -> Definition:
        """The operator as a program says it."""

    @property
    def inputs(self) -> int:
        """Over how many streams."""

    def spec_of_input(self, number: int, partitions: int) -> StreamSpec:
        """What one of the inputs is."""

    def again_over(self, inputs: Sequence[StreamSpec]) -> Definition:
        """What the same program says to streams that have more columns by now."""

    def expected(self, tuples: Placed, boundary: int | None) -> Expected:
        """What it makes of these, when nothing before the boundary follows."""


def spec_of_output(operator: SimulatedOperator, inputs: Sequence[Log]) -> StreamSpec:
    """What the stream of results is."""
    spec = stream_definition.output_spec(operator.definition, inputs[0].spec)
    upstream = upstream_of([Origin(log.spec.id, log.storage.url) for log in inputs])
    return replace(spec, id="output", upstream=upstream)


def serialised(rows: Sequence[Sequence[Row]], boundary: int | None) -> Placed:
    """The tuples of a partition that are to be taken in: of one input all, of several those before the boundary."""
    if len(rows) == 1:
        return [(0, {**row, "_offset": offset}) for offset, row in enumerate(rows[0])]
    if boundary is None:
        return []
    order = plain_serialised([[row["t"] for row in own] for own in rows], boundary)
    return [(at.input, {**rows[at.input][at.offset], "_offset": m}) for m, at in enumerate(order)]


def _schema(operator: SimulatedOperator) -> pa.Schema:
    """The columns of results."""
    return stream_definition.output_spec(operator.definition, operator.spec_of_input(0, 1)).arrow


# ---------------------------------------------------------------------- aggregates


@dataclass(frozen=True)
class SimulatedAggregate:
    """An aggregate over one stream, or over the union of several."""

    definition: AggregateDefinition
    is_compared_with_plain: bool

    @property
    def inputs(self) -> int:
        return len(self.definition.times)

    def spec_of_input(self, number: int, partitions: int) -> StreamSpec:
        return input_spec([c for c, _ in self.definition.key], partitions)

    def again_over(self, inputs: Sequence[StreamSpec]) -> Definition:
        return self.definition

    def expected(self, tuples: Placed, boundary: int | None) -> Expected:
        rows = [row for _, row in tuples]
        results, aside = uninterrupted_and_aside(self.definition, rows, boundary)
        if self.is_compared_with_plain:
            results = self._plain(rows, boundary)
        return Expected(results, aside)

    def _plain(self, rows: Sequence[Row], boundary: int | None) -> pa.Table:
        operator = PlainOperator(self.definition, "set_aside", SCHEMA)
        found = operator.feed(rows)
        if boundary is not None:
            found += operator.advance(boundary)
        return bits(pa.Table.from_pylist(found, schema=output_spec(self.definition).arrow))


def some_aggregate(rng: Random, inputs: int, is_compared_with_plain: bool) -> SimulatedAggregate:
    """One of the aggregates."""
    plan = rng.choice([*PLANS.values(), FAILING])
    return SimulatedAggregate(variant(plan, more_times=("t",) * (inputs - 1)), is_compared_with_plain)


_VARIANTS: dict[tuple[Any, ...], tuple[AggregateDefinition, AggregateDefinition]] = {}


def variant(of: AggregateDefinition, **changes: Any) -> AggregateDefinition:
    """The definition with changes, the same object each time: loading its kernels anew takes as long as a run."""
    known = (id(of), *sorted(changes.items()))
    if known not in _VARIANTS:
        _VARIANTS[known] = (of, replace(of, **changes))  # with the first beside it, nobody else gets that id
    return _VARIANTS[known][1]


# ---------------------------------------------------------------------- joins and barriers


TAGS: Any = {"type": "array", "elementType": "long", "containsNull": True}
KEYS = (("k",), ("s",), ("k", "s"))
_OWN = {**COLUMNS, "tags": TAGS}


def _columns(spec: StreamSpec) -> dict[str, Any]:
    return {f["name"]: f["type"] for f in spec.schema["fields"]}


def _spec_of(columns: dict[str, Any], key: Sequence[str], partitions: int) -> StreamSpec:
    spec = input_spec(key, partitions)
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
    return replace(spec, schema={"type": "struct", "fields": fields})


@dataclass(frozen=True)
class Condition:
    """The condition of a join, and the same over rows."""

    where: Predicate
    plain: Callable[[Row, Row], bool]


def _there(*values: Any) -> bool:
    return None not in values


CONDITIONS = (
    Condition(
        Predicate.of(lambda left, right: left.v <= right.v),
        lambda left, right: _there(left["v"], right["v"]) and left["v"] <= right["v"],
    ),
    Condition(
        Predicate.of(lambda left, right: left.x + right.x > 0.0 and right.s != "key1"),
        lambda left, right: (
            _there(left["x"], right["x"], right["s"]) and left["x"] + right["x"] > 0.0 and right["s"] != "key1"
        ),
    ),
    Condition(Predicate.of(lambda left, right: left.t != right.t), lambda left, right: left["t"] != right["t"]),
)


@dataclass(frozen=True)
class SimulatedJoin:
    """A join of two streams; the right one has a column of lists."""

    windows: JoinWindows
    key: tuple[str, ...]
    group: int
    condition: Condition | None
    first: StreamSpec | None = None
    """What the left one is, if it is the output of another operator."""

    inputs = 2

    def spec_of_input(self, number: int, partitions: int) -> StreamSpec:
        if self.first is not None and not number:
            return self.first
        return _spec_of(_OWN if number else COLUMNS, self.key, partitions)

    @cached_property
    def _schema(self) -> pa.Schema:
        return _schema(self)

    @cached_property
    def definition(self) -> JoinDefinition:
        return self.again_over([self.spec_of_input(i, 1) for i in range(2)])

    def again_over(self, inputs: Sequence[StreamSpec]) -> JoinDefinition:
        left, right = (JoinInput(_columns(spec), self.key, spec.time) for spec in inputs)
        where = None if self.condition is None else self.condition.where
        return JoinDefinition.of(left, right, self.windows, where, self.group)

    def expected(self, tuples: Placed, boundary: int | None) -> Expected:
        plain = PlainJoin(self.definition, None if self.condition is None else self.condition.plain)
        found = plain.feed(tuples)
        if boundary is not None:
            found += plain.advance(boundary)
        return Expected(bits(pa.Table.from_pylist(found, schema=self._schema)), [], plain.windows())


def some_join(rng: Random) -> SimulatedJoin:
    """Any join: every kind of window, group and condition."""
    form = rng.choice(["band", "band", "band", "key", "partition"])
    if form == "band":
        low = rng.randint(-12, 8)
        how = rng.choice(["inner", "left", "right", "full"])
        windows = JoinWindows("band", low, low + rng.choice([0, 3, 12]), how=how)  # type: ignore[arg-type]
    else:
        sizes = rng.choice([(3, 0), (0, 1), (2, 5), (1, 1), (8, 20)])
        windows = JoinWindows(form, sizes=sizes)  # type: ignore[arg-type]
    condition = rng.choice([None, None, *CONDITIONS])
    join = SimulatedJoin(windows, rng.choice(KEYS), rng.choice([1, 4, 32, 1024]), condition)
    return join if form == "key" else _perhaps_of_any_keys(join)


def _perhaps_of_any_keys(join: SimulatedJoin) -> SimulatedJoin:
    """Returns one such join in three as one in which keys need not be equal."""
    own = Random(f"{join.windows} {join.key} {join.group}")  # the plans that follow are as they were
    return replace(join, windows=replace(join.windows, match="any")) if own.random() < 0.33 else join


@dataclass(frozen=True)
class SimulatedBarrier:
    """A barrier of two to four streams; the odd ones have a column of lists."""

    inputs: int
    key: tuple[str, ...]
    at_most: int | None
    first: StreamSpec | None = None
    """What the first one is, if it is the output of another operator."""

    def spec_of_input(self, number: int, partitions: int) -> StreamSpec:
        if self.first is not None and not number:
            return self.first
        return _spec_of(_OWN if number % 2 else COLUMNS, self.key, partitions)

    @cached_property
    def _schema(self) -> pa.Schema:
        return _schema(self)

    @cached_property
    def definition(self) -> BarrierDefinition:
        return self.again_over([self.spec_of_input(i, 1) for i in range(self.inputs)])

    def again_over(self, inputs: Sequence[StreamSpec]) -> BarrierDefinition:
        every = [_columns(spec) for spec in inputs]
        own = [tuple((name, kind) for name, kind in columns.items() if name not in self.key) for columns in every]
        times = [spec.time for spec in inputs]
        made = tuple(BarrierInput(f"in{i}", time, of) for i, (time, of) in enumerate(zip(times, own, strict=True)))
        return BarrierDefinition(tuple((c, COLUMNS[c]) for c in self.key), made, self.at_most)

    def expected(self, tuples: Placed, boundary: int | None) -> Expected:
        d, plain = self.definition, PlainBarrier(self.inputs, self.at_most)
        fed = (BarrierTuple(row["_offset"], i, tuple(row[c] for c in self.key), row) for i, row in tuples)
        found = [result_row(d, members) for members in plain.feed(fed)]
        aside = [{**result_row(d, [one]), "_input": at} for one, at in plain.dropped]
        waiting = plain.waiting
        windows = [{**result_row(d, [one]), "_input": plain.end, "_open": len(waiting)} for one in waiting]
        return Expected(bits(pa.Table.from_pylist(found, schema=self._schema)), aside, windows)


def some_barrier(rng: Random) -> SimulatedBarrier:
    """Any barrier."""
    return SimulatedBarrier(rng.choice([2, 2, 3, 4]), rng.choice(KEYS), rng.choice([None, None, 1, 3, 20]))


def some_operator_over_several(rng: Random, is_compared_with_plain: bool) -> SimulatedOperator:
    """An aggregate of a union, a join or a barrier."""
    kind = rng.choice(["aggregate", "join", "join", "join", "barrier", "barrier"])
    if kind == "aggregate":
        return some_aggregate(rng, rng.choice([2, 2, 3]), is_compared_with_plain)
    return some_join(rng) if kind == "join" else some_barrier(rng)
