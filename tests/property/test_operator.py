"""The compiled operator and its specification in plain Python agree on results, footprints and extent, to the bit."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.errors import AggregateOverflowError
from strandline.operators import aggregates as agg
from strandline.operators import key_codec, window_state
from strandline.operators.columns import arrow_type
from strandline.operators.kernel import bucket_of
from strandline.operators.operator import Limits, Operator
from strandline.operators.plain import PlainOperator, Row
from strandline.operators.plan import Plan
from strandline.operators.record import BYTES_END
from strandline.operators.windows import Window, count_window, session_window, time_window

NAN, INF = math.nan, math.inf
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FOREVER = 1 << 60

# ---------------------------------------------------------------------- inputs: values of every type, awkward ones first

FLOATS = [-0.0, 0.0, NAN, 1.5, -1.5, 0.1, 1e300, -1e300, INF, -INF, 5e-324, 3.0, 7.0]
MOMENTS = [dt.timedelta(microseconds=us) for us in (0, -1, 1, 10**15, -(10**15), 7, 999_999)]
POOLS: dict[str, list[Any]] = {
    "byte": [0, -128, 127, 1, 5],
    "short": [0, -(1 << 15), (1 << 15) - 1, 3],
    "integer": [0, -(1 << 31), (1 << 31) - 1, -7],
    "long": [0, -1, 1, 1 << 56, -(1 << 56), 1 << 53, (1 << 53) + 1, 12345],
    "float": [struct.unpack("f", struct.pack("f", x))[0] for x in FLOATS if abs(x) < 1e38 or not math.isfinite(x)],
    "double": FLOATS,
    "boolean": [False, True],
    "date": [dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "timestamp": [EPOCH + d for d in MOMENTS],
    "timestamp_ntz": [EPOCH.replace(tzinfo=None) + d for d in MOMENTS],
    "string": ["", "a", "b", "ab", "é", "\x7f", "\U0001f600", "\uffff", "a\0", "\0", "long" * 20],
    "binary": [b"", b"a", b"\xff", b"\x00", b"\x80\x01", b"a\x00", b"\x7f", b"long" * 20],
    "decimal(10,2)": [Decimal(x) / 100 for x in (0, 1, -1, 5, 99999_99999, -99999_99999, 12345)],
    "decimal(18,3)": [Decimal(x).scaleb(-3) for x in (0, 1, -1, 10**17, -(10**17), 10**17 - 1, -7, 3)],
    "decimal(30,4)": [Decimal(x).scaleb(-4) for x in (0, 1, -1, 10**29, -(10**29), 1 << 64, 1 << 65)],
}
NAMES = {kind: kind.partition("(")[0].rstrip("0123456789") for kind in POOLS}
TYPES = {
    **{f"v_{kind}": kind for kind in POOLS},
    **{f"k_{kind}": kind for kind in POOLS if kind not in ("float", "double")},
    "at": "long",
    "at_timestamp": "timestamp",
    "at_ntz": "timestamp_ntz",
}
NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal(10,2)", "decimal(18,3)")
OTHERS = ("boolean", "date", "timestamp", "timestamp_ntz", "string", "binary")
SUMS = {"sum": agg.sum, "avg": agg.avg, "variance": agg.variance, "stddev": agg.stddev}
PICKS = {"min": agg.min, "max": agg.max, "first": agg.first, "last": agg.last, "count": agg.count}


def over(functions: dict[str, Callable[[str], agg.Aggregate]], kinds: Iterable[str]) -> dict[str, agg.Aggregate]:
    return {f"{name} {kind}": make(f"v_{kind}") for kind in kinds for name, make in functions.items()}


def plan(window: Window, key: Sequence[str], time: str, *aggregates: dict[str, agg.Aggregate]) -> Plan:
    every = {"rows": agg.count_all()}
    for some in aggregates:
        every |= some
    return Plan.of(window, every, TYPES, [f"k_{k}" for k in key], time)


TEXTS = ("string", "binary")
TIMES = ("date", "timestamp", "timestamp_ntz", "boolean")
DECIMALS = ("decimal(10,2)", "decimal(18,3)")
# Each is compiled once and cached: a fixed list, in which every kind of window, key and aggregate has its place.
PLANS = {
    "tumbling, long": plan(count_window(3), ["long"], "at", over(SUMS, NUMBERS), over(PICKS, ("long", "double"))),
    "tumbling, string": plan(count_window(4), ["string"], "at", over(PICKS, TEXTS), over({"avg": agg.avg}, DECIMALS)),
    "tumbling, every tuple": plan(count_window(1), ["date"], "at", over(PICKS, TIMES), over(SUMS, DECIMALS)),
    "sliding, string and long": plan(
        count_window(5, advance=2), ["string", "long"], "at", over(PICKS, ("float", *TEXTS)), over(SUMS, ("double",))
    ),
    "sliding, decimal(10,2)": plan(
        count_window(4, advance=1), ["decimal(10,2)"], "at", over(PICKS, ("byte", *DECIMALS)), over(SUMS, DECIMALS)
    ),
    "time, decimal(30,4)": plan(
        time_window(10, advance=3), ["decimal(30,4)"], "at", over(PICKS, ("string", "float")), over(SUMS, ("integer",))
    ),
    "time, timestamp": plan(time_window(7), ["timestamp"], "at_timestamp", over(SUMS, NUMBERS), over(PICKS, TIMES)),
    "session, binary": plan(
        session_window(5), ["binary"], "at_ntz", over(SUMS, NUMBERS), over(PICKS, ("double", "long", *TEXTS))
    ),
    "session, boolean": plan(session_window(4), ["boolean"], "at", over(PICKS, NUMBERS), over(PICKS, OTHERS)),
}
every_plan = pytest.mark.parametrize("name", PLANS)


def value(kind: str, pick: int) -> Any:
    """One of the awkward values, or none."""
    pool = POOLS[kind]
    return None if pick % 5 == 0 else pool[pick // 5 % len(pool)]


def column_types(p: Plan) -> dict[str, str]:
    return {c: TYPES[c] for c in p.input_columns}


def row_of(p: Plan, offset: int, key: int, time: int, seed: int) -> Row:
    """A tuple; `key` chooses among the first few keys, `seed` all of its values."""
    rng = Random(seed)
    row: Row = {"_offset": offset}
    for column, kind in column_types(p).items():
        if column.startswith("k_"):
            row[column] = ([None, *POOLS[kind]])[(key if column == f"k_{kind}" else 0) % (len(POOLS[kind]) + 1)]
        elif column.startswith("at"):
            row[column] = time if kind == "long" else (EPOCH + dt.timedelta(microseconds=time))
            if kind == "timestamp_ntz":
                row[column] = row[column].replace(tzinfo=None)
        else:
            row[column] = value(kind, rng.getrandbits(16))
    return row


def table_of(p: Plan, rows: Sequence[Row]) -> pa.Table:
    types = {"_offset": "long", **column_types(p)}
    return pa.table({c: pa.array([r[c] for r in rows], arrow_type(kind)) for c, kind in types.items()})


# ---------------------------------------------------------------------- both operators, step by step


def rows_from(columns: list[pa.Array] | None, names: Sequence[tuple[str, str]]) -> list[Row]:
    if columns is None:
        return []
    for array, (name, kind) in zip(columns, names, strict=True):
        array.validate(full=True)
        assert array.type == arrow_type(kind), name
    rows: list[Row] = pa.table(columns, names=[name for name, _ in names]).to_pylist()
    return rows


def bits(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as something that compares as bits do; all NaN are one."""
    return [{c: _bits(x) for c, x in row.items()} for row in rows]


def _bits(x: Any) -> Any:
    if isinstance(x, float):
        return "NaN" if math.isnan(x) else x.hex()
    return str(x) if isinstance(x, Decimal) else x


@dataclass(frozen=True)
class Step:
    """How many tuples come, in how many pieces, how far time advances after them, and what is saved then."""

    tuples: int
    pieces: int
    advance: int
    limits: Limits | None
    """None: everything is saved."""


class Pair:
    """An operator and its specification, given the same."""

    def __init__(self, p: Plan) -> None:
        self.plan = p
        self.fast = Operator.new(p)
        self.plain = PlainOperator(p)
        self.position = 0
        self.results: list[Row] = []

    def feed(self, rows: Sequence[Row], table: pa.Table) -> None:
        found = [r for columns in self.fast.feed(table) for r in rows_from(columns, self.plan.result_columns)]
        self._results(found, self.plain.feed(rows))

    def close_until(self, boundary: int) -> None:
        found = rows_from(self.fast.close_until(boundary), self.plan.result_columns)
        self._results(found, self.plain.close_until(boundary))

    def save(self, limits: Limits | None) -> None:
        at = self.position
        saved = self.fast.save_all(at) if limits is None else self.fast.save(at, limits)
        opened, checked = self.plain.save_all(at) if limits is None else self.plain.save(at, limits)
        names = [*self.plan.result_columns, *self.plan.control_columns]
        assert bits(rows_from(saved.opened, names)) == bits(opened)
        assert bits(rows_from(saved.checked, names)) == bits(checked)
        self.position += len(opened) + len(checked)
        assert self.fast.extent(self.position) == self.plain.extent(self.position)
        assert self.fast.input_end == self.plain.input_end

    def _results(self, found: list[Row], expected: list[Row]) -> None:
        assert bits(found) == bits(expected)
        self.position += len(found)
        self.results += found


def run(p: Plan, rows: Sequence[Row], steps: Sequence[Step], lateness: int = 0) -> Pair:
    """Feeds the rows step by step. Times in the rows are relative to the boundary of their step."""
    pair = Pair(p)
    boundary, first = -20, 0
    for step in steps:
        pair.fast.begin()
        chosen = rows[first : first + step.tuples]
        first += len(chosen)
        # One table, cut into pieces: arrays with an offset, and then again columns of several chunks.
        table = table_of(p, chosen)
        cuts = [len(chosen) * i // step.pieces for i in range(step.pieces + 1)]
        for i in range(step.pieces):
            piece = table.slice(cuts[i], cuts[i + 1] - cuts[i])
            if i % 2:
                piece = pa.concat_tables([piece.slice(0, 1), piece.slice(1)])
            pair.feed(chosen[cuts[i] : cuts[i + 1]], piece)
        boundary += step.advance
        pair.close_until(boundary)
        pair.save(step.limits)
    pair.close_until(FOREVER)
    return pair


small = st.integers(0, 12)
limits = st.builds(
    Limits,
    extent=st.one_of(st.just(INF), small),
    replay=st.one_of(st.just(INF), small),
    cost=st.one_of(st.just(INF), st.floats(0, 20)),
    extent_cost=st.sampled_from([0.0, 0.5, 1.0]),
    replay_cost=st.sampled_from([0.0, 0.5, 1.0]),
    budget=st.one_of(st.just(1 << 62), st.integers(0, 4)),
)
steps = st.lists(
    st.builds(Step, st.integers(0, 25), st.integers(1, 3), st.integers(0, 12), st.one_of(limits, limits, st.none())),
    min_size=1,
    max_size=8,
)
# Key, time after the boundary, gap between offsets, seed of the values.
tuples = st.lists(st.tuples(st.integers(0, 4), st.integers(-6, 25), st.integers(1, 3), st.integers(0, 1 << 30)), max_size=80)
