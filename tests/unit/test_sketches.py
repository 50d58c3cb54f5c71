"""Distinct values and percentiles: exact while there are few, near enough beyond, and the column behind says which."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np
import pytest

from strandline.errors import OptionError, SchemaError, StreamMismatchError
from strandline.inputs.stream_definition import definition_of
from strandline.log.stream.log import Log
from strandline.operators.aggregate import aggregate_operator as operator_module
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate import sketches
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import count_window, session_window
from strandline.operators.open_windows import window_state
from strandline.operators.open_windows.record import BYTES_END
from strandline.operators.operator import Limits
from strandline.running.state.state_cache import StateCache
from strandline.testing import MemoryStorage
from tests.specification import plain_sketches
from tests.support.operator_streams import Row, Streams, output_spec, plan, rows_table, uninterrupted

REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"
TUPLES = 40_000
P = plan(
    count_window(TUPLES),
    ["k"],
    distinct=agg.count_distinct("v"),
    texts=agg.count_distinct("s"),
    median=agg.percentile("x", 0.5),
    high=agg.percentile("x", 0.99),
    few=agg.percentile("v", 0.5, exact_up_to=100_000),
)


def row(v: int | None, x: float | None = 1.0, time: int = 0) -> Row:
    return {"k": 1, "s": None if v is None else f"s{v}", "v": v, "x": x, "t": time}


def results(p: AggregateDefinition, rows: list[Row]) -> list[Row]:
    operator = p.fresh()
    operator.begin()
    names = [c for c, _ in p.result_columns]
    found = [dict(zip(names, values, strict=True)) for c in operator.feed([rows_table(rows)]) for values in zip(*(
        column.to_pylist() for column in c), strict=True)]  # fmt: skip
    return found


def test_many_values_are_counted_and_ranked_nearly_right() -> None:
    rng = Random(1)
    values = [rng.lognormvariate(3.0, 1.5) for _ in range(TUPLES)]
    (found,) = results(P, [row(i % 30_000, x) for i, x in enumerate(values)])
    ordered = sorted(values)
    assert found["distinct_is_approximate"]
    assert found["texts_is_approximate"]
    assert found["distinct"] == pytest.approx(30_000, rel=0.05)
    assert found["texts"] == pytest.approx(30_000, rel=0.05)
    assert found["distinct"] != found["texts"], "strings go by other hashes"
    assert found["median_is_approximate"]
    assert not found["few_is_approximate"]
    assert found["median"] == pytest.approx(ordered[TUPLES // 2], rel=0.004)
    assert found["high"] == pytest.approx(ordered[round(0.99 * (TUPLES - 1))], rel=0.004)
    assert found["few"] == median(i % 30_000 for i in range(TUPLES))


SIZES = (100, 1_000, 3_000, 5_000, 7_500, 10_000, 10_500, 12_000, 15_000, 20_000, 50_000, 200_000, 1_000_000)
STANDARD_ERROR = 0.016
"""As `docs/reference.md` states it."""


def estimates_of(first: int) -> list[int]:
    """Returns the estimates for so many values from `first` on, a size of `SIZES` after the other."""
    (a,) = plan(count_window(2), ["k"], n=agg.count_distinct("v", exact_up_to=0)).accumulators
    words, met, found = np.empty(0, np.int64), 0, []
    for size in SIZES:
        added = np.arange(first + met, first + size).reshape(-1, 1)
        olds = np.array([0, len(words)])
        words, ends = sketches.folded(a, words, olds, np.zeros(1, int), added, np.zeros(len(added), int), 1)
        found.append(sketches.results(a, words, ends)[0][0].as_py())
        met = size
    return found


def test_the_error_of_count_distinct_is_the_documented_one_at_every_size() -> None:
    rounds = 48
    found = np.array([estimates_of(i << 40) for i in range(rounds)]) / np.array(SIZES) - 1
    errors = dict(zip(SIZES, np.sqrt((found**2).mean(axis=0)), strict=True))
    biases = dict(zip(SIZES, found.mean(axis=0), strict=True))
    # Of so few rounds, the error itself has an error of a tenth, and the bias one of a seventh of the standard error.
    assert {size: e for size, e in errors.items() if e > 1.3 * STANDARD_ERROR} == {}
    assert {size: b for size, b in biases.items() if abs(b) > 3 * STANDARD_ERROR / math.sqrt(rounds)} == {}
    assert f"standard error {100 * STANDARD_ERROR:.1f} %" in REFERENCE.read_text("utf-8")


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [({0: 4_096}, 0), ({0: 4_095, 1: 1}, 1), ({52: 1, 53: 4_095}, (1 << 63) - 1), ({53: 4_096}, (1 << 63) - 1)],
)
def test_an_estimate_of_any_registers_is_a_number_that_fits_its_column(ranks: dict[int, int], expected: int) -> None:
    assert sketches.estimate([ranks.get(rank, 0) for rank in range(66)]) == expected


@pytest.mark.parametrize(
    ("values", "p", "expected"),
    [
        ([1.0, 2.0, 4.0, 8.0], 0.5, 3.0),
        ([8.0, 1.0, 4.0], 0.5, 4.0),
        ([1.0, 2.0], 0.9, 1.9),
        ([-3.0, None, -0.0, 0.0], 0.0, -3.0),
        ([5.0, math.nan, 1.0], 1.0, math.nan),
        ([None, None], 0.5, None),
        ([-math.inf, math.inf, 1.0], 0.5, 1.0),
    ],
)
def test_a_percentile_of_few_values_is_sparks(values: list[Any], p: float, expected: float | None) -> None:
    aggregates = {"one": agg.percentile("x", p)}
    some = plan(count_window(len(values)), ["k"], **aggregates)
    (found,) = results(some, [row(0, x) for x in values])
    assert not found["one_is_approximate"]
    assert found["one"] == expected or (math.isnan(found["one"]) and expected is not None and math.isnan(expected))


def test_zero_infinity_and_nan_stay_what_they_are_in_buckets() -> None:
    values = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e300, -1e300, 5e-324, 1.0]
    ordered = [-math.inf, -1e300, 0.0, 0.0, 0.0, 1.0, 1e300, math.inf, math.nan]
    for rank, expected in enumerate(ordered):
        some = plan(count_window(len(values)), ["k"], one=agg.percentile("x", rank / 8, exact_up_to=0))
        (found,) = results(some, [row(0, x) for x in values])
        assert found["one_is_approximate"]
        assert found["one"] == pytest.approx(expected, rel=0.004, nan_ok=True), rank


def test_values_over_many_magnitudes_need_no_more_room() -> None:
    p = plan(count_window(TUPLES), ["k"], one=agg.percentile("x", 0.5))
    operator = p.fresh()
    operator.begin()
    rng = Random(2)
    rows = [row(0, math.exp(rng.uniform(-300, 300))) for _ in range(TUPLES - 1)]
    assert not list(operator.feed([rows_table(rows)]))
    (sketch,) = operator.save(0, Limits()).opened[-1].to_pylist()
    assert len(sketch) <= 8 + 16 * 2048


def test_a_sketch_does_not_depend_on_the_order_of_values_nor_on_where_they_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = Random(3)
    rows = [row(rng.randrange(40), rng.uniform(-5, 5)) for _ in range(300)]
    p = plan(
        count_window(1_000), ["k"], few=agg.count_distinct("v", exact_up_to=9), texts=agg.count_distinct("s"),
        median=agg.percentile("x", 0.5, exact_up_to=50),
    )  # fmt: skip
    saved = set()
    for at_once in (7, 1 << 17, 1):
        monkeypatch.setattr(operator_module, "_WINDOWS_MAX", at_once)
        operator = p.fresh()
        operator.begin()
        rng.shuffle(rows)
        list(operator.feed([rows_table(rows)]))
        saved.add(tuple(c.to_pylist()[0] for c in operator.save(0, Limits()).opened[-3:]))
    assert len(saved) == 1


def test_what_sketches_leave_behind_is_dropped_within_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_module, "_WINDOWS_MAX", 10)
    monkeypatch.setattr(window_state, "BYTES_MIN", 10_000)
    p = plan(count_window(TUPLES), ["k"], distinct=agg.count_distinct("v"))
    operator = p.fresh()
    operator.begin()
    list(operator.feed([rows_table([row(i) for i in range(2_000)])]))
    assert operator.state.arrays.header[BYTES_END] < 50_000, "200 pieces have left a sketch of four kilobytes each"


PARTS = {
    "exact": [1.0, 2.0],
    "others, exact": [2.0, 3.5],
    "in buckets": [1.0 + i / 7 for i in range(40)],
    "in coarse buckets": [math.exp(i / 10) * sign for i in range(-2_000, 2_000, 3) for sign in (1, -1)],
    "negative": [-1.0 - i / 9 for i in range(30)],
    "none": [],
}


def folded_once(a: agg.Accumulator, *parts: bytes, added: Sequence[float] = ()) -> bytes:
    """Returns one sketch of several, and of these values."""
    starts = np.cumsum([0, *(len(part) // 8 for part in parts)])
    elements = sketches.elements(a, np.array(added, np.float64).view(np.int64), 0, np.empty(0, np.uint8))
    groups = np.zeros(len(parts), np.int64)
    words = np.frombuffer(b"".join(parts), np.int64)
    found, ends = sketches.folded(a, words, starts, groups, elements, np.zeros(len(added), np.int64), 1)
    return found[: ends[-1]].tobytes()


@pytest.mark.parametrize("aggregate", [agg.percentile("x", 0.5, exact_up_to=4), agg.count_distinct("x", exact_up_to=4)])
def test_sketches_that_were_cut_by_other_bits_are_joined_to_that_of_all_values(aggregate: agg.Aggregate) -> None:
    (a,) = plan(count_window(2), ["k"], one=aggregate).accumulators
    alone = {name: folded_once(a, added=values) for name, values in PARTS.items()}
    heads = [int.from_bytes(sketch[:8], "little") for sketch in alone.values() if sketch]
    assert heads == ([0, 0, 45, 52, 45] if aggregate.function == "percentile" else [0, 0, 1, 1, 1])
    for chosen in permutations(PARTS, 3):
        *two, last = chosen
        values = plain_sketches.Values(plain_sketches.element(a, x) for name in chosen for x in PARTS[name])
        expected = plain_sketches.encoded(a, values)
        assert folded_once(a, *(alone[name] for name in chosen)) == expected, chosen
        assert folded_once(a, *(alone[name] for name in two), added=PARTS[last]) == expected, chosen


@pytest.mark.parametrize("larger_first", [True, False])
def test_sessions_that_become_one_have_the_sketch_of_all_their_values(larger_first: bool) -> None:
    p = plan(session_window(5), ["k"], median=agg.percentile("x", 0.5, exact_up_to=3))
    few, many = [1.0, 2.0], [1.0 + i / 7 for i in range(40)]
    first, second = (many, few) if larger_first else (few, many)
    operator = p.fresh()
    operator.begin()
    for rows in ([row(0, x, 0) for x in first], [row(0, x, 8) for x in second], [row(0, 0.25, 4)]):
        list(operator.feed([rows_table(rows, operator.input_end)]))
    assert operator.open_windows == 1
    (a,) = p.accumulators
    values = plain_sketches.Values(plain_sketches.element(a, x) for x in (*few, *many, 0.25))
    assert operator.save(0, Limits()).opened[-1].to_pylist() == [plain_sketches.encoded(a, values)]


def test_recoveries_and_cuts_change_nothing(tmp_path: Path) -> None:
    p = plan(
        session_window(5), ["k"], few=agg.count_distinct("v", exact_up_to=5), low=agg.percentile("x", 0.25),
        high=agg.percentile("x", 0.75, exact_up_to=4),
    )  # fmt: skip
    rng = Random(4)
    times = sorted(rng.randrange(200) for _ in range(200))
    rows = [{**row(rng.randrange(30), rng.random(), t), "k": rng.randrange(3)} for t in times] + [row(1, 1.0, 1_000)]
    lost = iter(range(10_000))
    s = Streams(p, lambda _: StateCache(tmp_path / str(next(lost))))
    for first in range(0, len(rows), 20):
        s.append(rows[first : first + 20])
        s.drain()
    expected = uninterrupted(p, rows, 1_000 - 8)
    assert s.results() == expected
    assert {True, False} == set(expected.column("few_is_approximate").to_pylist())


def test_what_makes_no_sense_is_refused() -> None:
    for build in (
        lambda: agg.percentile("x", 50),
        lambda: agg.percentile("x", True),
        lambda: agg.count_distinct("x", exact_up_to=-1),
        lambda: agg.percentile("x", 0.5, exact_up_to=10_000_000),
        lambda: agg.count_distinct(7),  # type: ignore[arg-type]
    ):
        with pytest.raises(OptionError):
            build()
    with pytest.raises(SchemaError, match="percentile does not take a string"):
        plan(count_window(2), ["k"], one=agg.percentile("s", 0.5))
    with pytest.raises(SchemaError, match="need a column 'n_is_approximate'"):
        plan(count_window(2), ["k"], n=agg.count_distinct("s"), n_is_approximate=agg.count_all())


def test_its_options_are_part_of_what_a_stream_is() -> None:
    storage = MemoryStorage()
    p = plan(count_window(2), ["k"], one=agg.percentile("x", 0.5))
    assert p.to_json()["aggregates"] == {"one": ["percentile", "x", "double", {"p": 0.5, "exact_up_to": 1000}]}
    log = Log.create(storage, output_spec(p))
    assert definition_of(log.spec, "here").accumulators == p.accumulators
    for other in (agg.percentile("x", 0.6), agg.percentile("x", 0.5, exact_up_to=10)):
        with pytest.raises(StreamMismatchError, match="another operator"):
            Log.create(storage, output_spec(plan(count_window(2), ["k"], one=other)))


def test_they_are_shown_as_they_are_written() -> None:
    assert repr(agg.percentile("x", 0.5)) == 'percentile("x", 0.5)'
    assert repr(agg.count_distinct("x", exact_up_to=5)) == 'count_distinct("x", exact_up_to=5)'
