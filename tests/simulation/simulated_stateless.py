"""Stateless operators in the simulation: filters, selections and unions, each with the same work in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.inputs import stream_definition
from strandline.log.stream.spec import StreamSpec
from strandline.operators.expressions.shape import AS_IS, InputShapes, Shape
from strandline.operators.stateless.definition import StatelessDefinition
from tests.simulation.simulated_operators import KEYS, Expected, Placed
from tests.specification.plain_stateless import PlainStateless, PlainWork
from tests.support.operator_streams import COLUMNS, SCHEMA, Row, bits, input_spec, where


@dataclass(frozen=True)
class Work:
    """A shape, and the same over rows."""

    shape: Shape
    plain: PlainWork


def _only(shape: Shape, test: Callable[[Row], bool]) -> Work:
    return Work(shape, lambda row: row if test(row) else None)


def _select(before: Shape = AS_IS, **columns: Any) -> Shape:
    keep = ("k", "s", "t")
    return before.select(keep, columns, before.schema_over(SCHEMA), keep)


def _is_positive(row: Row) -> bool:
    return row["x"] is not None and row["x"] > 0.0


def _is_other(row: Row) -> bool:
    return row["s"] is not None and row["s"] != "key1"


def _halved(row: Row) -> Row:
    v, k, x = (row[name] for name in ("v", "k", "x"))
    return {**row, "v": None if v is None or k is None else v - k, "x": None if x is None else x * 0.5}


def _ratio(row: Row) -> Row:
    v = row["v"]
    return {**row, "v": None if v is None else _quotient(v, _quotient(v, 300))}


def _quotient(a: int, b: int) -> int:
    """Divides as Arrow does: towards zero."""
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


ALL = Work(AS_IS, lambda row: row)
POSITIVE = _only(where(pc.field("x") > 0.0), _is_positive)
OTHERS = _only(where(pc.field("s") != "key1"), _is_other)
HALVED = Work(_select(v=pc.field("v") - pc.field("k"), x=pc.field("x") * 0.5), _halved)
RATIO = Work(_select(v=pc.field("v") / (pc.field("v") / 300), x="x"), _ratio)
"""Divides by zero now and then: such tuples are set aside."""
SUMS = Work(
    _select(where(pc.field("x") > 0.0), y=pc.field("x") + 1.0, v="v"),
    lambda row: {**row, "y": row["x"] + 1.0} if _is_positive(row) else None,
)
FILTERS = (ALL, POSITIVE, OTHERS)
LIKE_TUPLES = (ALL, POSITIVE, OTHERS, HALVED, RATIO)
"""Their results have the columns of tuples."""


@dataclass(frozen=True)
class SimulatedStateless:
    """Work on one stream, or on the union of several after work on each of them."""

    before: tuple[Work, ...]
    work: Work
    key: tuple[str, ...]
    first: StreamSpec | None = None
    """The spec of the first input, if that is the output of another operator; then the work selects nothing."""

    @property
    def inputs(self) -> int:
        return len(self.before)

    def spec_of_input(self, number: int, partitions: int) -> StreamSpec:
        if self.first is not None and not number:
            return self.first
        return input_spec(self.key, partitions)

    @cached_property
    def definition(self) -> StatelessDefinition:
        return self.again_over([self.spec_of_input(i, 1) for i in range(self.inputs)])

    def again_over(self, inputs: Sequence[StreamSpec]) -> StatelessDefinition:
        first = inputs[0]
        columns = {f["name"]: f["type"] for f in first.schema["fields"]}
        own = self.before[0].shape.columns_over(columns, first.arrow)
        if self.first is not None:
            own = {name: kind for name, kind in own.items() if name in (*COLUMNS, first.time)}
        schema = self.before[0].shape.schema_over(first.arrow)
        shapes = [work.shape for work in self.before]
        return StatelessDefinition(
            output=tuple(self.work.shape.columns_over(own, schema).items()),
            key=tuple((c, COLUMNS[c]) for c in self.key),
            time=(first.time, "long"),
            more_times=tuple(spec.time for spec in inputs[1:]),
            shape=self.work.shape if len(inputs) > 1 else Shape((*shapes[0].steps, *self.work.shape.steps)),
            before=InputShapes.of(shapes if len(inputs) > 1 else []),
        )

    @cached_property
    def _schema(self) -> pa.Schema:
        return stream_definition.output_spec(self.definition, self.spec_of_input(0, 1)).arrow

    def expected(self, tuples: Placed, boundary: int | None) -> Expected:
        plain = PlainStateless([work.plain for work in self.before], self.work.plain)
        time, names = self.definition.result_time, self._schema.names
        named = ((number, {**row, time: row["t"]} if number else row) for number, row in tuples)
        found = [{name: row.get(name) for name in names} for row in plain.feed(named)]
        aside = [{"_input": row["_offset"], **{c: row[c] for c in (*self.key, time)}} for row in plain.aside]
        return Expected(bits(pa.Table.from_pylist(found, schema=self._schema)), aside, [])


def some_stateless(rng: Random, inputs: int | None = None) -> SimulatedStateless:
    """Returns any such operator, over one stream or several."""
    many = inputs or rng.choice([1, 1, 2, 3])
    before = tuple(rng.choice(LIKE_TUPLES) for _ in range(many)) if many > 1 else (ALL,)
    return SimulatedStateless(before, rng.choice([*LIKE_TUPLES, SUMS]), rng.choice(KEYS))
