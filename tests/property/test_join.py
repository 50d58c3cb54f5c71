"""The compiled join and its specification in plain Python agree: results, footprints, extent, state after any loss."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strandline.operators.join import join_operator, tuple_ring
from strandline.operators.join.definition import JoinDefinition, JoinInput, stored_type, type_text
from strandline.operators.join.join_operator import JoinOperator
from strandline.operators.join.join_windows import SIDES, JoinWindows
from strandline.operators.join.tuple_record import BYTES_END, HEAD, TAIL
from strandline.operators.kernels import key_codec
from strandline.operators.open_windows import payloads
from strandline.operators.operator import Limits, Saved
from tests.specification.plain_join import PlainJoin, Row
from tests.support.slow_limits import slow_from, some_slow

INF = math.inf
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
POINT = {
    "type": "struct",
    "fields": [{"name": "x", "type": "double"}, {"name": "tag", "type": "string"}],
}
LIST = {"type": "array", "elementType": "long", "containsNull": True}
MAP = {"type": "map", "keyType": "string", "valueType": "integer", "valueContainsNull": True}
DEEP = {"type": "array", "elementType": POINT, "containsNull": True}
KEY_POOLS: dict[str, list[Any]] = {
    "long": [None, 0, 1, -1, 7, 1 << 60],
    "string": [None, "", "a", "ab", "b", "é", "long" * 9],
    "binary": [None, b"", b"a", b"\0"],
    "decimal(38,10)": [None, Decimal(0), Decimal("1.5"), Decimal(-7), Decimal(10**25)],
    "date": [None, dt.date(1970, 1, 1), dt.date(2024, 2, 29)],
    "integer": [None, 3, 4, -5],
}
POOLS: dict[str, list[Any]] = {
    "long": [None, 0, -1, 1 << 62],
    "double": [None, 1.5, -0.25, 1e300],
    "boolean": [None, True, False],
    "string": [None, "", "text", "other text"],
    "binary": [None, b"", b"\xff\0"],
    "decimal(10,2)": [None, Decimal("0.01"), Decimal("-99999999.99")],
    "decimal(30,4)": [None, Decimal("12345678901234567890.1234")],
    "timestamp": [None, EPOCH, EPOCH + dt.timedelta(days=1)],
    type_text(POINT): [None, {"x": 1.5, "tag": None}, {"x": None, "tag": "t"}],
    type_text(LIST): [None, [], [1, None, 3]],
    type_text(MAP): [None, [], [("a", 1), ("b", None)]],
    type_text(DEEP): [None, [], [{"x": 0.5, "tag": "d"}, None]],
}


def join(
    windows: JoinWindows, key: Sequence[str], time: str, left: Sequence[Any], right: Sequence[Any], **more: Any
) -> JoinDefinition:
    keys, lefts, rights = (
        {f"{letter}{i}": kind for i, kind in enumerate(kinds)}
        for letter, kinds in (("k", key), ("l", left), ("r", right))
    )
    return JoinDefinition.of(
        JoinInput({**keys, "at": time, **lefts, "both": "long"}, tuple(keys), "at"),
        JoinInput({"paid": time, **keys, "both": "string", **rights}, tuple(keys), "paid"),
        windows,
        **more,
    )


def joined_with_itself(windows: JoinWindows, where: Any) -> JoinDefinition:
    own = JoinInput({"k0": "string", "at": "long", "l0": "double", "l1": "string"}, ("k0",), "at")
    return JoinDefinition.of(own, own, windows, where, group=3, is_self=True)


def band(low: int, high: int, how: str = "inner", match: str = "key") -> JoinWindows:
    return JoinWindows("band", low, high, how=how, match=match)  # type: ignore[arg-type]


def last(left: int, right: int, per: str = "key", match: str = "key") -> JoinWindows:
    return JoinWindows(per, sizes=(left, right), match=match)  # type: ignore[arg-type]


JOINS = {
    "band, inner, long": join(band(-4, 4), ["long"], "long", ["double", "string"], [LIST], group=3),
    "band, inner, later only": join(band(2, 6), ["string"], "timestamp", [POINT], ["decimal(30,4)"], group=2),
    "band, inner, one moment": join(band(0, 0), ["long", "string"], "long", [], [], group=4),
    "band, left": join(band(-3, 5, "left"), ["string"], "timestamp", [MAP, "binary"], ["boolean"], group=3),
    "band, left, later only": join(band(1, 6, "left"), ["long"], "long", ["decimal(10,2)"], [DEEP], group=2),
    "band, left, earlier only": join(band(-6, -2, "left"), ["long"], "integer", ["string"], ["timestamp"], group=2),
    "band, right": join(band(0, 7, "right"), ["date", "binary"], "timestamp_ntz", ["long"], ["string", POINT], group=5),
    "band, right, earlier only": join(band(-5, -1, "right"), ["integer"], "long", ["long"], ["string"], group=1),
    "band, full": join(band(-5, 5, "full"), ["decimal(38,10)"], "long", ["string"], ["double", LIST], group=3),
    "band, full, one moment": join(band(0, 0, "full"), ["string"], "long", ["string"], ["double"], group=3),
    "per key": join(last(3, 2), ["long"], "long", ["string", LIST], ["double"], group=2),
    "per key, string": join(last(1, 4), ["string", "long"], "timestamp", [POINT], ["binary"], group=4),
    "per key, right 0": join(last(4, 0), ["string"], "long", ["string"], ["string"], group=3),
    "per key, both 0": join(last(0, 0), ["long"], "long", ["string"], ["string"]),
    "per partition": join(last(7, 5, "partition"), ["long"], "long", ["string"], [MAP], group=3),
    "per partition, right 0": join(last(9, 0, "partition"), ["string"], "timestamp", ["string"], ["double"], group=4),
    "any": join(last(5, 3, "partition", "any"), ["long"], "long", ["string"], [MAP], group=3),
    "any, left 0": join(last(0, 4, "partition", "any"), ["string", "date"], "timestamp", [], [LIST], group=2),
    "any, band": join(band(-2, 3, match="any"), ["string"], "timestamp", [POINT], ["decimal(30,4)"], group=3),
    "any, band, later only": join(band(2, 4, match="any"), ["decimal(38,10)"], "long", ["string"], [], group=2),
    "any, band, left": join(band(-1, 2, "left", "any"), ["binary"], "integer", ["string"], ["double"], group=3),
}
CONDITIONS = {
    "band, inner, where": (band(-4, 4), lambda left, right: left.l0 <= right.r0),
    "band, full, where": (band(-4, 4, "full"), lambda left, right: left.l0 <= right.r0 and right.both != "text"),
    "per key, where": (last(3, 2), lambda left, right: left.at + right.paid > 3 and left.k0 != "a"),
    "per partition, where": (last(6, 4, "partition"), lambda left, right: left.l1 == right.both),
    "any, where": (
        last(9, 6, "partition", "any"),
        lambda left, right: left.k0 != right.k0 and (left.l0 > right.r0 or right.both == "text"),
    ),
    "any, band, full, where": (
        band(-3, 4, "full", "any"),
        lambda left, right: left.l0 <= right.r0 and left.at % 3 != right.paid % 3,
    ),
    "any, band, right, where": (band(0, 6, "right", "any"), lambda left, right: left.l1 == right.both),
}
JOINS |= {
    name: join(windows, ["string"], "long", ["double", "string"], ["double"], group=3, where=where)
    for name, (windows, where) in CONDITIONS.items()
}
SELF_JOINS = {
    "self, band": (band(-4, 4), None),
    "self, band, later only": (band(1, 6), None),
    "self, band, full": (band(-3, 3, "full"), lambda left, right: left.l0 < right.l0),
    "self, band, left": (band(0, 5, "left"), None),
    "self, per key": (last(3, 0), None),
    "self, per partition": (last(6, 0, "partition"), lambda left, right: left.l1 != right.l1),
    "self, any": (last(5, 0, "partition", "any"), None),
    "self, any, band, full": (band(-2, 2, "full", "any"), lambda left, right: left.l0 < right.l0),
}
JOINS |= {name: joined_with_itself(windows, where) for name, (windows, where) in SELF_JOINS.items()}
every_join = pytest.mark.parametrize("name", JOINS)


# ---------------------------------------------------------------------- inputs


def moment(kind: str, time: int) -> Any:
    if kind.startswith("timestamp"):
        at = EPOCH + dt.timedelta(microseconds=time)
        return at if kind == "timestamp" else at.replace(tzinfo=None)
    return time


def rows_of(d: JoinDefinition, rng: Random, many: int) -> list[tuple[int, Row]]:
    """Tuples of both sides in the serialised order, each with its side."""
    keys = [[rng.choice(KEY_POOLS[kind]) for _, kind in d.key] for _ in range(rng.choice([1, 3, 6]))]
    if rng.random() < 0.5:
        keys = [key for key in keys if None not in key] or keys
    lefts, rest = rng.choice([0.5, 0.5, 0.2, 0.9]), rng.choice([1, 3])
    drawn, time = [], -20
    for _ in range(many):
        time += rng.choice([0, 0, 1, rest, 5])
        drawn.append((time, 0 if rng.random() < lefts else 1))
    rows, place = [], rng.choice([0, 17])
    for time, side in sorted(drawn):
        row: Row = {"_offset": place, **dict(zip((c for c, _ in d.key), rng.choice(keys), strict=True))}
        for column, kind in d.columns[side]:
            row[column] = moment(kind, time) if column == d.times[side] else rng.choice(POOLS[kind])
        # Joined with itself, a stream has each tuple on both sides, on the right first.
        rows += [(s, {**row, "": time}) for s in ((1, 0) if d.is_self else (side,))]
        place += rng.choice([1, 1, 1, 3])
    return rows


def tables_of(d: JoinDefinition, rows: Sequence[tuple[int, Row]]) -> list[pa.Table]:
    """A table an input, in one piece or in two."""
    tables = []
    for side in SIDES[: 1 if d.is_self else 2]:
        mine = [row for s, row in rows if s == side]
        types = {"_offset": "long", **d.types_of(side)}
        table = pa.table({c: pa.array([r[c] for r in mine], stored_type(kind)) for c, kind in types.items()})
        tables.append(pa.concat_tables([table.slice(0, 2), table.slice(2)]) if table.num_rows % 3 == 0 else table)
    return tables


def whole(d: JoinDefinition, row: int) -> int:
    """The row, or the one before it: no cut goes between the two sides of one tuple."""
    return row - row % 2 if d.is_self else row


def rows_from(columns: Sequence[pa.Array] | None, names: Sequence[tuple[str, Any]]) -> list[Row]:
    if columns is None:
        return []
    for array, (name, kind) in zip(columns, names, strict=True):
        array.validate(full=True)
        assert array.type == stored_type(type_text(kind)), name
    rows: list[Row] = pa.table(list(columns), names=[name for name, _ in names]).to_pylist()
    return rows


# ---------------------------------------------------------------------- a world in which state gets lost


@dataclass
class World:
    """A join and its specification, given the same; a third one never loses anything."""

    d: JoinDefinition
    rows: list[tuple[int, Row]]
    rng: Random
    fast: JoinOperator = field(init=False)
    plain: PlainJoin = field(init=False)
    steady: PlainJoin = field(init=False)
    output: list[Row] = field(default_factory=list)
    """What the log has: results and footprints, each with its offset."""
    results: list[Row] = field(default_factory=list)
    taken: int = 0
    boundary: int = -(10**9)
    mode: str = "eventual"
    extent: Any = None
    whole: tuple[int, int, int, int] | None = None
    """instant: rows taken, boundary, input end and begin of the footprints of the last whole checkpoint."""
    disk: dict[str, np.ndarray] | None = None
    condition: Any = None

    def __post_init__(self) -> None:
        self.fast = self.d.fresh()
        self.plain, self.steady = PlainJoin(self.d, self.condition), PlainJoin(self.d, self.condition)

    @property
    def names(self) -> list[tuple[str, Any]]:
        return [*self.d.result_columns, *self.d.control_columns]

    def _write(self, rows: Sequence[Row]) -> None:
        nothing = dict.fromkeys(name for name, _ in self.d.control_columns)
        self.output += [{**nothing, **row, "_offset": len(self.output) + i} for i, row in enumerate(rows)]

    def step(self, boundary: int, pieces: int, limits: Limits | None) -> None:
        """Takes in what is before the boundary, in so many pieces; None: everything is saved."""
        end = self.taken
        while end < len(self.rows) and self.rows[end][1][""] < boundary:
            end += 1
        rows = self.rows[self.taken : end]
        self.fast.begin()
        cuts = [whole(self.d, len(rows) * i // pieces) for i in range(pieces + 1)]
        for first, until in pairwise(cuts):
            found = [
                row
                for columns in self.fast.feed(tables_of(self.d, rows[first:until]))
                for row in rows_from(columns, self.d.result_columns)
            ]
            self._results(found, self.plain.feed(rows[first:until]), self.steady.feed(rows[first:until]))
        assert self.fast.due == self.plain.due
        found = rows_from(self.fast.advance(boundary), self.d.result_columns)
        self._results(found, self.plain.advance(boundary), self.steady.advance(boundary))
        self.taken, self.boundary = end, boundary
        self._save(limits)
        self.fast.end()
        self._compare()
        self._leave()

    def _results(self, found: list[Row], *expected: list[Row]) -> None:
        for rows in expected:
            assert found == rows
        self._write(found)
        self.results += found

    def _save(self, limits: Limits | None) -> None:
        at = len(self.output)
        if limits is None:
            fast, plain = self.fast.save_all(at), self.plain.save_all(at)
            self.whole = (self.taken, self.boundary, self.fast.input_end, at)
            self.mode = "instant"
        elif self.mode == "instant" and self.rng.random() < 0.5:  # not due yet
            fast, plain = self.fast.save_nothing(), []
        else:
            if self.mode == "instant":
                self.fast.mark_unsaved(every=False)
                self.plain.mark_unsaved(every=False)
                self.mode = "eventual"
            elif self.rng.random() < 0.05:
                self.fast.mark_unsaved(every=True)
                self.plain.mark_unsaved(every=True)
            limits = slow_from(limits, self.fast.input_end, at)
            fast, plain = self.fast.save(at, limits), self.plain.save(at, limits)
        assert rows_from(fast.opened, self.names) == []
        assert rows_from(fast.checked, self.names) == plain
        self._write(plain)
        before = self.extent
        self.extent = self.fast.extent(len(self.output))
        if before is not None and self.mode == "eventual":
            assert self.extent.oldest_input >= before.oldest_input or before.oldest_input >= self.fast.input_end

    def _compare(self) -> None:
        assert self.fast.extent(len(self.output)) == self.plain.extent(len(self.output))
        assert self.fast.open_windows == len([t for side in SIDES for t in self.plain.kept[side]])
        assert self.fast.due == self.plain.due
        shown = rows_from(self.fast.windows(), self.names)
        assert [row["_ordinal"] for row in shown] == [t.ordinal for side in SIDES for t in self.plain.kept[side]]
        for side, ring in enumerate(self.fast.rings):
            ordinals = ring.read(ring.live(ring[HEAD], ring[TAIL]))[0].tolist()
            assert ordinals == [t.ordinal for t in self.plain.kept[side]] == [t.ordinal for t in self.steady.kept[side]]

    def _leave(self) -> None:
        """Leaves the state in arrays; what is said to have changed, put into those of before, makes the new ones."""
        image = self.fast.image()
        if image.changed is None or self.disk is None:
            self.disk = {name: array.copy() for name, array in image.arrays.items()}
        else:
            for name, rows in image.changed.items():
                self.disk[name][rows] = image.arrays[name][rows]
        for name, array in image.arrays.items():
            assert array.dtype != object
            end = None  # behind the bytes that are used, anything may lie
            if name.endswith("_bytes"):
                end = int(image.arrays[name.replace("bytes", "header")][BYTES_END])
            np.testing.assert_array_equal(self.disk[name][:end], array[:end], name)

    def revive(self) -> None:
        """The next step works on the arrays that this one has left."""
        assert self.disk is not None
        self.fast = self.d.revived({name: array.copy() for name, array in self.disk.items()})

    def lose(self) -> None:
        """The state is lost: back from footprints and from the input."""
        self.disk = None
        self.fast, self.plain = self.d.fresh(), PlainJoin(self.d, self.condition)
        end, self_end = self.taken, self.steady.input_end
        if self.mode == "instant":
            assert self.whole is not None
            taken, boundary, input_end, begin = self.whole
            self._load(self.output[begin:], input_end)
            self.fast.input_end = self.plain.input_end = input_end
            self.fast.advance(boundary)
            self.plain.advance(boundary)
            for _ in self.fast.feed(tables_of(self.d, self.rows[taken:end])):
                pass
            self.plain.feed(self.rows[taken:end])
        else:
            self._load(self.output[self.extent.oldest_output :], None)
            again = [(s, r) for s, r in self.rows[:end] if r["_offset"] >= self.extent.oldest_input]
            cut = whole(self.d, len(again) // 3)
            for some in (again[:cut], again[cut:]):
                self.fast.replay(tables_of(self.d, some))
                self.plain.replay(some)
        self.fast.input_end = self.plain.input_end = self_end
        self.fast.advance(self.boundary)
        self.plain.advance(self.boundary)
        if self.extent is not None:
            self._compare()

    def _load(self, rows: list[Row], whole_at: int | None) -> None:
        schema = pa.schema([("_offset", pa.int64()), *((n, stored_type(type_text(k))) for n, k in self.names)])
        rows = [row for row in rows if row["_input"] is not None and whole_at in (None, row["_input"])]
        cut = len(rows) // 2
        blocks = [pa.Table.from_pylist(part, schema) for part in (rows[cut:], rows[:cut])]
        self.fast.load(Saved(schema.empty_table(), block) for block in blocks)
        self.plain.load(reversed(rows))


def random_limits(rng: Random) -> Limits | None:
    if rng.random() < 0.08:
        return None
    return Limits(
        extent=rng.choice([INF, INF, 0, 5, 30]),
        replay=rng.choice([INF, 0, 10, 40]),
        cost=rng.choice([INF, INF, 20.0]),
        extent_cost=rng.random(),
        replay_cost=rng.random(),
        budget=rng.choice([0, 2, 7, 1 << 62, 1 << 62]),
        slow=some_slow(rng),
    )


def plain_condition(d: JoinDefinition) -> Any:
    """The condition over rows: a null in what it names makes it false."""
    if d.where is None:
        return None
    where = d.where

    def holds(left: Row, right: Row) -> bool:
        if any(row[c] is None for row, names in zip((left, right), where.names, strict=True) for c in names):
            return False
        assert where.function is not None
        return bool(where.function(SimpleNamespace(**left), SimpleNamespace(**right)))

    return holds


def run(d: JoinDefinition, seed: int, many: int) -> World:
    rng = Random(seed)
    world = World(d, rows_of(d, rng, many), rng, condition=plain_condition(d))
    while world.taken < len(world.rows):
        first = world.rows[world.taken][1][""]
        world.step(first + rng.choice([0, 1, 3, 10, 30]), rng.randint(1, 3), random_limits(rng))
        if rng.random() < 0.25:
            world.lose()
        elif rng.random() < 0.4:
            world.revive()
    world.step(10**6, 1, Limits())
    return world


@pytest.fixture(params=["as it is", "tight"])
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little room everything that happens rarely happens all the time: growth, full buffers, merges, moves."""
    if request.param == "tight":
        monkeypatch.setattr(join_operator, "PAIRS_MAX", 5)
        monkeypatch.setattr(tuple_ring, "ROOM_MIN", 2)
        monkeypatch.setattr(tuple_ring, "BYTES_MIN", 30)
        monkeypatch.setattr(payloads, "_MERGED_MIN", 3)
        monkeypatch.setattr(payloads, "CHUNKS_MAX", 5)


def try_seeds(name: str, seeds: range, many: int) -> None:
    for seed in seeds:
        try:
            run(JOINS[name], seed, many)
        except BaseException as problem:
            problem.add_note(f"{name}, seed {seed}")
            raise


@every_join
@pytest.mark.usefixtures("room")
def test_results_footprints_and_recovered_state_are_those_of_the_specification(name: str) -> None:
    try_seeds(name, range(4), 80)


@every_join
@pytest.mark.long
@pytest.mark.usefixtures("room")
def test_the_same_with_more_insistence(name: str) -> None:
    try_seeds(name, range(100, 107), 150)


@every_join
def test_results_do_not_depend_on_how_the_input_is_cut_into_steps(name: str) -> None:
    d, many = JOINS[name], 0
    for seed in range(3):
        rows = rows_of(d, Random(seed), 90)
        results = []
        for cuts in ([], [0, 3], [-5, -4, 1, 2, 9, 40], list(range(-20, 200, 2))):
            world = World(d, rows, Random(0), condition=plain_condition(d))
            for boundary in [*cuts, 10**6]:
                world.step(boundary, 1, Limits(replay=20, extent=60))
            results.append(world.results)
        many += len(results[0])
        assert all(found == results[0] for found in results)
    assert many or not any(d.windows.keeps)


@pytest.mark.parametrize("name", ["band, full", "per key, string", "per key, right 0"])
def test_keys_with_the_same_hash_stay_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def few_hashes(data: Any, starts: Any, words: Any) -> None:
        words[:] = np.diff(starts) % 2

    monkeypatch.setattr(key_codec, "_hash", few_hashes)
    try_seeds(name, range(20, 24), 90)


@pytest.mark.parametrize("name", [name for name, d in JOINS.items() if d.windows.is_band])
def test_a_band_gives_what_sql_gives(name: str) -> None:
    """Every pair with equal keys and times in the band, and what is in no pair, whatever the order."""
    d = JOINS[name]
    windows, condition = d.windows, plain_condition(d)
    for seed in range(5):
        rows = rows_of(d, Random(seed), 70)
        lefts, rights = ([row for s, row in rows if s == side] for side in SIDES)
        keys = [c for c, _ in d.key]
        pairs = [
            (a["_offset"], b["_offset"])
            for a in lefts
            for b in rights
            if (windows.meets_any or all(a[c] is not None and a[c] == b[c] for c in keys))
            and windows.low <= b[""] - a[""] <= windows.high
            and not (d.is_self and a["_offset"] == b["_offset"])
            and (condition is None or condition(a, b))
        ]
        if windows.outer[0]:
            pairs += [(a["_offset"], None) for a in lefts if a["_offset"] not in {one for one, _ in pairs}]
        if windows.outer[1]:
            pairs += [(None, b["_offset"]) for b in rights if b["_offset"] not in {other for _, other in pairs}]
        world = World(d, rows, Random(0), condition=condition)
        world.step(10**6, 2, Limits())
        by_place = {row["_offset"]: row for _, row in rows}
        expected = [_joined(d, by_place.get(one), by_place.get(other)) for one, other in pairs]
        schema = pa.schema([(name, stored_type(type_text(kind))) for name, kind in d.result_columns])
        expected = pa.Table.from_pylist(expected, schema).to_pylist()  # times with the same words for UTC
        assert sorted(map(repr, world.results)) == sorted(map(repr, expected))


def _joined(d: JoinDefinition, left: Row | None, right: Row | None) -> Row:
    there = [(row[""], side, row) for side, row in enumerate((left, right)) if row is not None]
    _, side, later = max(there, key=lambda found: found[:2])
    result = {**{c: there[0][2][c] for c, _ in d.key}, "time": later[d.times[side]]}
    for side, row in enumerate((left, right)):
        for name, (column, _) in zip(d.names[side], d.side_columns[side], strict=True):
            result[name] = None if row is None else row[column]
    return result
