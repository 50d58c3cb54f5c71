"""Columns of kept tuples that no kernel looks at: by number, in few chunks, none of them larger than it may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strandline import arrow_rows
from strandline.arrow_rows import in_order, portions, row_bytes, rows_of, sizes_at, taken
from strandline.operators.open_windows import payloads as payloads_
from strandline.operators.open_windows.payloads import CHUNKS_MAX, ROW_BYTES, Payloads

SCHEMA = pa.schema([("a", pa.int64()), ("l", pa.list_(pa.string()))])


def own(rows: range, width: int = 1) -> pa.Table:
    return pa.Table.from_pylist([{"a": i, "l": [str(i) * width] * (i % 4)} for i in rows], schema=SCHEMA)


def filled(rng: np.random.Generator, batches: int, width: int = 1) -> tuple[Payloads, int]:
    store, rows = Payloads(SCHEMA), 0
    for many in rng.integers(1, 30, batches).tolist():
        store.add(rows, own(range(rows, rows + many), width), rows + many)
        rows += many
    return store, rows


def test_payloads_keep_their_numbers_while_chunks_are_merged_and_travel() -> None:
    rng = np.random.default_rng(0)
    store, rows = filled(rng, 200)
    assert store.end == store.rows == rows
    assert (store.table[:, 3] > 0).sum() < 20
    wanted = rng.permutation(rows)[:500]
    store = Payloads(SCHEMA, store.arena, store.table)
    assert store.taken(wanted).column("a").to_pylist() == wanted.tolist()
    store.choose(wanted)
    assert (store.rows, store.end, store.first) == (500, 500, 0)
    places = np.where(np.arange(500) % 3 == 0, np.arange(500), -1)
    expected = [[str(w)] * (w % 4) if p >= 0 else None for w, p in zip(wanted.tolist(), places.tolist(), strict=True)]
    assert store.taken(places).column("l").to_pylist() == expected
    new = rows_of(own(range(9_000, 9_003)))
    assert store.taken(np.array([502, 0]), new, ["a"]).to_pydict() == {"a": [9_002, int(wanted[0])]}


def test_no_chunk_is_larger_than_it_may_be_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads_, "CHUNK_BYTES_MAX", 2_000)
    store, rows = filled(np.random.default_rng(1), 200, width=20)
    many = int((store.table[:, 3] > 0).sum())
    assert many > CHUNKS_MAX, "more than there is room for at first"
    assert store.is_replaced
    again = Payloads(SCHEMA, store.arena, store.table)
    assert all(part.total <= 2_000 or len(part) == 1 for part in again._parts())
    order = np.random.default_rng(2).permutation(rows)
    assert again.taken(order).column("a").to_pylist() == order.tolist()
    again.choose(order[:700])
    assert all(part.total <= 2_000 or len(part) == 1 for part in again._parts())
    assert again.taken(np.arange(700)).column("a").to_pylist() == order[:700].tolist()
    again.drop_before(300)
    first = again.first or 0
    assert again.taken(np.arange(700 - first)).column("a").to_pylist() == order[first:700].tolist()


@pytest.mark.parametrize("limit", [1, 100, 5_000, 1 << 30])
def test_rows_in_any_order_are_taken_without_a_large_array(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(arrow_rows, "ARRAY_BYTES_MAX", limit)
    rng = np.random.default_rng(limit)
    table = pa.concat_tables([own(range(i, i + 10), width=5) for i in range(0, 100, 10)])
    places = rng.integers(-1, 100, 300)
    found = taken(rows_of(table), places, SCHEMA)
    expected = [{"a": None, "l": None} if p < 0 else table.slice(int(p), 1).to_pylist()[0] for p in places]
    assert found.to_pylist() == expected
    for batch in found.to_batches():
        (part,) = rows_of(pa.Table.from_batches([batch]))
        assert part.total <= limit or len(part) == 1
    order = rng.permutation(100)
    assert in_order(table, order).column("a").to_pylist() == order.tolist()


@pytest.mark.parametrize(
    ("values", "kind", "sizes"),
    [
        ([1, None], pa.int64(), 9),
        ([True, None], pa.bool_(), 2),
        (["abc", None, ""], pa.string(), [8, 5, 5]),
        ([b"abc", b"x" * 100], pa.binary(), [8, 105]),
        ([[1, 2], [], None], pa.list_(pa.int32()), [15, 5, 5]),
        ([["abc", "d"], [], ["ab"]], pa.list_(pa.string()), [5 + 8 + 6, 5, 5 + 7]),
        ([[("k", 1)], []], pa.map_(pa.string(), pa.int64()), [5 + 1 + 6 + 9, 5]),
        ([{"x": "abc"}, {"x": None}], pa.struct([("x", pa.string())]), [9, 6]),
        ([None, None], pa.null(), 0),
    ],
)
def test_rows_have_so_many_bytes(values: list[Any], kind: pa.DataType, sizes: int | list[int]) -> None:
    array = pa.array(values, kind)
    found = row_bytes(array)
    assert (found if isinstance(found, int) else found.tolist()) == sizes
    if not isinstance(found, int):
        assert row_bytes(array.slice(1)).tolist() == found[1:].tolist()  # type: ignore[union-attr]


def test_portions_are_whole_rows_and_all_of_them() -> None:
    assert list(portions(10, 0, 5)) == []
    assert list(portions(10, 3, 30)) == [(0, 3)]
    assert list(portions(10, 5, 25)) == [(0, 2), (2, 4), (4, 5)]
    assert list(portions(np.array([1, 50, 1, 1, 9]), 5, 10)) == [(0, 1), (1, 2), (2, 4), (4, 5)]


TEXTS = pa.schema([("s", pa.string())])


def texts(rows: int, width: int) -> pa.Table:
    return pa.table({"s": pa.array(["x" * width] * rows)})


def test_a_few_live_tuples_do_not_hold_the_bytes_of_many_dead_ones() -> None:
    store, rows = Payloads(TEXTS), 0
    for _ in range(4):
        store.add(rows, texts(500, 60_000), rows + 500)
        rows += 500
    store.drop_before(rows - 1)
    assert store.arena.nbytes < 8 << 20
    assert store.taken(np.array([rows - 1 - (store.first or 0)])).column("s").to_pylist() == ["x" * 60_000]


def test_the_arena_shrinks_when_a_burst_is_over() -> None:
    store, rows = Payloads(TEXTS), 0
    for _ in range(20):
        store.add(rows, texts(2_000, 1_000), rows + 2_000)
        rows += 2_000
    assert store.arena.nbytes > 40_000_000
    replaced = 0
    for _ in range(100):
        store.begin()
        store.drop_before(rows - 10)
        store.add(rows, texts(10, 1_000), 20)
        replaced += store.is_replaced
        rows += 10
    assert store.arena.nbytes < 8 << 20
    assert replaced < 5
    live = np.arange(rows - 20, rows) - (store.first or 0)
    again = Payloads(TEXTS, store.arena, store.table)
    assert again.taken(live).column("s").to_pylist() == ["x" * 1_000] * 20


def test_a_window_in_its_steady_state_writes_each_payload_once() -> None:
    store, written, kept, batch = Payloads(TEXTS), 0, 65_536, 8_192
    for rows in range(0, 8 * kept, batch):
        store.begin()
        store.drop_before(rows - kept + batch // 3)
        store.add(rows, texts(batch, 500), kept)
        if rows >= 2 * kept:
            written += len(store.changed) * ROW_BYTES
            assert not store.is_replaced
    assert written < 1.1 * 6 * kept * (500 + 4)


def test_payloads_of_another_time_are_told_from_broken_ones() -> None:
    with pytest.raises(ValueError, match="another time"):
        Payloads(TEXTS, np.zeros((4, ROW_BYTES), np.uint8), np.ones((3, 4), np.int64))


def test_sizes_are_looked_up_only_in_parts_that_own_a_place() -> None:
    parts = [rows_of(texts(10, width))[0] for width in (1, 2, 3)]
    assert sizes_at(parts, np.array([25, -1, 0, 29, 9])).tolist() == [8, 6, 6, 8, 6]  # type: ignore[union-attr]
    assert ["sizes" in vars(part) for part in parts] == [True, False, True]
    assert sizes_at([], np.array([-1])) == 0
    numbers = rows_of(pa.table({"a": [1, 2]}))
    mixed = sizes_at([*numbers, *parts[:1]], np.array([3, 1]))
    assert np.asarray(mixed).tolist() == [6, 9]
