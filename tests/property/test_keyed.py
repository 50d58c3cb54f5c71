"""The compiled keyed operator and its specification agree on results, footprints, extent and recovered state."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strandline.operators.kernels.arrow_words import arrow_type
from strandline.operators.keyed.definition import OPENED, KeyedDefinition
from strandline.operators.keyed.keyed_operator import KeyedOperator
from strandline.operators.operator import Limits, Saved
from tests.specification.plain_keyed import PlainKeyed
from tests.support import keyed_programs
from tests.support.slow_limits import slow_from, some_slow

Row = dict[str, Any]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FOREVER = 1 << 40
INF = math.inf
NAMES = ("scores", "changes", "everything")
POOLS: dict[str, list[Any]] = {
    "v": [None, 0, 1, -5],
    "x": [None, 0.0, -1.5, 2.25, 1e300, 0.1],
    "s": [None, "", "a", "b", "é", "long" * 9],
    "yes": [None, True, False],
    "day": [None, dt.date(1970, 1, 1), dt.date(1969, 12, 30), dt.date(2024, 2, 29)],
    "price": [None, Decimal("0.01"), Decimal("-12.50"), Decimal("99999999.99")],
    "raw": [None, b"", b"a", b"\xff\x00\x01", b"raw" * 7],
    "small": [None, 0, 1, -3, 32767, -32768],
    "f": [None, 0.5, -2.0, 1.5],
}
programs = cache(keyed_programs.programs)
every_program = pytest.mark.parametrize("name", NAMES)
most_programs = pytest.mark.parametrize("name", [*NAMES[:2], pytest.param(NAMES[2], marks=pytest.mark.long)])
"""Its loop for replays would have to be compiled, too."""


def rows_of(rng: Random, many: int, keys: int = 5) -> list[Row]:
    """Tuples whose times wander upwards, by up to a few behind the latest."""
    rows, now, offset = [], 0, 0
    for _ in range(many):
        now += rng.choice([0, 0, 0, 1, 1, 2, 9])
        time = now + rng.randint(-4, 3)
        row = {c: rng.choice(pool) for c, pool in POOLS.items()}
        row |= {"_offset": offset, "t": time, "at": EPOCH + dt.timedelta(microseconds=time)}
        row["k"] = rng.choice([None, *range(keys)])
        rows.append(row)
        offset += rng.choice([1, 1, 1, 3])
    return rows


def table_of(d: KeyedDefinition, rows: Sequence[Row]) -> pa.Table:
    types = {"_offset": "long", **{c: keyed_programs.COLUMNS[c] for c in d.reads[0]}}
    return pa.table({c: pa.array([r[c] for r in rows], arrow_type(kind)) for c, kind in types.items()})


def plain(columns: list[pa.Array] | None, names: Sequence[tuple[str, str]]) -> list[Row]:
    if columns is None:
        return []
    for array, (name, kind) in zip(columns, names, strict=True):
        array.validate(full=True)
        assert array.type == arrow_type(kind), name
    return [bits(row) for row in pa.table(columns, names=[n for n, _ in names]).to_pylist()]


def bits(row: Row) -> Row:
    return {c: x.hex() if isinstance(x, float) else x for c, x in row.items()}


class Pair:
    """An operator and its specification, given the same."""

    def __init__(self, name: str) -> None:
        self.definition = programs()[name]
        self.fast = self.definition.fresh("set_aside")
        self.plain = PlainKeyed(self.definition)
        self.names = [*self.definition.result_columns, *self.definition.control_columns]
        self.output: list[tuple[str, Row]] = []
        """All that a step has written: what it is, and the columns of footprints."""
        self.results: list[Row] = []

    def step(self, rows: Sequence[Row], boundary: int, limits: Limits | None, rng: Random) -> None:
        self.fast.begin()
        cuts = sorted({0, len(rows), *(rng.randrange(len(rows) + 1) for _ in range(rng.randrange(3)))})
        for first, end in pairwise(cuts):
            table = table_of(self.definition, rows)
            self.results_of(list(self.fast.feed([table.slice(first, end - first)])), self.plain.feed(rows[first:end]))
        if self.definition.has_times:
            due = self.fast.advance(boundary)
            self.results_of([] if due is None else [due], self.plain.advance(boundary))
        for columns in self.fast.aside.closed:
            self.output += [("closed", row) for row in pa.table(columns, names=[n for n, _ in self.names]).to_pylist()]
        self.save(limits)
        self.fast.end()

    def results_of(self, found: list[list[pa.Array]], expected: list[Row]) -> None:
        rows = [row for columns in found for row in plain(columns, self.definition.result_columns)]
        assert rows == [bits(row) for row in expected]
        self.results += rows
        nothing = dict.fromkeys(name for name, _ in self.names)
        self.output += [("result", {**nothing, **row}) for row in expected]

    def save(self, limits: Limits | None) -> None:
        at = len(self.output)
        limits = limits and slow_from(limits, self.fast.input_end, at)
        saved = self.fast.save_all(at) if limits is None else self.fast.save(at, limits)
        opened, checked = self.plain.save_all(at) if limits is None else self.plain.save(at, limits)
        assert plain(saved.opened, self.names) == [bits(row) for row in opened]
        assert plain(saved.checked, self.names) == [bits(row) for row in checked]
        self.output += [("footprint", row) for row in [*opened, *checked]]
        assert self.fast.extent(len(self.output)) == self.plain.extent(len(self.output))

    def saved(self, rng: Random, first: int) -> list[Saved]:
        found, end = [], len(self.output)
        while end > first:
            begin = max(first, end - rng.randint(1, 60))
            found.append(Saved(self._some(begin, end, "footprint", False), self._some(begin, end, "footprint", True)))
            end = begin
        return found

    def _some(self, begin: int, end: int, kind: str, wanted: bool) -> pa.Table:
        at = [i for i in range(begin, end) if (self.output[i][0] == kind) == wanted]
        schema = pa.schema([(n, arrow_type(k)) for n, k in self.names])
        table = pa.Table.from_pylist([self.output[i][1] for i in at], schema=schema)
        return table.append_column("_offset", pa.array(at, pa.int64())).select([*self.definition.loads, "_offset"])


def windows(operator: KeyedOperator) -> list[Row]:
    names = [*operator.definition.result_columns, *operator.definition.control_columns]
    return sorted(plain(operator.windows(now=True), names), key=lambda row: row[OPENED])


def random_limits(rng: Random) -> Limits | None:
    if rng.random() < 0.1:
        return None
    return Limits(
        extent=rng.choice([INF, 0, 5, 30]),
        replay=rng.choice([INF, 0, 10, 40]),
        budget=rng.choice([2, 1 << 62]),
        slow=some_slow(rng),
    )


def in_steps(name: str, rows: Sequence[Row], rng: Random, many: int) -> Pair:
    pair = Pair(name)
    cuts = sorted({0, len(rows), *(rng.randrange(len(rows) + 1) for _ in range(many))})
    boundary = -FOREVER
    for first, end in pairwise(cuts):
        boundary = max(boundary, min((r["t"] for r in rows[end:]), default=boundary) - rng.choice([0, 0, 5]))
        pair.step(rows[first:end], boundary, random_limits(rng), rng)
    return pair


@every_program
def test_results_footprints_and_extent_are_those_of_the_specification(name: str) -> None:
    for seed in range(8):
        rng = Random(seed)
        pair = in_steps(name, rows_of(rng, 200, rng.choice([2, 6])), rng, 9)
        pair.step([], FOREVER, None, rng)
        assert (not pair.fast.open_windows) == pair.definition.has_times
        assert sum(len(t) for t in pair.fast.aside.tables.values()) <= len(pair.plain.aside)


@every_program
def test_results_do_not_depend_on_how_the_input_is_cut_into_steps(name: str) -> None:
    for seed in range(5):
        rng = Random(seed)
        rows = rows_of(rng, 150)
        at_once = Pair(name)
        at_once.step(rows, FOREVER, None, rng)
        cut = in_steps(name, rows, rng, 12)
        cut.step([], FOREVER, None, rng)
        assert cut.results == at_once.results
        assert cut.plain.aside == at_once.plain.aside


@most_programs
def test_a_recovery_from_footprints_and_replay_is_the_state_that_was_lost(name: str) -> None:
    for seed in range(5):
        rng = Random(seed)
        rows = rows_of(rng, 160)
        pair = Pair(name)
        first = 0
        for end in (*range(7, 105, 7), 160):  # many steps, so that keys close whose footprints are not the oldest
            boundary = min((r["t"] for r in rows[end:]), default=0) - 3
            limits = rng.choice([Limits(extent=40, replay=70), Limits()])
            pair.step(rows[first:end], boundary, limits, rng)
            first = end
            extent = pair.fast.extent(len(pair.output))
            back = pair.definition.fresh("set_aside")
            back.load(pair.saved(rng, extent.oldest_output))
            seen = [r for r in rows[:end] if r["_offset"] >= extent.oldest_input]
            half = len(seen) // 2
            for some in (seen[:half], seen[half:]):
                back.replay([table_of(pair.definition, some)])
            back.input_end = pair.fast.input_end
            assert windows(back) == windows(pair.fast)
            assert windows(back) == sorted(map(bits, pair.plain.windows()), key=lambda row: row[OPENED])
            assert back.extent(len(pair.output)) == extent
            if rng.random() < 0.5:
                pair.fast = back  # and on with it


@every_program
def test_a_state_handed_over_as_changed_rows_goes_on_as_if_nothing_had_happened(name: str) -> None:
    rng = Random(5)
    rows = rows_of(rng, 900, 400)
    pair, held = Pair(name), {}
    for first in range(0, 900, 60):
        some = rows[first : first + 60]
        boundary = min((r["t"] for r in rows[first + 60 :]), default=0)
        pair.step(some, boundary, random_limits(rng), rng)
        image = pair.fast.image()
        if image.changed is None or not held:
            held = {n: a.copy() for n, a in image.arrays.items()}
        else:
            for n, changed in image.changed.items():
                held[n][changed] = image.arrays[n][changed]
        pair.fast = pair.definition.revived({n: np.array(a) for n, a in held.items()}, "set_aside")


def test_the_programs_of_these_tests_fail_now_and_then() -> None:
    pair = in_steps("everything", rows_of(Random(1), 200), Random(1), 3)
    assert pair.plain.aside
