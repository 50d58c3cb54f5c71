"""Results without Spark: any part of a stream as Arrow, pandas, polars or batches."""

import datetime as dt
import decimal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import strandline as sl
from strandline.clock import ManualClock
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import block as blocks_
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block import Block
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import collect, truncate
from tests.support.items import append_items, item_spec

HOUR_US = 3_600_000_000


def new_log(path: Path, spec: StreamSpec) -> Log:
    return Log.create(LocalStorage(str(path), "os"), spec, ManualClock(1_000_000))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Two partitions of 40 items in four blocks each: v counts up in each, t is v hours after 1970."""
    log = new_log(tmp_path / "s", item_spec(2, time_type="timestamp", lateness=HOUR_US))
    for b in range(4):
        rows = [(i % 5, i, i * HOUR_US) for i in range(10 * b, 10 * b + 10)]
        append_items(log, {0: rows, 1: [(k, 1_000 + v, t) for k, v, t in rows]})
    return log


@pytest.fixture
def stream(log: Log) -> sl.Stream:
    return sl.stream(log.storage.url)


def values(table: pa.Table) -> list[int]:
    found: list[int] = table.column("v").to_pylist()
    return found


def test_everything_comes_partition_by_partition_in_the_order_of_offsets(stream: sl.Stream, log: Log) -> None:
    table = stream.to_arrow(positions=True)
    assert table.schema == pa.schema([*log.spec.arrow, ("_partition", pa.int32()), ("_offset", pa.int64())])
    places = list(zip(*(table.column(c).to_pylist() for c in ("_partition", "_offset", "v")), strict=True))
    assert places == [(p, i, 1_000 * p + i) for p in range(2) for i in range(40)]
    assert stream.to_arrow().schema == log.spec.arrow


BOUNDS: list[tuple[dict[str, Any], Sequence[int]]] = [
    ({"since": 15 * HOUR_US}, range(15, 40)),
    ({"until": dt.datetime(1970, 1, 1, 5, tzinfo=dt.UTC)}, range(5)),
    ({"since": "1970-01-01T03:00Z", "until": "1970-01-01T07:00Z"}, range(3, 7)),
    ({"since": {0: 12, 1: 12}, "until": {0: 33, 1: 33}}, range(12, 33)),
    ({"since": {0: 12, 1: 12}, "until": 20 * HOUR_US}, range(12, 20)),
    ({"since": {0: 5, 1: 5}, "until": {0: 5, 1: 5}}, range(0)),
    ({"since": "2026-01-01"}, range(0)),
]


@pytest.mark.parametrize(("bounds", "expected"), BOUNDS, ids=[str(b[0]) for b in BOUNDS])
def test_bounds_are_those_of_read(stream: sl.Stream, bounds: dict[str, Any], expected: Sequence[int]) -> None:
    assert values(stream.to_arrow(**bounds)) == [1_000 * p + v for p in range(2) for v in expected]


def test_blocks_outside_of_the_bounds_are_not_opened(stream: sl.Stream, log: Log) -> None:
    outside = {b.file for p in range(2) for b in log.blocks(p, first=20)}
    for file in outside:
        log.storage.delete(file)
    assert values(stream.to_arrow(until=20 * HOUR_US, columns=["v"])) == [
        1_000 * p + v for p in range(2) for v in range(20)
    ]
    assert len(stream.to_arrow(until={0: 20, 1: 20})) == 40
    with pytest.raises(sl.CorruptBlockError, match="gone"):
        stream.to_arrow()


def test_only_the_columns_asked_for_are_read_and_in_that_order(stream: sl.Stream) -> None:
    assert stream.to_arrow(columns=["v", "k"]).column_names == ["v", "k"]
    assert stream.to_arrow(columns="v").column_names == ["v"]
    assert stream.to_arrow(columns=["k"], since=10 * HOUR_US, positions=True).column_names == [
        "k",
        "_partition",
        "_offset",
    ]
    assert stream.to_arrow(columns=[]).num_columns == 0
    with pytest.raises(sl.OptionError, match="no column 'price'") as refused:
        stream.to_arrow(columns=["price"])
    assert "k, v, t" in refused.value.todo
    with pytest.raises(sl.OptionError, match="twice"):
        stream.to_arrow(columns=["k", "k"])


def test_batches_are_bounded_and_their_reader_knows_the_schema(stream: sl.Stream) -> None:
    reader = stream.to_batches(rows=7, columns=["v"])
    assert reader.schema == pa.schema([("v", pa.int64())])
    batches = list(reader)
    assert {len(b) for b in batches} == {7, 3}
    assert values(pa.Table.from_batches(batches)) == values(stream.to_arrow())
    assert stream.to_batches(since="2026-01-01").read_all().num_rows == 0
    for rows in (0, True, 1.5):
        with pytest.raises(sl.OptionError, match="rows="):
            stream.to_batches(rows=rows)  # type: ignore[arg-type]


def test_batches_show_what_was_published_when_they_were_asked_for(stream: sl.Stream, log: Log) -> None:
    batches = stream.to_batches(columns=["v"])
    first = next(batches)
    append_items(log, {p: [(0, -1, 40 * HOUR_US)] for p in range(2)})
    assert stream.offsets() == {0: 41, 1: 41}
    assert len(first) + sum(map(len, batches)) == 80
    assert len(stream.to_arrow()) == 82


def test_a_reader_under_way_outlives_compaction_and_collection(stream: sl.Stream, log: Log) -> None:
    batches = stream.to_batches(columns=["v"])
    found = [next(batches)]
    compact(log, blocks_min=2)
    assert isinstance(log.clock, ManualClock)
    for _ in range(2):
        log.clock.advance(10)
        collect(log, grace_us=0)
    found += list(batches)
    assert values(pa.Table.from_batches(found)) == [1_000 * p + v for p in range(2) for v in range(40)]


def test_what_is_dropped_under_way_is_said_and_not_skipped(stream: sl.Stream, log: Log) -> None:
    batches = stream.to_batches()
    next(batches)
    truncate(log, before_offset={0: 30, 1: 30})
    stream.offsets()
    with pytest.raises(sl.TruncatedError):
        list(batches)
    assert len(stream.to_arrow()) == 20
    with pytest.raises(sl.TruncatedError):
        stream.to_arrow(since={0: 5})


def test_a_rotten_block_is_no_result(stream: sl.Stream, log: Log) -> None:
    block = next(log.blocks(1, first=20))
    path = Path(str(log.storage.local_path(block.file)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    for read in (stream.to_arrow, stream.to_pandas, lambda: list(stream.to_batches(columns=["k"]))):
        with pytest.raises(sl.CorruptBlockError, match="partition 1, offsets 20 to 29"):
            read()
    assert len(stream.to_arrow(until={1: 20})) == 60


def test_the_side_log_has_its_reasons(stream: sl.Stream, log: Log) -> None:
    from tests.support.items import write_items

    log.append(Append([write_items(log.storage, log.spec, log.spec.late, 0, [(1, 7, 0), (1, 8, HOUR_US)], "late")]))
    table = stream.to_arrow(late=True, positions=True)
    assert table.select(["v", "_partition", "_offset", "_reason"]).to_pylist() == [
        {"v": 7, "_partition": None, "_offset": 0, "_reason": "late"},
        {"v": 8, "_partition": None, "_offset": 1, "_reason": "late"},
    ]
    assert values(stream.to_arrow(late=True, since=HOUR_US)) == [8]
    with pytest.raises(sl.OptionError, match="late=True"):
        stream.to_arrow(late=True, since={0: 0})


def test_pandas_gets_the_same(stream: sl.Stream) -> None:
    frame = stream.to_pandas(columns=["t", "v"], since="1970-01-02T14:00Z")
    assert list(frame["v"]) == [38, 39, 1038, 1039]
    assert str(frame["t"].dtype) == "datetime64[us, UTC]"
    assert frame["t"].iloc[0].isoformat() == "1970-01-02T14:00:00+00:00"


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_package_that_is_missing_is_named(stream: sl.Stream, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(sl.OptionError, match=f"needs the package {name}") as refused:
        getattr(stream, f"to_{name}")()
    assert refused.value.todo == f"pip install {name}"


def test_polars_gets_the_same(stream: sl.Stream) -> None:
    polars = pytest.importorskip("polars")
    frame = stream.to_polars(columns=["v"])
    assert isinstance(frame, polars.DataFrame)
    assert frame["v"].to_list() == values(stream.to_arrow())


def test_an_empty_stream_has_columns_and_no_rows(tmp_path: Path) -> None:
    log = new_log(tmp_path / "empty", item_spec(3))
    stream = sl.stream(log.storage.url)
    assert stream.to_arrow(positions=True).column_names == ["k", "v", "t", "_partition", "_offset"]
    assert stream.to_arrow().schema == log.spec.arrow
    assert stream.to_pandas().shape == (0, 3)
    assert list(stream.to_batches()) == []


def append_table(log: Log, table: pa.Table) -> Block:
    data = blocks_.encode_parts(
        [(Kind.RESULT, [c.combine_chunks() for c in table.columns])], log.spec, log.state.ends[0]
    )
    file = log.spec.file(0, log.state.ends[0], f"block{log.state.seq + 1}")
    log.storage.create(file, data)
    block = blocks_.describe(data, log.spec, 0, log.state.ends[0], file)
    log.append(Append([block]))
    return block


def test_times_of_any_year_nested_columns_and_odd_names_come_through(tmp_path: Path) -> None:
    types: list[tuple[str, Any]] = [
        ("k", "long"),
        ("at", "timestamp"),
        ("local.time", "timestamp_ntz"),
        ("day", "date"),
        ("price", "decimal(38,10)"),
        ("tags", {"type": "array", "elementType": "string", "containsNull": True}),
        ("by", {"type": "map", "keyType": "string", "valueType": "timestamp", "valueContainsNull": True}),
    ]
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in types]
    log = new_log(tmp_path / "odd", StreamSpec("odd", {"type": "struct", "fields": fields}, ("k",), "at", 1, None))
    years = [1, 1677, 1970, 2262, 9999]
    moments = [dt.datetime(year, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC) for year in years]
    rows = [
        {
            "k": i,
            "at": moment,
            "local.time": moment.replace(tzinfo=None),
            "day": moment.date(),
            "price": decimal.Decimal("1234567890123456789012345678.0123456789"),
            "tags": ["a", None],
            "by": [("x", moment)],
        }
        for i, moment in enumerate(moments)
    ]
    append_table(log, pa.Table.from_pylist([*rows, {"k": 9, "at": moments[-1]}], schema=log.spec.arrow))
    stream = sl.stream(log.storage.url)
    assert stream.to_arrow().to_pylist()[:-1] == rows
    frame = stream.to_pandas()
    assert [t.year for t in frame["at"]] == [*years, 9999]
    assert [t.year for t in frame["local.time"].dropna()] == years
    assert list(frame["day"].dropna()) == [m.date() for m in moments]
    assert frame["price"].iloc[0] == rows[0]["price"]
    assert list(frame["tags"].iloc[0]) == ["a", None]
    assert [item[0][1].year for item in frame["by"].dropna()] == years
    assert stream.to_arrow(since=dt.datetime(9999, 1, 1, tzinfo=dt.UTC), columns=["local.time"]).num_rows == 2


def test_a_thousand_partitions_are_read_in_their_order(tmp_path: Path) -> None:
    log = new_log(tmp_path / "many", item_spec(1_000))
    append_items(log, {p: [(p, p, 1)] for p in range(0, 1_000, 3)})
    assert values(sl.stream(log.storage.url).to_arrow(columns=["v"])) == list(range(0, 1_000, 3))
