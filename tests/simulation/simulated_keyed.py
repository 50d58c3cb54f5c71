"""Keyed functions in the simulation: one that expires with a last word, one in silence that closes keys by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from random import Random
from typing import Any

import pyarrow as pa

from strandline.inputs import stream_definition
from strandline.log.stream.spec import StreamSpec
from strandline.operators.keyed.definition import KeyedDefinition
from strandline.operators.keyed.keyed_function import KeyedFunction, keyed
from strandline.operators.keyed.record_layout import CLOSE, EMIT
from strandline.operators.one_table import GivenInput
from tests.simulation.simulated_operators import Expected, Placed
from tests.specification.plain_keyed import PlainKeyed
from tests.support.operator_streams import COLUMNS, LATENESS, bits, input_spec


def farewell(state: Any, out: Any) -> int:
    out.total = state.total
    out.last = state.last
    return EMIT


@keyed(state="n long, total double, last string", output="total double, last string", expire=9, on_expire=farewell)
def totals(state: Any, row: Any, out: Any) -> int:
    state.n += 1
    if not row.is_null("x"):
        state.total += row.x
    if row.v == 300:
        raise ValueError("no such value")
    out.last = state.last
    state.last = row.s
    out.total = state.total
    return EMIT if state.n % 3 == 0 else 0


@keyed(state="n long, seen long", output="n long, seen long", expire=6, emit=2)
def runs(state: Any, row: Any, out: Any) -> int:
    state.n += 1
    if row.is_null("v"):
        state.set_null("seen")
        return 0
    state.seen = row.v
    out[0].n = state.n
    out[0].seen = state.seen // (row.v // 100)
    if row.v < 0:
        return EMIT + CLOSE
    out[1].n = -state.n
    out[1].set_null("seen")
    return 2 * EMIT if row.v > 500 else 0


@dataclass(frozen=True)
class SimulatedKeyed:
    """A keyed function over one stream, or over the union of several."""

    function: KeyedFunction
    key: str
    inputs: int

    @property
    def definition(self) -> KeyedDefinition:
        return _definition(self.function, self.key, self.inputs)

    def spec_of_input(self, number: int, partitions: int) -> StreamSpec:
        return input_spec([self.key], partitions)

    def again_over(self, inputs: Sequence[StreamSpec]) -> KeyedDefinition:
        return self.definition

    @cached_property
    def _schema(self) -> pa.Schema:
        return stream_definition.output_spec(self.definition, self.spec_of_input(0, 1)).arrow

    def expected(self, tuples: Placed, boundary: int | None) -> Expected:
        plain = PlainKeyed(self.definition)
        found = plain.feed(row for _, row in tuples)
        if boundary is not None:
            found += plain.advance(boundary)
        results = bits(pa.Table.from_pylist(found, schema=self._schema))
        return Expected(results, [{"_input": offset} for offset in plain.aside])


@cache
def _definition(function: KeyedFunction, key: str, inputs: int) -> KeyedDefinition:
    given = GivenInput(COLUMNS, (key,), "t", LATENESS if inputs == 1 else 0)
    return KeyedDefinition.of(function, given, ("t",) * (inputs - 1))


def some_keyed(rng: Random) -> SimulatedKeyed:
    """One of the functions, over one stream or several."""
    function, key = rng.choice([(totals, "s"), (runs, "k")])
    return SimulatedKeyed(function, key, rng.choice([1, 1, 2, 3]))
