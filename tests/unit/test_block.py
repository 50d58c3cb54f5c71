"""A block is what was written, or it is refused: before it is published, and whenever it is read."""

import datetime as dt
import decimal
import io
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.control_columns import KIND, OFFSET
from strandline.errors import CorruptBlockError, NullTimeError, StorageError
from strandline.log.stream import block as blocks_
from strandline.log.stream.block import Block
from strandline.log.stream.column_types import block_schema
from strandline.log.stream.spec import StreamSpec
from tests.support.items import encode, item_spec, item_table

SPEC = item_spec()
STAMPED = replace(SPEC, format=1)
"""Its files have offsets and kinds, as those of operators do."""
ROWS = [(1, 10, 100), (2, 20, 101), (3, 30, 102)]


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def described(table: pa.Table, first: int = 0, spec: StreamSpec = SPEC) -> Block:
    return blocks_.describe(encode(table, spec), spec, 1, first, "blocks/p00001/file.parquet")


def test_a_block_is_described_by_its_footer() -> None:
    data = encode(item_table(SPEC, 7, ROWS), SPEC)
    block = blocks_.describe(data, SPEC, 1, 7, "file")
    assert (block.partition, block.file, block.first, block.end, block.tuples) == (1, "file", 7, 10, 3)
    assert (block.time_min, block.time_max, block.rows) == (100, 102, {"result": 3})
    assert (block.size_bytes, block.checksum) == (len(data), blocks_.checksum(data))


def test_times_are_counted_in_microseconds() -> None:
    spec = item_spec(time_type="timestamp")
    block = described(item_table(spec, 0, ROWS), spec=spec)
    assert (block.time_min, block.time_max) == (100, 102)


def test_null_times_are_refused_with_their_number_and_column() -> None:
    table = item_table(SPEC, 0, ROWS)
    table = table.set_column(2, "t", pa.array([100, None, None], pa.int64()))
    with pytest.raises(NullTimeError, match=r"2 of 3 tuples have no time \(t is null\)") as refused:
        described(table)
    assert "partition 1" in refused.value.where
    assert "t is not null" in refused.value.todo


def test_only_null_times_are_refused_as_well() -> None:
    table = item_table(SPEC, 0, ROWS).set_column(2, "t", pa.nulls(3, pa.int64()))
    with pytest.raises(NullTimeError, match="3 of 3"):
        described(table)


@pytest.mark.parametrize("offsets", [[1, 2, 3], [0, 1, 3], [0, 0, 1], [-1, 0, 1]])
def test_offsets_that_are_not_dense_are_refused(offsets: list[int]) -> None:
    table = item_table(STAMPED, 0, ROWS).set_column(3, OFFSET, pa.array(offsets, pa.int64()))
    with pytest.raises(StorageError, match="offsets run from"):
        described(table, spec=STAMPED)


def test_a_block_without_tuples_is_refused() -> None:
    with pytest.raises(StorageError, match="without tuples"):
        described(item_table(SPEC, 0, ROWS).slice(0, 0))


def test_a_row_group_that_mixes_kinds_is_refused() -> None:
    table = item_table(STAMPED, 0, ROWS).set_column(4, KIND, pa.array([0, 1, 0], pa.int8()))
    sink = io.BytesIO()
    with blocks_.block_writer(sink, STAMPED) as writer:
        writer.write_table(table)
    with pytest.raises(StorageError, match="mixes kinds"):
        blocks_.describe(sink.getvalue(), STAMPED, 0, 0, "file")


def test_a_block_without_statistics_is_refused() -> None:
    sink = io.BytesIO()
    pq.write_table(item_table(SPEC, 0, ROWS), sink, write_statistics=["k"])
    for spec in (SPEC, STAMPED):
        with pytest.raises(StorageError, match="has no statistics"):
            blocks_.describe(sink.getvalue(), spec, 0, 0, "file")


def test_tuples_of_several_kinds_lie_apart_and_are_read_in_the_order_of_offsets() -> None:
    table = item_table(STAMPED, 0, ROWS).set_column(4, KIND, pa.array([1, 0, 1], pa.int8()))
    data = encode(table, STAMPED)
    groups = pq.ParquetFile(pa.BufferReader(data)).metadata
    assert [groups.row_group(g).num_rows for g in range(groups.num_row_groups)] == [1, 2]
    assert blocks_.decode(data, STAMPED, 0).column(OFFSET).to_pylist() == [0, 1, 2]
    assert blocks_.decode(data, STAMPED, 0).column("k").to_pylist() == [1, 2, 3]


def test_bytes_that_are_not_those_published_are_named_with_file_partition_and_offsets() -> None:
    data = encode(item_table(SPEC, 7, ROWS), SPEC)
    block = blocks_.describe(data, SPEC, 1, 7, "blocks/p00001/file.parquet")
    assert blocks_.verified(data, block, "here") == data
    for rotten in (data[:-1], data + b"\0", b"", bytes([data[0] ^ 1]) + data[1:]):
        with pytest.raises(CorruptBlockError) as refused:
            blocks_.verified(rotten, block, "here")
        assert "here/blocks/p00001/file.parquet, partition 1, offsets 7 to 9" in str(refused.value)
        assert "restore this file" in refused.value.todo
        assert refused.value.stream == "here"


@pytest.mark.parametrize("spec", [SPEC, STAMPED], ids=["tuples only", "stamped"])
def test_columns_asked_for_come_with_the_control_columns(spec: StreamSpec) -> None:
    data = encode(item_table(spec, 7, ROWS), spec)
    assert blocks_.decode(data, spec, 7).equals(item_table(spec, 7, ROWS))
    assert blocks_.decode(data, spec, 7, ["v"]).column_names == ["v", OFFSET, KIND]
    assert blocks_.decode(data, spec, 7, []).column_names == [OFFSET, KIND]
    assert blocks_.decode(data, spec, 7, []).column(OFFSET).to_pylist() == [7, 8, 9]


def test_any_parquet_reader_reads_a_block() -> None:
    data = encode(item_table(SPEC, 7, ROWS), SPEC)
    table = pq.read_table(pa.BufferReader(data), page_checksum_verification=True)
    assert table.to_pylist()[0] == {"k": 1, "v": 10, "t": 100}
    data = encode(item_table(STAMPED, 7, ROWS), STAMPED)
    assert pq.read_table(pa.BufferReader(data)).to_pylist()[0] == {"k": 1, "v": 10, "t": 100, OFFSET: 7, KIND: 0}


def test_a_name_begins_with_the_offset_of_the_first_tuple() -> None:
    assert SPEC.file(1, 7, "x") == "blocks/p00001/00000000000000000007-x.parquet"
    assert SPEC.file(SPEC.late, (1 << 63) - 1, "x") == "late/09223372036854775807-x.parquet"


NEW_YEAR = dt.datetime(2026, 1, 1, 12, 30, 15, 123456)
VALUES: dict[str, tuple[Any, list[Any]]] = {
    "byte": ("byte", [-128, None, 127]),
    "short": ("short", [-(1 << 15), None, (1 << 15) - 1]),
    "integer": ("integer", [-(1 << 31), None, (1 << 31) - 1]),
    "long": ("long", [-(1 << 63), None, (1 << 63) - 1]),
    "float": ("float", [-0.5, None, float("inf")]),
    "double": ("double", [1e300, None, -0.0]),
    "boolean": ("boolean", [True, None, False]),
    "string": ("string", ["", None, "Käse 🧀\0"]),
    "binary": ("binary", [b"", None, b"\0\xff"]),
    "date": ("date", [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "timestamp": ("timestamp", [NEW_YEAR.replace(tzinfo=dt.UTC), None, dt.datetime(1900, 1, 1, tzinfo=dt.UTC)]),
    "timestamp_ntz": ("timestamp_ntz", [NEW_YEAR, None, dt.datetime(1900, 1, 1)]),
    "decimal": ("decimal(38,10)", [decimal.Decimal("-1.5000000000"), None, decimal.Decimal("9" * 28 + "." + "9" * 10)]),
    "array": ({"type": "array", "elementType": "long", "containsNull": True}, [[], None, [1, None, 3]]),
    "map": (
        {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True},
        [[], None, [("a", 1.0), ("b", None)]],
    ),
    "struct": (
        {"type": "struct", "fields": [field("x", "long"), field("y", "string")]},
        [{"x": 1, "y": None}, None, {"x": None, "y": "z"}],
    ),
    "nested": (
        {"type": "array", "elementType": {"type": "struct", "fields": [field("x", "date")]}, "containsNull": True},
        [[{"x": None}], None, [{"x": dt.date(2026, 1, 1)}, None]],
    ),
}


@pytest.mark.parametrize(("kind", "values"), VALUES.values(), ids=VALUES)
def test_every_type_of_column_comes_back_as_it_was(kind: Any, values: list[Any]) -> None:
    fields = [field("k", "long"), field("x", kind), field("t", "long")]
    spec = StreamSpec(id="s", schema={"type": "struct", "fields": fields}, key=("k",), time="t", partitions=1)
    columns = [[1, 2, 3], values, [5, 6, 7], [0, 1, 2], [0, 0, 0]]
    schema = block_schema(spec.arrow)
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    data = encode(table, spec)
    assert blocks_.describe(data, spec, 0, 0, "file").end == 3
    found = blocks_.decode(data, spec, 0)
    assert found.schema == schema
    assert found.equals(table)


@pytest.mark.parametrize("kind", ["byte", "short", "integer", "long", "timestamp", "timestamp_ntz"])
def test_every_type_of_time_is_found_in_the_footer(kind: str) -> None:
    spec = item_spec(time_type=kind)
    rows = [(1, 1, -3), (1, 1, 5)]
    table = item_table(spec, 0, rows)
    block = blocks_.describe(encode(table, spec), spec, 0, 0, "file")
    assert (block.time_min, block.time_max) == (-3, 5)
