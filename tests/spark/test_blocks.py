"""The files of a stream: plain Parquet, the same whoever wrote it."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream import block_sequence
from strandline.log.stream.log import Log

pytestmark = pytest.mark.spark

WRITERS = ["native", "arrow"]


def blocks_of(path):
    log = Log.open(open_storage(str(path)))
    return [b for p in range(log.spec.late + 1) for b in log.blocks(p)]


@pytest.mark.long
def test_both_writers_publish_the_same(feed, drain, content, items, tmp_path):
    source = feed(items(300), items(10, first=50), items(300, first=300))
    facts = {}
    for writer in WRITERS:
        drain(source.df, tmp_path / writer, partitions=3, lateness="100 s", blocks=writer)
        facts[writer] = [
            (b.partition, b.first, b.end, b.rows, b.time_min, b.time_max) for b in blocks_of(tmp_path / writer)
        ]
    assert content(tmp_path / "native") == content(tmp_path / "arrow")
    assert facts["native"] == facts["arrow"]
    assert {b[0] for b in facts["native"]} == {0, 1, 2, 3}, "three partitions and the late side log"


@pytest.mark.long
@pytest.mark.parametrize("writer", WRITERS)
def test_a_large_batch_is_cut_into_blocks_that_read_as_one(
    writer, spark, feed, drain, content, replayed, items, tmp_path, monkeypatch
):
    source = feed(items(10, first=100), [*items(400, first=110), *items(100)], items(50, first=520))
    drain(source.df, tmp_path / "whole", lateness="8 s", blocks=writer)
    monkeypatch.setattr(block_sequence, "ROWS_MAX", 30)
    drain(source.df, tmp_path / "cut", lateness="8 s", blocks=writer)
    blocks = blocks_of(tmp_path / "cut")
    assert max(b.tuples for b in blocks) == 30
    assert len(blocks) > 20
    assert len(blocks_of(tmp_path / "whole")) == 7
    assert content(tmp_path / "cut") == content(tmp_path / "whole")
    cut, whole = (sl.stream(str(tmp_path / name)) for name in ("cut", "whole"))
    for late in (False, True):
        rows = [
            df.orderBy("_partition", "_offset").collect()
            for df in (s.read(spark, late=late, positions=True) for s in (cut, whole))
        ]
        assert rows[0] == rows[1]
    batches = replayed(cut.read_stream(spark, max_tuples_per_batch=100))
    assert sorted(row["v"] for batch in batches for row in batch) == sorted(r["v"] for r in whole.read(spark).collect())


@pytest.mark.long
@pytest.mark.parametrize("writer", WRITERS)
def test_blocks_of_large_tuples_have_fewer_of_them(writer, feed, drain, content, tmp_path, monkeypatch):
    rows = [{"k": i % 5, "v": f"{i:05d}" * 400, "at": i * 1_000_000} for i in range(1_000)]
    source = feed(rows, [{**row, "at": row["at"] + 10**9} for row in rows])
    monkeypatch.setattr(block_sequence, "BYTES_MAX", 50_000)
    drain(source.df, tmp_path / "s", blocks=writer)
    assert [r["v"] for rows in content(tmp_path / "s").values() for r in rows].count(rows[7]["v"]) == 2
    blocks = blocks_of(tmp_path / "s")
    assert max(b.tuples for b in blocks) <= 50_000 / 2_000
    assert len(blocks) >= 2 * 1_000 * 2_000 / 50_000


@pytest.mark.parametrize("writer", WRITERS)
def test_a_block_is_a_plain_parquet_file(writer, feed, drain, items, tmp_path):
    drain(feed(items(1000)).df, tmp_path / "s", blocks=writer)
    blocks = blocks_of(tmp_path / "s")
    assert len(blocks) == 2
    rows = []
    for block in blocks:
        file = tmp_path / "s" / block.file
        assert file.stat().st_size == block.size_bytes
        # Page checksums are optional in Parquet: a reader that wants them finds them, and they are right.
        table = pq.read_table(file, page_checksum_verification=True)
        assert table.column_names == ["k", "v", "at"]
        assert file.name.startswith(f"{block.first:020d}-")
        rows += table.to_pylist()
        group = pq.read_metadata(file).row_group(0)
        for i in range(group.num_columns):
            column = group.column(i)
            assert column.compression == "LZ4", column.path_in_schema
            assert set(column.encodings) <= {"PLAIN", "RLE", "BIT_PACKED"}, column.path_in_schema
        by_name = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
        assert by_name["at"].statistics.null_count == 0
    assert sorted(row["v"] for row in rows) == sorted(f"v{i}" for i in range(1000))


@pytest.mark.parametrize("writer", WRITERS)
def test_pages_have_checksums(writer, feed, drain, items, tmp_path):
    drain(feed(items(1000)).df, tmp_path / "s", partitions=1, blocks=writer)
    (block,) = blocks_of(tmp_path / "s")
    file = tmp_path / "s" / block.file
    data = bytearray(file.read_bytes())
    # In the values of the last column, far from headers and footer.
    column = pq.read_metadata(file).row_group(0).column(2)
    data[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(OSError, match=r"(?i)crc"):
        pq.read_table(file, page_checksum_verification=True)


def test_a_stream_of_format_1_has_offsets_and_kinds_in_its_files_and_keeps_them(
    spark, feed, drain, content, items, tmp_path
):
    source = feed(items(30), items(5, first=5), items(30, first=30))
    drain(source.df, tmp_path / "new", lateness="1 s")
    spec = Log.open(open_storage(str(tmp_path / "new"))).spec
    Log.create(open_storage(str(tmp_path / "old")), replace(spec, format=1))
    drain(source.df, tmp_path / "old", lateness="1 s")
    assert content(tmp_path / "old") == content(tmp_path / "new")
    for path in (tmp_path / "old", tmp_path / "new"):
        for late in (False, True):
            df = sl.stream(str(path)).read(spark, positions=True, late=late)
            offsets = [(row["_partition"], row["_offset"]) for row in df.orderBy("_partition", "_offset").collect()]
            ends = {None: 5} if late else sl.stream(str(path)).offsets()
            assert offsets == [(p, offset) for p, end in ends.items() for offset in range(end)]
    with pytest.raises(sl.OptionError, match="'native' does not work here"):
        drain(source.df, tmp_path / "old", lateness="1 s", blocks="native")
    files = [pq.read_schema(tmp_path / "old" / block.file).names for block in blocks_of(tmp_path / "old")]
    assert {tuple(names) for names in files} == {("k", "v", "at", "_offset", "_kind")}


def test_nothing_is_left_in_the_staging_folder(feed, drain, items, tmp_path):
    drain(feed(items(10), items(10, first=10)).df, tmp_path / "s")
    staging = tmp_path / "s" / "staging"
    assert not staging.exists() or list(staging.iterdir()) == []


def test_settings_of_the_session_do_not_change_the_blocks(spark, feed, drain, content, items, tmp_path):
    settings = {
        "spark.sql.session.timeZone": "Asia/Kathmandu",
        "spark.sql.parquet.compression.codec": "gzip",
        "spark.sql.files.maxRecordsPerFile": "3",
        "spark.sql.parquet.outputTimestampType": "INT96",
        "spark.sql.parquet.writeLegacyFormat": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": "7",
        "spark.sql.ansi.enabled": "false",
    }
    source = feed(items(50), items(50, first=50))
    drain(source.df, tmp_path / "plain", lateness="5 s")
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        drain(source.df, tmp_path / "odd", lateness="5 s")
        assert {name: spark.conf.get(name) for name in settings} == settings, "the user's session was changed"
        odd = sl.stream(str(tmp_path / "odd"))
        assert odd.read(spark, since="1970-01-01 00:00:10Z", until="1970-01-01 00:00:20Z").count() == 10
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert content(tmp_path / "odd") == content(tmp_path / "plain")
    assert len(blocks_of(tmp_path / "odd")) == 4
    for block in blocks_of(tmp_path / "odd"):
        assert pq.read_metadata(tmp_path / "odd" / block.file).row_group(0).column(2).compression == "LZ4"
        assert pq.read_schema(tmp_path / "odd" / block.file).field("at").type == pa.timestamp("us", tz="UTC")
