"""The compiled barrier and its specification agree on sets, footprints, extent and recovered state."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strandline.operators.barrier.barrier_operator import BarrierOperator
from strandline.operators.barrier.definition import BarrierDefinition, BarrierInput
from strandline.operators.barrier.matching import SINCE
from strandline.operators.open_windows.record import OPENED
from strandline.operators.operator import Limits, Saved
from tests.specification.plain_barrier import BarrierTuple, PlainBarrier, result_row
from tests.support.slow_limits import slow_from, some_slow

NESTED = {
    "type": "struct",
    "fields": [
        {"name": "a", "type": {"type": "array", "elementType": "long", "containsNull": True}},
        {"name": "s", "type": "string"},
    ],
}
MAP = {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
KEYS: dict[str, list[tuple[Any, ...]]] = {
    "long": [(None,), (0,), (1,), (-7,), (1 << 62,)],
    "string": [(None,), ("",), ("a",), ("b" * 40,), ("é",)],
    "long,string": [(1, "x"), (1, None), (None, None), (2, "x"), (2, "")],
}


def definition_of(kind: str, inputs: int, at_most: int | None) -> BarrierDefinition:
    kinds = kind.split(",")
    own = [
        (("t", "timestamp"), ("v", "long"), ("n", NESTED)),
        (("w", "double"), ("when", "timestamp"), ("m", MAP)),
        (("t", "timestamp"), ("b", "binary")),
    ]
    times = ["t", "when", "t"]
    return BarrierDefinition(
        tuple((f"k{i}", k) for i, k in enumerate(kinds)),
        tuple(BarrierInput(f"in{i}", times[i % 3], own[i % 3]) for i in range(inputs)),
        at_most,
    )


def values(rng: Random, number: int, place: int) -> dict[str, Any]:
    moment = EPOCH + dt.timedelta(microseconds=place // 3)
    if number % 3 == 0:
        nested = None if rng.random() < 0.2 else {"a": rng.choice([None, [], [1, None]]), "s": rng.choice([None, "x"])}
        return {"t": moment, "v": rng.choice([None, place]), "n": nested}
    if number % 3 == 1:
        return {"w": rng.random(), "when": moment, "m": rng.choice([None, [], [("a", 1.5), ("b", None)]])}
    return {"t": moment, "b": rng.choice([None, b"", b"\x00" * place])}


def tables_of(definition: BarrierDefinition, tuples: Sequence[BarrierTuple]) -> list[pa.Table]:
    names = [name for name, _ in definition.key]
    found = []
    for i, schema in enumerate(definition.payload_schemas):
        rows = [{**dict(zip(names, t.key, strict=True)), **t.values} for t in tuples if t.input == i]
        places = pa.array([t.place for t in tuples if t.input == i], pa.int64())
        found.append(pa.Table.from_pylist(rows, schema=schema).append_column("_offset", places))
    return found


@dataclass
class Output:
    """The operator's log: rows and what they are."""

    definition: BarrierDefinition

    def __post_init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.is_footprint: list[bool] = []

    def add(self, columns: list[pa.Array], *, is_footprint: bool = False) -> list[dict[str, Any]]:
        rows = pa.Table.from_arrays(columns, schema=self.definition.output_schema).to_pylist()
        self.rows += rows
        self.is_footprint += [is_footprint] * len(rows)
        return rows

    def stretches(self, rng: Random, first: int) -> list[Saved]:
        found, end = [], len(self.rows)
        while end > first:
            begin = max(first, end - rng.randint(1, 40))
            found.append(Saved(self._some(begin, end, False), self._some(begin, end, True)))
            end = begin
        return found

    def _some(self, begin: int, end: int, is_footprint: bool) -> pa.Table:
        at = [i for i in range(begin, end) if self.is_footprint[i] == is_footprint]
        schema = self.definition.output_schema
        table = pa.Table.from_pylist([self.rows[i] for i in at], schema=schema)
        return table.append_column("_offset", pa.array(at, pa.int64()))


class Cache:
    """The local state as it is handed over: whole, or what changed since the one before."""

    def __init__(self) -> None:
        self._arrays: dict[str, np.ndarray] = {}

    def leave(self, operator: BarrierOperator) -> None:
        image = operator.image()
        arrays, changed = image.arrays, image.changed
        if changed is None or {n: a.shape for n, a in arrays.items()} != {n: a.shape for n, a in self._arrays.items()}:
            assert changed is None or not self._arrays
            self._arrays = {name: array.copy() for name, array in arrays.items()}
            return
        for name, rows in changed.items():
            self._arrays[name][rows] = arrays[name][rows]

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: array.copy() for name, array in self._arrays.items()}


def waiting_rows(operator: BarrierOperator) -> list[dict[str, Any]]:
    table = pa.Table.from_arrays(operator.windows(), schema=operator.definition.output_schema)
    return table.drop_columns(["_input", "_open"]).to_pylist()


def some_limits(rng: Random) -> Limits:
    if rng.random() < 0.3:
        return Limits(cost=rng.choice([0, 20, 300]), extent_cost=rng.choice([0, 1, 3]), replay_cost=rng.choice([0, 2]))
    pick = [math.inf, 0, 3, 30, 200]
    return Limits(rng.choice(pick), rng.choice(pick), budget=rng.choice([1 << 62, 1 << 62, 2]), slow=some_slow(rng))


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(s, marks=pytest.mark.long) for s in range(20, 200))])
def test_sets_footprints_extent_and_recovered_state_are_those_of_the_specification(seed: int) -> None:
    rng = Random(seed)
    kind, inputs = rng.choice(list(KEYS)), rng.choice([2, 2, 3, 5])
    definition = definition_of(kind, inputs, rng.choice([None, None, 1, 3, 20]))
    limits, plain, output = some_limits(rng), PlainBarrier(inputs, definition.at_most), Output(definition)
    weights = [rng.choice([1, 1, 4]) for _ in range(inputs)]
    operator, cache, fed, place = definition.fresh(), Cache(), [], 0
    for _ in range(rng.choice([5, 30])):
        began, sets = len(output.rows), []
        operator.begin()
        for _ in range(rng.choice([0, 1, 1, 3])):
            tuples = []
            for _ in range(rng.choice([0, 1, 5, 60])):
                number = rng.choices(range(inputs), weights)[0]
                tuples.append(BarrierTuple(place, number, rng.choice(KEYS[kind]), values(rng, number, place)))
                place += rng.choice([1, 1, 1, 4])
            fed += tuples
            for columns in operator.feed(tables_of(definition, tuples)):
                sets += output.add(columns)
            operator.input_end = plain.end = place
            expected = [result_row(definition, found) for found in plain.feed(tuples)]
            plain.end = place
            got = sets[len(sets) - len(expected) :]
            assert [{n: v for n, v in row.items() if n not in ("_input", "_open")} for row in got] == expected
        for columns in operator.aside.closed:
            output.add(columns)
        aside = [row for table in operator.aside.tables.get("barrier", []) for row in table.to_pylist()]
        dropped = sorted(plain.dropped, key=lambda found: found[0].input)  # input by input
        wanted = [({**result_row(definition, [one]), "_input": when}) for one, when in dropped]
        padded = [dict.fromkeys(wanted[0]) | row for row in aside]
        assert sorted(padded, key=lambda row: [row[name] is None for name in definition.at_columns]) == wanted
        plain.dropped.clear()
        position = len(output.rows)
        asked = slow_from(limits, operator.input_end, position)
        saved = operator.save(position, asked)
        assert len(saved.opened[0]) == 0
        rows = output.add(saved.checked, is_footprint=True)
        by_place = {one.place: one for one in plain.waiting}
        chosen = plain.save(position, began, asked)
        assert [{n: v for n, v in row.items() if n not in ("_input", "_open")} for row in rows] == [
            result_row(definition, [by_place[at]]) for at in chosen
        ]
        assert {row["_input"] for row in rows} <= {place}
        operator.end()
        extent = operator.extent(len(output.rows))
        assert extent == plain.extent(len(output.rows))
        expected_waiting = [result_row(definition, [one]) for one in plain.waiting]
        assert waiting_rows(operator) == expected_waiting
        cache.leave(operator)
        fate = rng.random()
        if fate < 0.5:
            operator = definition.revived(cache.arrays())
        elif fate < 0.7:
            operator = recovered(rng, definition, output, fed, extent, place)
            assert waiting_rows(operator) == expected_waiting
            again = operator.extent(len(output.rows))
            assert (again.open_windows, again.oldest_input) == (extent.open_windows, extent.oldest_input)
            assert again.oldest_output >= extent.oldest_output
            plain.since = {one.place: plain.since[one.place] for one in plain.waiting}
            for slot in operator.state.open_slots().tolist():
                at, since = operator.state.arrays.records[slot, [OPENED, SINCE]].tolist()
                assert since < 0 or at in plain.prints or plain.since[at] <= since
                plain.since[at] = since if since >= 0 else len(output.rows)
            cache = Cache()


def recovered(
    rng: Random, definition: BarrierDefinition, output: Output, fed: Sequence[BarrierTuple], extent: Any, end: int
) -> BarrierOperator:
    operator = definition.fresh("set_aside")
    if extent.oldest_output < len(output.rows):
        operator.load(output.stretches(rng, extent.oldest_output))
    again = [t for t in fed if t.place >= extent.oldest_input]
    while again:
        many = rng.randint(1, 50)
        operator.replay(tables_of(definition, again[:many]))
        again = again[many:]
    operator.input_end = end
    return operator
