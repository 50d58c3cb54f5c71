"""Joins: what is refused, what results look like, what tuples without a key do, how much memory a kept tuple takes."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from strandline.errors import InputError, OptionError, SchemaError
from strandline.operators.join.definition import JoinDefinition, JoinInput
from strandline.operators.join.join_kernels import take_in_trails
from strandline.operators.join.join_operator import JoinOperator
from strandline.operators.join.join_windows import _BAND_MAX as BAND_MAX
from strandline.operators.join.join_windows import JoinWindows, join_windows
from strandline.operators.open_windows.payloads import CHUNKS_MAX
from strandline.operators.operator import Limits
from strandline.units import END_OF_TIME, TIME_MAX
from tests.specification.plain_join import PlainJoin

SECOND = 1_000_000


@dataclass(frozen=True)
class Counted:
    """A count window as users write it."""

    size: int
    advance: int
    kind: str = "count"


def last(n: int, advance: int | None = None) -> Counted:
    return Counted(n, n if advance is None else advance)


ORDERS = JoinInput({"id": "long", "at": "long", "amount": "double"}, ("id",), "at")
PAYMENTS = JoinInput({"id": "long", "at": "long", "paid": "string"}, ("id",), "at")


def orders(*rows: tuple[int, int | None, int, float]) -> pa.Table:
    return _table(rows, ["_offset", "id", "at", "amount"], [pa.int64(), pa.int64(), pa.int64(), pa.float64()])


def payments(*rows: tuple[int, int | None, int, str]) -> pa.Table:
    return _table(rows, ["_offset", "id", "at", "paid"], [pa.int64(), pa.int64(), pa.int64(), pa.string()])


def _table(rows: Any, names: list[str], types: list[pa.DataType]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)


def results(join: JoinOperator, left: pa.Table, right: pa.Table, boundary: int | None = None) -> list[tuple[Any, ...]]:
    names = [name for name, _ in join.definition.result_columns]
    parts = list(join.feed([left, right]))
    if boundary is not None and (more := join.advance(boundary)) is not None:
        parts.append(more)
    return [tuple(row.values()) for part in parts for row in pa.table(part, names=names).to_pylist()]


# ---------------------------------------------------------------------- windows and columns


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "no window, neither within= nor left= and right="),
        ({"left": last(3)}, "right= is missing"),
        ({"within": "10 s", "left": last(3)}, "within= cannot be combined with these options"),
        ({"within": "10 s", "per": "partition"}, "within= cannot be combined with these options"),
        ({"within": ("5 s", "1 s")}, "is empty: it ends before it begins"),
        ({"within": ("5 s",)}, "is not a band"),
        ({"within": "-5 s"}, "is negative: one duration is the largest difference"),
        ({"within": ("soon", "5 s")}, "is not a duration"),
        ({"within": (None, "5 s")}, "is not a duration"),
        ({"within": "10 s", "how": "outer"}, "how='outer' is not known"),
        ({"left": last(3), "right": last(3), "how": "left"}, "how='left' needs within="),
        ({"left": last(3), "right": last(3), "per": "side"}, "per='side' is not known"),
        ({"left": 3, "right": last(3)}, "left=3 is not a window of tuples"),
        ({"left": last(3, 1), "right": last(3)}, "has an advance"),
        ({"left": last(-1), "right": last(3)}, "is too large"),
    ],
    ids=str,
)
def test_windows_that_cannot_be_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError) as refused:
        join_windows(**options)
    assert says in refused.value.what
    assert refused.value.todo


@pytest.mark.parametrize(
    ("within", "band"),
    [
        ("10 s", (-10 * SECOND, 10 * SECOND)),
        (("0 s", "5 min"), (0, 300 * SECOND)),
        (("-1 min", "-1 s"), (-60 * SECOND, -SECOND)),
        ((dt.timedelta(seconds=-2), np.timedelta64(2, "s")), (-2 * SECOND, 2 * SECOND)),
        ((-3, 4), (-3, 4)),
        (0, (0, 0)),
    ],
    ids=str,
)
def test_a_band_is_how_much_later_the_right_tuple_may_be(within: Any, band: tuple[int, int]) -> None:
    windows = join_windows(within=within)
    assert (windows.low, windows.high) == band
    assert JoinWindows.from_json(windows.to_json()) == windows


def test_results_have_the_key_the_later_time_and_all_columns_told_apart() -> None:
    d = JoinDefinition.of(ORDERS, PAYMENTS, join_windows(within=5))
    assert [name for name, _ in d.result_columns] == ["id", "time", "left_at", "amount", "right_at", "paid"]
    assert d.reads == (("id", "at", "amount"), ("id", "at", "paid"))
    found = results(d.fresh(), orders((0, 7, 10, 1.5)), payments((1, 7, 12, "card")))
    assert found == [(7, 12, 10, 1.5, 12, "card")]


def test_a_column_called_time_is_told_apart_from_the_time_of_results() -> None:
    left = JoinInput({"id": "long", "time": "long"}, ("id",), "time")
    d = JoinDefinition.of(left, PAYMENTS, join_windows(within=5))
    assert [name for name, _ in d.result_columns] == ["id", "time", "left_time", "at", "paid"]


@pytest.mark.parametrize(
    ("left", "right", "more", "says"),
    [
        (ORDERS, JoinInput({"no": "long", "at": "long"}, ("no",), "at"), {}, "different keys"),
        (ORDERS, JoinInput({"id": "string", "at": "long"}, ("id",), "at"), {}, "different keys"),
        (
            JoinInput({"id": "long", "at": "long", "left_at": "long"}, ("id",), "at"),
            PAYMENTS,
            {},
            "two columns of the results would be called 'left_at'",
        ),
        (
            JoinInput({"id": "long", "at": "long", "PAID": "long"}, ("id",), "at"),
            PAYMENTS,
            {},
            "would be called 'PAID'",
        ),
        (JoinInput({"id": "long", "at": "long", "_x": "long"}, ("id",), "at"), PAYMENTS, {}, "are reserved"),
        (JoinInput({"id": "long", "at": "long", "x": "interval"}, ("id",), "at"), PAYMENTS, {}, "cannot hold"),
        (ORDERS, PAYMENTS, {"group": 0}, "group=0"),
        (ORDERS, PAYMENTS, {"where": lambda left, right: left.sum > 0}, "left has no column 'sum'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_joins_that_cannot_be_are_refused(left: JoinInput, right: JoinInput, more: dict[str, Any], says: str) -> None:
    with pytest.raises((SchemaError, OptionError)) as refused:
        JoinDefinition.of(left, right, join_windows(within=5), **more)
    assert says in refused.value.what
    assert refused.value.todo


def test_a_definition_survives_its_json_and_a_journey() -> None:
    point = {"type": "struct", "fields": [{"name": "x", "type": "double", "nullable": True, "metadata": {}}]}
    left = JoinInput({"id": "long", "at": "long", "point": point}, ("id",), "at")
    for windows in (join_windows(within=("1 s", "2 s"), how="full"), join_windows(left=last(4), right=last(0))):
        d = JoinDefinition.of(left, PAYMENTS, windows, where=lambda left, right: left.at < right.at)
        again = JoinDefinition.from_json(d.to_json())
        assert again == d
        assert again.result_columns == d.result_columns
        moved: JoinDefinition = pickle.loads(cloudpickle.dumps(d))
        assert moved == d
        assert moved.fresh().open_windows == 0


# ---------------------------------------------------------------------- tuples


def test_tuples_without_a_key_match_nothing_and_come_out_of_an_outer_join() -> None:
    d = JoinDefinition.of(ORDERS, PAYMENTS, join_windows(within=5, how="left"))
    join = d.fresh()
    found = results(join, orders((0, None, 10, 1.0), (2, 1, 11, 2.0)), payments((1, None, 10, "x")), 100)
    assert found == [(None, 10, 10, 1.0, None, None), (1, 11, 11, 2.0, None, None)]
    assert join.open_windows == 0


def test_tuples_without_a_key_take_their_place_in_a_window_of_the_partition() -> None:
    d = JoinDefinition.of(ORDERS, PAYMENTS, join_windows(left=last(2), right=last(0), per="partition"))
    left = orders((0, 1, 10, 1.0), (1, 2, 10, 2.0), (2, None, 10, 3.0))
    assert results(d.fresh(), left, payments((3, 1, 11, "x"), (4, 2, 11, "y"))) == [(2, 11, 10, 2.0, 11, "y")]


def test_what_comes_out_unmatched_comes_before_what_follows_it() -> None:
    d = JoinDefinition.of(ORDERS, PAYMENTS, join_windows(within=5, how="full"))
    left = orders((0, 1, 10, 1.0), (3, 3, 17, 3.0))
    right = payments((1, 2, 11, "a"), (2, 3, 16, "b"))
    found = results(d.fresh(), left, right, 17)
    assert [row[0] for row in found] == [1, 2, 3]
    assert found[2] == (3, 17, 17, 3.0, 16, "b")


def test_times_at_the_edge_of_64_bits_are_refused_or_set_aside() -> None:
    d = JoinDefinition.of(ORDERS, PAYMENTS, join_windows(within=5))
    left = orders((0, 1, 10, 1.0), (1, 2, TIME_MAX + 1, 2.0))
    with pytest.raises(InputError, match="edge of what 64 bits hold") as refused:
        results(d.fresh(), left, payments())
    assert refused.value.where == "left input, place 1"
    join = d.fresh("set_aside")
    join.begin()
    assert results(join, left, payments((2, 1, 11, "x"))) == [(1, 11, 10, 1.0, 11, "x")]
    (table,) = join.aside.tables["time"]
    assert table.column("_ordinal").to_pylist() == [1]
    assert set(table.column_names) < {n for n, _ in [*d.result_columns, *d.control_columns]}
    assert not any(column.null_count for column in table.columns), "none that has no values"
    assert join.aside.nbytes > 0
    assert join.open_windows == 2


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("within", [5, (-BAND_MAX, BAND_MAX), (-BAND_MAX, -BAND_MAX), (BAND_MAX, BAND_MAX)])
def test_every_time_that_an_entry_point_lets_in_is_joined_as_the_specification_says(how: str, within: Any) -> None:
    d = JoinDefinition.of(ORDERS, PAYMENTS, join_windows(within=within, how=how))
    times = [-TIME_MAX, -TIME_MAX + 5, -TIME_MAX + BAND_MAX, 0, TIME_MAX - BAND_MAX, TIME_MAX - 5, TIME_MAX]
    left = orders(*((2 * n, 1, time, 1.0) for n, time in enumerate(times)))
    right = payments(*((2 * n + 1, 1, time, "x") for n, time in enumerate(times)))
    tuples = [(side, row) for side, table in enumerate((left, right)) for row in table.to_pylist()]
    for boundary in (TIME_MAX, END_OF_TIME):
        plain = PlainJoin(d)
        expected = [*plain.feed(sorted(tuples, key=lambda one: one[1]["_offset"])), *plain.advance(boundary)]
        assert results(d.fresh(), left, right, boundary) == [tuple(row.values()) for row in expected]


def test_arrays_of_another_join_are_refused() -> None:
    band = JoinDefinition.of(ORDERS, PAYMENTS, join_windows(within=5))
    counts = JoinDefinition.of(ORDERS, PAYMENTS, join_windows(left=last(3), right=last(3)))
    arrays = dict(band.fresh().image().arrays)
    with pytest.raises(ValueError, match="another join"):
        counts.revived(arrays)
    del arrays["left_records"]
    with pytest.raises(ValueError, match="no array"):
        band.revived(arrays)


# ---------------------------------------------------------------------- memory, chunks, compilation


def stream(rng: np.random.Generator, rows: int, first: int, time: int) -> list[pa.Table]:
    """Two sides of as many tuples, one after the other, a tick of time each."""
    tables = []
    for side, more in enumerate(("amount", "paid")):
        values: Any = rng.random(rows) if side == 0 else pa.array(["some text"] * rows)
        ordinals = np.arange(rows) * 2 + side
        columns = {"id": rng.integers(0, rows, rows), "at": time + ordinals, more: values}
        tables.append(pa.table({**columns, "_offset": first + ordinals}))
    return tables


OWN_BYTES = (24, 16 + 4 + len("some text"))
"""Of a tuple of left and of right: its columns as Arrow has them."""


@pytest.mark.parametrize(
    "windows",
    [
        JoinWindows("band", -20_000, 20_000),
        JoinWindows("band", -20_000, 20_000, how="left"),
        JoinWindows("partition", sizes=(10_000, 10_000)),
        JoinWindows("key", sizes=(2, 2)),
    ],
    ids=lambda w: f"{w.kind} {w.how}",
)
@pytest.mark.parametrize("rows", [30_000, 2_000])
def test_a_kept_tuple_takes_at_most_64_bytes_beside_its_columns(windows: JoinWindows, rows: int) -> None:
    d = JoinDefinition.of(ORDERS, PAYMENTS, windows)
    join, rng = d.fresh(), np.random.default_rng(1)
    for i in range(90_000 // rows):
        join.begin()
        list(join.feed(stream(rng, rows, 2 * rows * i, 2 * rows * i)))
        join.advance(2 * rows * (i + 1))
        join.end()
    arrays = join.image().arrays
    own = sum(OWN_BYTES[side] * ring[5] for side, ring in enumerate(join.rings))
    beside = (sum(a.nbytes for a in arrays.values()) - own) / join.open_windows
    assert join.open_windows > 900
    assert beside <= 64 + 16_000 / join.open_windows  # what is there without any tuple


def test_hundreds_of_tiny_batches_do_not_make_hundreds_of_chunks() -> None:
    d = JoinDefinition.of(ORDERS, PAYMENTS, JoinWindows("band", -4_000, 4_000))
    join, rng = d.fresh(), np.random.default_rng(2)
    for i in range(600):
        join.begin()
        list(join.feed(stream(rng, 8, 16 * i, 16 * i)))
        join.end()
    chunks = [int((payloads.table[:, 3] > 0).sum()) for payloads in join.payloads]
    assert max(chunks) < CHUNKS_MAX / 4


def test_what_a_small_step_changes_is_small() -> None:
    d = JoinDefinition.of(ORDERS, PAYMENTS, JoinWindows("band", -(10**6), 10**6))
    join, rng = d.fresh(), np.random.default_rng(3)
    list(join.feed(stream(rng, 50_000, 0, 0)))
    sizes = []
    for i in range(20):
        join.begin()
        list(join.feed(stream(rng, 10, 100_000 + 20 * i, 100_000 + 20 * i)))
        join.save(0, Limits(replay=math.inf))
        join.end()
        image = join.image()
        if image.changed is not None:
            sizes.append(sum(image.arrays[name][rows].nbytes for name, rows in image.changed.items()))
    assert len(sizes) >= 15
    assert max(sizes) < 40_000


def test_kernels_are_compiled_once_whatever_the_data_looks_like() -> None:
    """A kernel that is compiled again in mid-stream would hold up the stream for seconds."""
    for d in (
        JoinDefinition.of(ORDERS, PAYMENTS, join_windows(within=5, how="full")),
        JoinDefinition.of(ORDERS, PAYMENTS, join_windows(left=last(2), right=last(1), per="partition")),
    ):
        join = d.fresh()
        for first, key in ((0, 1), (10, None)):
            results(join, orders((first, key, first, 1.0)), payments())
            results(join, orders(), payments((first + 1, key, first, "x")))
            join = d.revived({name: array.copy() for name, array in join.image().arrays.items()})
    assert len(take_in_trails.signatures) == 1
