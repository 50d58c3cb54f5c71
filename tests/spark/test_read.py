"""A stream as a table: any range of it, and only the blocks of that range are opened."""

import datetime as dt
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strandline as sl
from strandline.log.stream import block as blocks_

pytestmark = pytest.mark.spark

BATCHES, PER_BATCH = 12, 40
PARTITIONS = 2


@pytest.fixture(scope="module")
def path(feed_in, drain, tmp_path_factory):
    """A stream of 480 tuples whose batches overlap in time: each holds times of 60 seconds, 30 after the one before."""
    choice = random.Random(3)
    folder = tmp_path_factory.mktemp("read")
    source = feed_in(folder / "feed")
    for b in range(BATCHES):
        times = [(30 * b + choice.randrange(60)) * 1_000_000 for _ in range(PER_BATCH)]
        source.add([{"k": choice.randrange(20), "v": f"{b}.{i}", "at": t} for i, t in enumerate(times)])
    drain(source.df, folder / "stream", partitions=PARTITIONS)
    return folder / "stream"


@pytest.fixture(scope="module")
def tuples(path, content):
    """Every tuple with its place: (partition, offset, seconds, value)."""
    return [
        (p, offset, int(row["at"].timestamp()), row["v"])
        for p, rows in content(path).items()
        for offset, row in enumerate(rows)
    ]


@pytest.fixture
def copy(path, tmp_path):
    """A copy of the stream that a test may damage."""
    return shutil.copytree(path, tmp_path / "copy")


def values(df):
    return sorted(row["v"] for row in df.collect())


def moment(seconds):
    return dt.datetime.fromtimestamp(seconds, dt.UTC)


def keep_only_files_of(df, path):
    """Deletes every block that the DataFrame did not ask for."""
    wanted = {file.rpartition("/")[2] for file in df.inputFiles()}
    others = [file for file in path.glob("blocks/*/*.parquet") if file.name not in wanted]
    for file in others:
        file.unlink()
    return len(others)


RANGES = [(None, None), (100, None), (None, 100), (90, 210), (200, 201), (0, 1), (1000, None), (None, 0), (210, 90)]


@pytest.mark.parametrize(("since", "until"), RANGES)
def test_a_time_range_gives_the_tuples_of_that_range(since, until, spark, path, tuples):
    expected = sorted(v for _, _, t, v in tuples if (since is None or t >= since) and (until is None or t < until))
    bounds = {"since": since and moment(since), "until": until if until is None else moment(until)}
    assert values(sl.stream(str(path)).read(spark, **bounds)) == expected


OFFSETS = [({0: 0, 1: 0}, {0: 7, 1: 3}), ({0: 50}, None), (None, {1: 60}), ({0: 10, 1: 200}, {0: 11, 1: 201}), ({}, {})]


@pytest.mark.parametrize(("since", "until"), OFFSETS)
def test_a_range_of_offsets_gives_the_tuples_of_that_range(since, until, spark, path, tuples):
    low, high = since or {}, until or {}
    expected = sorted(v for p, o, _, v in tuples if low.get(p, 0) <= o < high.get(p, 10_000))
    assert values(sl.stream(str(path)).read(spark, since=since, until=until)) == expected


def test_a_range_may_begin_at_offsets_and_end_at_a_time(spark, path, tuples):
    expected = sorted(v for p, o, t, v in tuples if o >= {0: 30, 1: 40}[p] and t < 200)
    assert values(sl.stream(str(path)).read(spark, since={0: 30, 1: 40}, until=moment(200))) == expected


def test_a_point_in_time_is_written_in_many_ways(spark, path, tuples):
    stream = sl.stream(str(path))
    expected = sorted(v for _, _, t, v in tuples if t >= 300)
    tokyo = dt.timezone(dt.timedelta(hours=9))
    for since in (
        300_000_000,
        "1970-01-01 00:05",
        "1970-01-01T09:05:00+09:00",
        dt.datetime(1970, 1, 1, 9, 5, tzinfo=tokyo),
        dt.datetime(1970, 1, 1, 0, 5),  # in the session's zone
    ):
        assert values(stream.read(spark, since=since)) == expected, since
    assert stream.read(spark, since=stream.read(spark).agg({"at": "max"}).first()[0].astimezone()).count() == 1


def test_blocks_outside_of_a_time_range_are_not_opened(spark, copy, tuples):
    df = sl.stream(str(copy)).read(spark, since=moment(150), until=moment(160))
    deleted = keep_only_files_of(df, copy)
    assert deleted >= BATCHES * PARTITIONS - 3 * PARTITIONS
    assert values(df) == sorted(v for _, _, t, v in tuples if 150 <= t < 160)


def test_blocks_outside_of_a_range_of_offsets_are_not_opened(spark, copy, tuples):
    df = sl.stream(str(copy)).read(spark, since={0: 50, 1: 100}, until={0: 52, 1: 100})
    assert keep_only_files_of(df, copy) >= BATCHES * PARTITIONS - 2
    assert values(df) == sorted(v for p, o, _, v in tuples if p == 0 and o in (50, 51))


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("at >= timestamp'1970-01-01 00:02:30 UTC' and at < timestamp'1970-01-01 00:02:40 UTC'", range(150, 160)),
        ("at > timestamp'1970-01-01 00:02:30 UTC' and at <= timestamp'1970-01-01 00:02:40 UTC'", range(151, 161)),
        ("at = timestamp'1970-01-01 00:02:30 UTC'", [150]),
        ("at between timestamp'1970-01-01 00:02:30 UTC' and timestamp'1970-01-01 00:02:31 UTC'", [150, 151]),
        ("at < timestamp'1970-01-01 00:00:10 UTC' and v like '0.1%'", range(10)),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_a_filter_on_the_time_decides_which_blocks_the_format_opens(condition, holds, zone, spark, copy, tuples):
    expected = sorted(v for _, _, t, v in tuples if t in holds and ("like" not in condition or v.startswith("0.1")))
    natively = sl.stream(str(copy)).read(spark, since=moment(min(holds)), until=moment(max(holds) + 1))
    assert keep_only_files_of(natively, copy) > 0
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = spark.read.format("strandline").load(str(copy)).where(condition)
        assert values(df) == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_options_of_the_format(spark, path, tuples):
    expected = sorted(v for _, _, t, v in tuples if 100 <= t < 130)
    df = (
        spark.read.format("strandline")
        .option("since", "1970-01-01 00:01:40")
        .option("until", "130000000")
        .option("positions", "true")
        .option("path", str(path))
        .load()
    )
    assert values(df) == expected
    assert df.columns == ["k", "v", "at", "_partition", "_offset"]
    places = {(row["_partition"], row["_offset"], row["v"]) for row in df.collect()}
    assert places == {(p, o, v) for p, o, t, v in tuples if 100 <= t < 130}


def test_positions_are_those_of_the_log(spark, path, tuples):
    df = sl.stream(str(path)).read(spark, positions=True)
    assert [f.simpleString() for f in df.schema.fields[-2:]] == ["_partition:int", "_offset:bigint"]
    assert {(r["_partition"], r["_offset"], r["v"]) for r in df.collect()} == {(p, o, v) for p, o, _, v in tuples}


def test_positions_are_counted_over_row_groups_that_are_skipped(spark, copy, tuples, monkeypatch):
    monkeypatch.setattr(blocks_, "ROWS_PER_GROUP", 7)
    stream = sl.stream(str(copy))
    assert stream.compact().blocks_after == PARTITIONS
    joined = max(copy.glob("blocks/p00000/*.parquet"), key=lambda file: file.stat().st_size)
    assert pq.read_metadata(joined).num_row_groups > 20
    df = sl.stream(str(copy)).read(spark, since=moment(300), until=moment(330), positions=True)
    places = {(row["_partition"], row["_offset"], row["v"]) for row in df.collect()}
    assert places == {(p, o, v) for p, o, t, v in tuples if 300 <= t < 330}
    df = sl.stream(str(copy)).read(spark, since={0: 100}, until={0: 150, 1: 30}, positions=True)
    places = {(row["_partition"], row["_offset"], row["v"]) for row in df.collect()}
    assert places == {(p, o, v) for p, o, _, v in tuples if (p == 0 and 100 <= o < 150) or (p == 1 and o < 30)}


def test_sparks_own_reader_prunes_columns_and_pushes_filters(spark, path):
    df = sl.stream(str(path)).read(spark, since=moment(100)).where("k = 3").select("v")
    plan = df._jdf.queryExecution().executedPlan().toString()
    assert "FileScan parquet" in plan
    assert "EqualTo(k,3)" in plan
    assert "GreaterThanOrEqual(at," in plan
    assert "ReadSchema: struct<k:bigint,v:string,at:timestamp>" in plan, "the offsets are read for nothing"


def test_a_stream_to_which_nothing_was_written(spark, feed_in, drain, replayed, tmp_path):
    source = feed_in(tmp_path / "feed")
    drain(source.df, tmp_path / "s")
    stream = sl.stream(str(tmp_path / "s"))
    assert stream.offsets() == {0: 0, 1: 0}
    for options in ({}, {"late": True}, {"since": 5}, {"since": {0: 0}, "until": {0: 9}}):
        assert stream.read(spark, **options).collect() == []
        assert stream.read(spark, **options).schema == stream.schema
    assert stream.read(spark, positions=True).columns[-2:] == ["_partition", "_offset"]
    assert spark.read.format("strandline").load(str(tmp_path / "s")).collect() == []
    assert sum(map(len, replayed(stream.read_stream(spark)))) == 0
    assert list(stream.tables(0)) == []
    source.add([{"k": 1, "v": "first", "at": 1}])
    drain(source.df, tmp_path / "s")
    assert values(stream.read(spark)) == ["first"], "a handle sees what was published since it was made"


def test_compaction_changes_no_result(spark, copy, tuples, content):
    stream = sl.stream(str(copy))
    before = content(copy)
    assert stream.compact().blocks_before == BATCHES * PARTITIONS
    assert content(copy) == before
    assert values(stream.read(spark, since=moment(100), until=moment(200))) == sorted(
        v for _, _, t, v in tuples if 100 <= t < 200
    )
    rest = stream.read(spark, positions=True, since={0: 9}).collect()
    places = {(r["_partition"], r["_offset"], r["v"]) for r in rest}
    assert places == {(p, o, v) for p, o, _, v in tuples if p == 1 or o >= 9}
    natively = stream.read(spark)
    assert len(natively.inputFiles()) == PARTITIONS
    assert len(stream.collect(grace=0)) >= BATCHES * PARTITIONS
    assert values(natively) == sorted(v for *_, v in tuples)


def test_what_was_truncated_is_not_read_and_asking_for_it_is_an_error(spark, copy, tuples):
    stream = sl.stream(str(copy))
    starts = stream.truncate(before=moment(100))
    assert all(start > 0 for start in starts.values())
    assert values(stream.read(spark)) == sorted(v for p, o, _, v in tuples if o >= starts[p])
    through_python = spark.read.format("strandline").load(str(copy))
    assert values(through_python) == values(stream.read(spark))
    with pytest.raises(sl.TruncatedError, match="offset 0 was dropped"):
        stream.read(spark, since={0: 0})
    with pytest.raises(sl.TruncatedError):
        list(stream.tables(1, first=0))


def test_a_lost_block_is_an_error_whatever_the_session_says(spark, copy):
    df = sl.stream(str(copy)).read(spark)
    next(copy.glob("blocks/*/*.parquet")).unlink()
    settings = ["spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"]
    for name in settings:
        spark.conf.set(name, "true")
    try:
        with pytest.raises(sl.CorruptBlockError, match="is gone"):
            df.collect()
        with pytest.raises(sl.CorruptBlockError, match="is gone"):
            sl.stream(str(copy)).read(spark)
    finally:
        for name in settings:
            spark.conf.set(name, "false")


def test_the_same_through_arrow_without_spark(path, tuples):
    stream = sl.stream(str(path))
    for p in range(PARTITIONS):
        table = pa.concat_tables(stream.tables(p, first=5, end=90))
        assert table.column("v").to_pylist() == [v for q, o, _, v in tuples if q == p and 5 <= o < 90]
    assert next(iter(stream.log(0, first=17)))["_offset"] == 17
