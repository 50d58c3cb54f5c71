"""The compiled operator and its specification in plain Python agree on results, footprints and extent, to the bit."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.errors import AggregateOverflowError
from strandline.operators.aggregate import aggregate_operator
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import Window, count_window, session_window, time_window
from strandline.operators.expressions.expressions import schema_of
from strandline.operators.kernels import key_codec
from strandline.operators.kernels.arrow_words import arrow_type
from strandline.operators.open_windows import window_state
from strandline.operators.open_windows.hash_table import NO_START, bucket_of
from strandline.operators.open_windows.record import BYTES_END, TIMERS
from strandline.operators.operator import Limits, SlowLimits
from tests.specification.plain_aggregate import PlainOperator, Row
from tests.support.slow_limits import slow_from, some_slow

NAN, INF = math.nan, math.inf
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FOREVER = 1 << 60

# ---------------------------------------------------------------------- inputs: awkward values of every type

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
    "decimal(10,2)": [Decimal(x).scaleb(-2) for x in (0, 1, -1, 5, 99999_99999, -99999_99999, 12345)],
    "decimal(18,3)": [Decimal(x).scaleb(-3) for x in (0, 1, -1, 10**17, -(10**17), 10**17 - 1, -7, 3)],
    "decimal(30,4)": [Decimal(x).scaleb(-4) for x in (0, 1, -1, 10**29, -(10**29), 1 << 64, 1 << 65)],
    "decimal(38,10)": [
        Decimal(x).scaleb(-10, Context(prec=38))
        for x in (0, 7, -7, 10**33, -(10**33), (1 << 64) - 1, -(1 << 64), 1 << 63, -(1 << 63), 123456789012345678901)
    ],
}
TYPES = {
    **{f"v_{kind}": kind for kind in POOLS},
    **{f"k_{kind}": kind for kind in POOLS if kind not in ("float", "double")},
    "at": "long",
    "at_timestamp": "timestamp",
    "at_ntz": "timestamp_ntz",
}
WIDE = ("decimal(30,4)", "decimal(38,10)")
NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal(10,2)", "decimal(18,3)")
OTHERS = ("boolean", "date", "timestamp", "timestamp_ntz", "string", "binary")
SUMS = {"sum": agg.sum, "avg": agg.avg, "variance": agg.variance, "stddev": agg.stddev}
PICKS = {"min": agg.min, "max": agg.max, "first": agg.first, "last": agg.last, "count": agg.count}


def over(
    functions: dict[str, Callable[..., agg.Aggregate]], kinds: Iterable[str], where: Any = None
) -> dict[str, agg.Aggregate]:
    return {f"{name} {kind}": make(f"v_{kind}", where=where) for kind in kinds for name, make in functions.items()}


def plan(window: Window, key: Sequence[str], time: str, *aggregates: dict[str, agg.Aggregate]) -> AggregateDefinition:
    every = {"rows": agg.count_all()}
    for some in aggregates:
        every |= some
    return AggregateDefinition.of(window, every, TYPES, [f"k_{k}" for k in key], time)


def few(column: str, where: Any = None) -> agg.Aggregate:
    return agg.count_distinct(column, exact_up_to=3, where=where)


def median(column: str, where: Any = None) -> agg.Aggregate:
    return agg.percentile(column, 0.5, exact_up_to=3, where=where)


def high(column: str, where: Any = None) -> agg.Aggregate:
    column = column if column != "v_string" else "v_long"
    return agg.percentile(column, 0.9, where=where)


SKETCHES = {"few": few, "exact": agg.count_distinct, "high": high}
TEXTS = ("string", "binary")
TIMES = ("date", "timestamp", "timestamp_ntz", "boolean")
DECIMALS = ("decimal(10,2)", "decimal(18,3)")
# Each is compiled once and cached: a fixed list, in which every kind of window, key and aggregate has its place.
PLANS = {
    "tumbling, long": plan(count_window(3), ["long"], "at", over(SUMS, NUMBERS), over(PICKS, ("long", "double"))),
    "tumbling, string": plan(count_window(4), ["string"], "at", over(PICKS, TEXTS), over({"avg": agg.avg}, DECIMALS)),
    "tumbling, wide": plan(count_window(3), ["decimal(38,10)"], "at", over(SUMS, WIDE), over(PICKS, WIDE)),
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
        session_window(5),
        ["binary"],
        "at_ntz",
        over(SUMS, (*NUMBERS, *WIDE)),
        over(PICKS, ("double", "long", *TEXTS, *WIDE)),
    ),
    "session, boolean": plan(Window("session", 4, 4), ["boolean"], "at", over(PICKS, NUMBERS), over(PICKS, OTHERS)),
}
POSITIVE, TRUE = pc.field("v_long") > 0, pc.field("v_boolean")
PLANS |= {
    "session, where": plan(
        session_window(5),
        ["string"],
        "at",
        {"positive": agg.count_all(where=POSITIVE), "true": agg.count_all(where=TRUE)},
        over(SUMS, ("long",), POSITIVE),
        over(PICKS, ("long", "string", "double"), POSITIVE),
        over({"sum": agg.sum, "first": agg.first}, ("decimal(38,10)",), TRUE),
    ),
    "session, sketches": plan(
        session_window(5), ["long"], "at", over(SKETCHES, ("double", "string")), over({"sum": agg.sum}, ("double",))
    ),
    "sliding, sketches": plan(
        count_window(6, advance=2),
        ["string"],
        "at",
        over({"distinct": few}, ("float", "boolean", "date", "timestamp_ntz", "binary", "decimal(30,4)", "byte")),
        over({"median": median}, ("long", "decimal(38,10)", "float"), POSITIVE),
        over({"count": agg.count}, ("long",)),
    ),
}
every_plan = pytest.mark.parametrize("name", PLANS)


def value(kind: str, pick: int) -> Any:
    """One of the awkward values, or none."""
    pool = POOLS[kind]
    return None if pick % 5 == 0 else pool[pick // 5 % len(pool)]


def key_value(kind: str, number: int) -> Any:
    """No key, the awkward ones, and then as many as the type has."""
    some = [None, *POOLS[kind]]
    if number < len(some):
        return some[number]
    if kind in ("long", "boolean", "string", "binary"):
        return {"long": number, "boolean": number % 2 == 0, "string": str(number), "binary": b"%d" % number}[kind]
    if kind == "date":
        return dt.date.fromordinal(number)
    if kind == "timestamp":
        return EPOCH + dt.timedelta(days=number)
    return Decimal(number)


def row_of(p: AggregateDefinition, offset: int, key: int, time: int, seed: int) -> Row:
    """A tuple; `seed` chooses all of its values."""
    rng = Random(seed)
    row: Row = {"_offset": offset}
    for i, (column, kind) in enumerate(p.key):
        row[column] = key_value(kind, key >> i)
    moment = EPOCH + dt.timedelta(microseconds=time)
    row |= {"at": time, "at_timestamp": moment, "at_ntz": moment.replace(tzinfo=None)}
    for column in p.reads[0]:
        if column.startswith("v_"):
            row[column] = value(TYPES[column], rng.getrandbits(16))
    return row


def table_of(p: AggregateDefinition, rows: Sequence[Row]) -> pa.Table:
    types = {"_offset": "long", **{c: TYPES[c] for c in p.reads[0]}}
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
    return x


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

    def __init__(self, p: AggregateDefinition) -> None:
        self.plan = p
        self.fast = p.fresh()
        self.plain = PlainOperator(p, schema=schema_of({c: TYPES[c] for c in p.reads[0]}))
        self.position = 0
        self.results: list[Row] = []

    def feed(self, rows: Sequence[Row], table: pa.Table) -> None:
        found = [r for columns in self.fast.feed([table]) for r in rows_from(columns, self.plan.result_columns)]
        self._results(found, self.plain.feed(rows))

    def advance(self, boundary: int) -> None:
        found = rows_from(self.fast.advance(boundary), self.plan.result_columns)
        self._results(found, self.plain.advance(boundary))

    def save(self, limits: Limits | None) -> None:
        at = self.position
        limits = limits and slow_from(limits, self.fast.input_end, at)
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


def run(p: AggregateDefinition, rows: Sequence[Row], steps: Sequence[Step]) -> Pair:
    """Feeds the rows step by step; the last step has those that are left."""
    pair = Pair(p)
    boundary, first = FIRST_TIME, 0
    for step in steps:
        end = len(rows) if step is steps[-1] else first + step.tuples
        boundary += step.advance
        one_step(pair, rows[first:end], step.pieces, boundary, step.limits)
        first = end
    pair.advance(FOREVER)
    return pair


def one_step(pair: Pair, rows: Sequence[Row], pieces: int, boundary: int, limits: Limits | None) -> None:
    pair.fast.begin()
    table = table_of(pair.plan, rows)
    cuts = [len(rows) * i // pieces for i in range(pieces + 1)]
    for i in range(pieces):  # arrays that begin in the middle of others, columns in several pieces
        piece = table.slice(cuts[i], cuts[i + 1] - cuts[i])
        if i % 2 == 0:
            piece = pa.concat_tables([piece.slice(0, 2), piece.slice(2)])
        pair.feed(rows[cuts[i] : cuts[i + 1]], piece)
    pair.advance(boundary)
    pair.save(limits)
    pair.fast.end()


FIRST_TIME = -30
small = st.integers(0, 12)
slow_limits = st.builds(SlowLimits, st.integers(0, 30), st.integers(0, 30), st.sampled_from([1, 3, 1 << 40]))
limits = st.builds(
    Limits,
    extent=st.one_of(st.just(INF), small),
    replay=st.one_of(st.just(INF), small),
    cost=st.one_of(st.just(INF), st.floats(0, 20)),
    extent_cost=st.sampled_from([0.0, 0.5, 1.0]),
    replay_cost=st.sampled_from([0.0, 0.5, 1.0]),
    budget=st.one_of(st.just(1 << 62), st.integers(0, 4)),
    slow=st.none() | slow_limits,
)
steps = st.lists(
    st.builds(Step, st.integers(0, 25), st.integers(1, 3), st.integers(0, 20), st.one_of(limits, limits, st.none())),
    min_size=1,
    max_size=8,
)
# Per tuple: the key, how far time advances, how far this one lies from there, the gap to the next offset, the values.
tuples = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 12), st.integers(1, 3), st.integers(0, 1 << 30)),
    max_size=80,
)
thorough = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def rows_of(p: AggregateDefinition, drawn: Iterable[tuple[int, int, int, int, int]]) -> list[Row]:
    rows, offset, time = [], 0, FIRST_TIME
    for key, later, ahead, gap, seed in drawn:
        time += later
        rows.append(row_of(p, offset, key, time + ahead, seed))
        offset += gap
    return rows


def many_rows(p: AggregateDefinition, rng: Random, rows: int, keys: int) -> list[Row]:
    """So many keys that arrays, hash table and queue have to grow."""
    return rows_of(
        p, ((rng.randrange(keys), rng.random() < 0.01, rng.randrange(12), 1, rng.getrandbits(30)) for _ in range(rows))
    )


# ---------------------------------------------------------------------- what holds


@every_plan
@thorough
@given(drawn=tuples, steps=steps)
def test_results_footprints_and_extent_are_those_of_the_specification(
    name: str, drawn: list[Any], steps: list[Step]
) -> None:
    run(PLANS[name], rows_of(PLANS[name], drawn), steps)


@pytest.mark.long
@every_plan
def test_long_random_runs_are_those_of_the_specification(name: str) -> None:
    """The same, drawn with more insistence than hypothesis has; it is there to shrink what this finds."""
    for seed in range(10):
        rng = Random(seed)
        drawn = [
            (rng.randrange(rng.choice([2, 6])), rng.choice([0, 0, 1, 2, 4]), rng.randrange(13), 1, rng.getrandbits(30))
            for _ in range(250)
        ]
        try:
            run(PLANS[name], rows_of(PLANS[name], drawn), [random_step(rng) for _ in range(12)])
        except BaseException as problem:
            problem.add_note(f"seed {seed}")
            raise


def random_step(rng: Random) -> Step:
    save = Limits(
        extent=rng.choice([INF, 0, 5, 30]),
        replay=rng.choice([INF, 0, 10, 40]),
        cost=rng.choice([INF, 20.0]),
        extent_cost=rng.random(),
        replay_cost=rng.random(),
        budget=rng.choice([0, 2, 1 << 62]),
        slow=some_slow(rng),
    )
    return Step(rng.randrange(40), rng.randint(1, 3), rng.randrange(30), save if rng.random() < 0.8 else None)


@every_plan
@settings(thorough, max_examples=10)
@given(drawn=tuples, cuts=st.lists(st.integers(0, 80), max_size=6), save=limits)
def test_results_do_not_depend_on_how_the_input_is_cut_into_steps(
    name: str, drawn: list[Any], cuts: list[int], save: Limits
) -> None:
    p = PLANS[name]
    rows = rows_of(p, drawn)
    at_once = run(p, rows, [Step(0, 1, 0, None)])
    in_steps = Pair(p)
    places = sorted({0, len(rows), *(c for c in cuts if c < len(rows))})
    for first, end in pairwise(places):
        to_come = [r["at"] for r in rows[end:]]
        one_step(in_steps, rows[first:end], 1, min(to_come, default=FIRST_TIME), save)
    in_steps.advance(FOREVER)
    assert bits(in_steps.results) == bits(at_once.results)


@pytest.mark.parametrize(
    "name", ["tumbling, long", "sliding, string and long", "time, decimal(30,4)", "time, timestamp", "session, binary"]
)
def test_more_windows_than_there_was_room_for_change_nothing(name: str) -> None:
    rows = many_rows(PLANS[name], Random(7), 1600, 700)
    pair = run(
        PLANS[name],
        rows,
        [
            Step(500, 2, 3, Limits(extent=50, budget=300)),
            Step(300, 1, 1, None),
            Step(300, 3, 20, Limits(replay=200)),
            Step(0, 1, 1, Limits(extent=0)),
            Step(300, 1, 0, Limits(cost=300.0, extent_cost=0.5, replay_cost=0.5)),
            Step(0, 1, 5, Limits(extent=10)),
        ],
    )
    assert pair.fast.state.grown


def test_footprints_over_and_over_keep_their_order_when_the_queue_is_renewed() -> None:
    p = PLANS["sliding, string and long"]
    rows = many_rows(p, Random(3), 1200, 60)
    pair = run(p, rows, [Step(40, 1, 0, Limits(extent=20)) for _ in range(30)])
    assert pair.position > 3 * window_state.ROOM_MIN


def test_keys_that_share_a_bucket_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    p = PLANS["tumbling, long"]
    monkeypatch.setattr(window_state, "new_seed", lambda: 7)
    keys = [k for k in range(200_000) if bucket_of(k, NO_START, 7, 4095) == 17][:40]
    assert len(keys) == 40
    rng = Random(5)
    rows = [{**row, "k_long": rng.choice([None, *keys])} for row in many_rows(p, rng, 400, 5)]
    run(p, rows, [Step(60, 2, 0, Limits(extent=30)) for _ in range(7)])


@pytest.mark.parametrize("name", ["tumbling, string", "sliding, string and long", "session, binary"])
def test_keys_with_the_same_hash_stay_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def few_hashes(data: Any, starts: Any, words: Any) -> None:
        words[:] = np.diff(starts) % 2

    monkeypatch.setattr(key_codec, "_hash", few_hashes)
    rows = many_rows(PLANS[name], Random(11), 500, 90)
    run(PLANS[name], rows, [Step(70, 2, 2, Limits(extent=40)) for _ in range(8)])


@pytest.mark.parametrize("name", ["tumbling, string", "sliding, string and long", "session, binary"])
def test_bytes_that_nothing_refers_to_are_dropped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_state, "BYTES_MIN", 2000)
    p = PLANS[name]
    rows = many_rows(p, Random(13), 1500, 10)
    pair = Pair(p)
    sizes = []
    for first in range(0, len(rows), 50):
        one_step(pair, rows[first : first + 50], 2, rows[first]["at"], Limits(extent=60) if first % 100 else None)
        sizes.append(int(pair.fast.state.arrays.header[BYTES_END]))
    assert any(later < earlier for earlier, later in pairwise(sizes))
    live = 300 * pair.fast.state.open_windows
    assert max(sizes[len(sizes) // 2 :]) < 2 * max(2000, live)


@every_plan
def test_a_table_larger_than_what_goes_through_at_once_changes_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate_operator, "_ROWS_MAX", 8)
    p = PLANS[name]
    pair = run(p, many_rows(p, Random(17), 150, 8), [Step(70, 1, 4, Limits(extent=9)), Step(80, 2, 5, None)])
    assert pair.results


def test_sessions_that_keep_joining_leave_timers_that_close_nothing() -> None:
    p = PLANS["session, boolean"]
    times = [20 * (i // 3) + (0, 6, 3)[i % 3] for i in range(1200)]  # every third tuple joins two sessions
    rows = [row_of(p, i, 1, t, i) for i, t in enumerate(times)]
    pair = Pair(p)
    for first in range(0, len(rows), 300):
        one_step(pair, rows[first : first + 300], 1, times[first // 2], Limits(extent=5))
        state = pair.fast.state
        assert state.arrays.header[TIMERS] > state.open_windows
    pair.advance(FOREVER)
    assert len(pair.results) == 400


# ---------------------------------------------------------------------- what Spark SQL says, in so many words


def only(p: AggregateDefinition, column: str, values: Sequence[Any]) -> Row:
    """The result of one window that has these values in the column, and none in any other."""
    nothing = {c: None for c in p.reads[0] if c.startswith("v_")}
    rows = [{**row_of(p, i, 2, 0, 0), **nothing, column: v} for i, v in enumerate(values)]
    (result,) = run(p, rows, [Step(0, 1, 0, None)]).results
    return result


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([None, NAN, 1.0], {"min": 1.0, "max": NAN, "first": None, "last": 1.0, "count": 2, "sum": NAN, "avg": NAN}),
        ([NAN, None, None], {"min": NAN, "max": NAN, "first": NAN, "last": None, "count": 1, "variance": None}),
        ([-0.0, 0.0, None], {"min": -0.0, "max": -0.0, "sum": 0.0, "avg": 0.0, "variance": 0.0, "stddev": 0.0}),
        ([0.0, -0.0, -INF], {"min": -INF, "max": 0.0, "last": -INF, "sum": -INF, "variance": NAN}),
        ([None, None, None], {"min": None, "first": None, "count": 0, "sum": None, "avg": None, "stddev": None}),
        ([1.0, 2.0, 4.5], {"avg": 2.5, "variance": 3.25, "stddev": math.sqrt(3.25), "sum": 7.5}),
    ],
    ids=str,
)
def test_nulls_nan_and_zeros_are_treated_as_in_spark_sql(values: list[Any], expected: dict[str, Any]) -> None:
    result = only(PLANS["tumbling, long"], "v_double", values)
    assert bits([{f: result[f"{f} double"] for f in expected}]) == bits([expected])


@pytest.mark.parametrize(
    ("kind", "total", "tuples", "mean"),
    [
        ("decimal(10,2)", "0.02", 64, "0.000313"),
        ("decimal(10,2)", "-0.02", 64, "-0.000313"),
        ("decimal(10,2)", "0.01", 64, "0.000156"),
        ("decimal(10,2)", "99999999.99", 1, "99999999.990000"),
        ("decimal(18,3)", "640000000000000.002", 64, "10000000000000.0000313"),
        ("decimal(18,3)", "-640000000000000.002", 64, "-10000000000000.0000313"),
        ("decimal(18,3)", "999999999999999.999", 3, "333333333333333.3330000"),
    ],
)
def test_the_mean_of_decimals_has_four_more_digits_rounded_half_up(
    kind: str, total: str, tuples: int, mean: str
) -> None:
    values = [Decimal(total), *[Decimal(0)] * (tuples - 1)]
    assert str(only(PLANS["session, binary"], f"v_{kind}", values)[f"avg {kind}"]) == mean


# ---------------------------------------------------------------------- sums that do not fit

BIG = 1 << 62


@pytest.mark.parametrize(
    ("name", "column", "big", "times", "where"),
    [
        ("tumbling, long", "v_long", BIG, [0, 0], "k_long=-1, window_start=40"),
        ("time, timestamp", "v_long", -BIG, [0, 1, 2], "window_start=datetime.datetime(1970, 1, 1, 0, 0"),
        ("time, timestamp", "v_decimal(18,3)", Decimal(10**18 - 1).scaleb(-3), [0] * 10, "k_timestamp="),
        ("session, binary", "v_long", BIG, [0, 1], "k_binary=b'a', window_start=datetime.datetime(1970, 1, 1, 0, 0)"),
        (
            "session, binary",
            "v_long",
            BIG,
            [0, 8, 4],
            "k_binary=b'a', window_start=datetime.datetime(1970, 1, 1, 0, 0)",
        ),
    ],
    ids=["count", "time", "decimal", "session", "joined sessions"],
)
def test_an_integer_sum_that_overflows_is_an_error_that_names_key_and_window(
    name: str, column: str, big: Any, times: list[int], where: str
) -> None:
    p = PLANS[name]
    nothing = {c: None for c in p.reads[0] if c.startswith("v_")}
    rows = [{**row_of(p, 40 + i, 2, t, 0), **nothing, column: big} for i, t in enumerate(times)]
    with pytest.raises(AggregateOverflowError) as problem:
        list(p.fresh().feed([table_of(p, rows)]))
    assert where in problem.value.where
    with pytest.raises(AggregateOverflowError):
        PlainOperator(p).feed(rows)
    fast, plain = p.fresh("set_aside"), PlainOperator(p, "set_aside")
    fast.begin()
    more = [{**row_of(p, 40 + len(rows) + i, 2, 0, 0), **nothing} for i in range(60 if p.window.kind == "count" else 0)]
    found = [r for columns in fast.feed([table_of(p, [*rows, *more])]) for r in rows_from(columns, p.result_columns)]
    found += rows_from(fast.advance(FOREVER), p.result_columns)
    assert bits(found) == bits([*plain.feed([*rows, *more]), *plain.advance(FOREVER)])
    columns = [*(c for c, _ in p.key), "window_start", "window_end", "_rows", "_opened"]
    assert fast.aside.tables["overflow"][0].select(columns).to_pylist() == plain.aside != []


@pytest.mark.parametrize(("one", "other"), [(BIG, BIG - 1), (-BIG, -BIG)])
def test_an_integer_sum_may_use_all_of_its_64_bits(one: int, other: int) -> None:
    assert only(PLANS["session, binary"], "v_long", [one, other])["sum long"] == one + other


def test_kernels_are_compiled_once_whatever_the_data_looks_like() -> None:
    """A kernel that is compiled again in mid-stream would hold up the stream for seconds."""
    types = {"k": "long", "v": "double", "t": "long", "_offset": "long"}
    plan = AggregateDefinition.of(count_window(2), {"s": agg.sum("v"), "m": agg.max("t")}, types, ["k"], "t")
    operator = plan.fresh()
    for first, keys in ((0, [1, 2, 1]), (3, [None, 2, 1]), (6, [1, None, None])):
        operator.begin()
        columns = {"k": keys, "v": [1.0, None, 2.0] if first else [1.0, 2.0, 3.0], "t": [1, 2, 3]}
        schema = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("t", pa.int64()), ("_offset", pa.int64())])
        table = pa.table({**columns, "_offset": range(first, first + 3)}, schema=schema)
        list(operator.feed([table]))
        operator.save(0, Limits())
    assert len(plan.step.signatures) == 1  # type: ignore[attr-defined]
