"""A stream as a stream: from any point of the past into the present, without a gap or a double."""

import datetime as dt
import shutil

import pytest

import strandline as sl

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def history(feed_in, drain, items, tmp_path_factory):
    """A stream of 5 batches of 60 tuples, one a second, in 3 partitions."""
    folder = tmp_path_factory.mktemp("history")
    source = feed_in(folder / "feed", *[items(60, first=60 * b, keys=30) for b in range(5)])
    drain(source.df, folder / "stream", partitions=3)
    return folder


@pytest.fixture
def stream(history):
    return sl.stream(str(history / "stream"))


@pytest.fixture
def growing(feed, drain, items, tmp_path):
    """A stream of 300 tuples in 3 batches, and a way to add some more."""
    source = feed(*[items(100, first=100 * b, keys=30) for b in range(3)])
    path = tmp_path / "growing"
    drain(source.df, path, partitions=3)

    def grow(count):
        source.add(items(count, first=sum(sl.stream(str(path)).offsets().values()), keys=30))
        drain(source.df, path, partitions=3)

    return sl.stream(str(path)), grow


def places(batches):
    return [(row["_partition"], row["_offset"]) for rows in batches for row in rows]


def everything(stream):
    return sorted((p, o) for p, end in stream.offsets().items() for o in range(end))


def assert_each_partition_in_order(batches):
    last = {}
    for partition, offset in places(batches):
        assert offset == last.get(partition, offset - 1) + 1, f"partition {partition}, after {last.get(partition)}"
        last[partition] = offset


def test_batches_are_as_large_as_allowed_and_cover_everything_once(spark, stream, replayed):
    batches = replayed(stream.read_stream(spark, max_tuples_per_batch=70, positions=True))
    assert [len(rows) for rows in batches] == [70, 70, 70, 70, 20]
    assert sorted(places(batches)) == everything(stream)
    assert_each_partition_in_order(batches)


def test_partitions_get_through_time_together(spark, stream, replayed):
    batches = replayed(stream.read_stream(spark, max_tuples_per_batch=30))
    for number, rows in enumerate(batches):
        seconds = [row["at"].timestamp() for row in rows]
        assert max(seconds) - min(seconds) < 90, f"batch {number} holds tuples of all times"


def test_without_a_limit_everything_comes_at_once(spark, stream, replayed):
    assert [len(rows) for rows in replayed(stream.read_stream(spark))] == [300]


def test_a_limit_below_the_number_of_partitions_still_gets_on(spark, feed, drain, items, replayed, tmp_path):
    drain(feed(items(5)).df, tmp_path / "s", partitions=3)
    batches = replayed(sl.stream(str(tmp_path / "s")).read_stream(spark, max_tuples_per_batch=1))
    assert [len(rows) for rows in batches] == [1] * 5


STARTS = [
    ("earliest", 300),
    ("latest", 0),
    ("1970-01-01 00:04:00", 60),
    (dt.datetime(1970, 1, 1, 0, 4, 30, tzinfo=dt.UTC), 30),
    (0, 300),
]


@pytest.mark.parametrize(("start", "count"), STARTS, ids=[str(row[0]) for row in STARTS])
def test_a_streaming_read_starts_where_it_is_told(start, count, spark, stream, replayed):
    batches = replayed(stream.read_stream(spark, start=start, positions=True))
    assert sum(map(len, batches)) == count
    assert_each_partition_in_order(batches)


def test_a_query_that_is_started_again_goes_on_where_it_was(spark, growing, replayed, tmp_path):
    stream, grow = growing
    df = stream.read_stream(spark, max_tuples_per_batch=100, start="1970-01-01 00:03:20", positions=True)
    first = replayed(df, tmp_path / "checkpoint")
    assert sum(map(len, first)) == 100
    assert replayed(df, tmp_path / "checkpoint") == []
    grow(150)
    second = replayed(df, tmp_path / "checkpoint")
    assert [len(rows) for rows in second] == [100, 50]
    assert_each_partition_in_order(first + second)


def test_latest_gives_what_is_published_later(spark, growing, replayed, tmp_path):
    stream, grow = growing
    df = stream.read_stream(spark, start="latest")
    assert sum(map(len, replayed(df, tmp_path / "checkpoint"))) == 0
    grow(7)
    found = [row["v"] for rows in replayed(df, tmp_path / "checkpoint") for row in rows]
    assert sorted(found) == [f"v{i}" for i in range(300, 307)]


def test_a_registered_consumer_keeps_what_it_has_not_read(spark, growing, replayed, tmp_path):
    stream, _ = growing
    stream.register_consumer("report")
    with pytest.raises(sl.ConsumerError, match="'report' still needs partition 0 from offset 0") as raised:
        stream.truncate(before="1970-01-01 00:01:40")
    assert "unregister" in raised.value.todo
    df = stream.read_stream(spark, consumer="report", max_tuples_per_batch=150)
    assert sum(map(len, replayed(df, tmp_path / "checkpoint"))) == 300
    starts = stream.truncate(before="1970-01-01 00:01:40")
    assert sum(starts.values()) == 100
    # Spark commits a batch when it plans the next one: the last one is still needed.
    with pytest.raises(sl.ConsumerError, match="report"):
        stream.truncate(before="1970-01-02")
    stream.unregister_consumer("report")
    assert stream.truncate(before="1970-01-02") == stream.offsets()


@pytest.mark.long
def test_a_reader_that_was_left_behind_by_retention_is_told(spark, growing, replayed, tmp_path):
    stream, grow = growing
    df = stream.read_stream(spark)
    assert sum(map(len, replayed(df, tmp_path / "checkpoint"))) == 300
    grow(60)
    grow(60)
    stream.truncate(before="1970-01-01 00:06:00")
    with pytest.raises(sl.TruncatedError) as raised:
        replayed(df, tmp_path / "checkpoint")
    assert "was dropped, the partition begins at" in str(raised.value)
    assert sum(map(len, replayed(df))) == 60, "a new query begins at what is left"


def test_a_stream_that_was_replaced_is_not_taken_for_the_old_one(spark, feed, drain, items, replayed, tmp_path):
    path = tmp_path / "s"
    drain(feed(items(50)).df, path)
    replayed(sl.stream(str(path)).read_stream(spark), tmp_path / "checkpoint")
    shutil.rmtree(path)
    drain(feed(items(500), name="other").df, path)
    with pytest.raises(sl.StreamMismatchError):
        replayed(sl.stream(str(path)).read_stream(spark), tmp_path / "checkpoint")


@pytest.mark.parametrize("zone", ["America/St_Johns", "Asia/Kathmandu"])
def test_the_time_zone_of_the_session_changes_no_instant(zone, spark, stream, replayed):
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = stream.read_stream(spark).selectExpr("v", "unix_micros(at) as us")
        rows = [row for batch in replayed(df) for row in batch]
        natively = stream.read(spark).selectExpr("v", "unix_micros(at) as us").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert {(row["v"], row["us"]) for row in rows} == {(f"v{i}", i * 1_000_000) for i in range(300)}
    assert sorted(natively) == sorted(rows)


@pytest.mark.long
def test_a_stream_feeds_another(spark, growing, drain, content, tmp_path):
    stream, grow = growing
    df = stream.read_stream(spark, max_tuples_per_batch=100).selectExpr("k % 2 as parity", "v", "at")
    second = tmp_path / "second"
    drain(df, second, key="parity", lateness="1 s")
    grow(40)
    drain(df, second, key="parity", lateness="1 s")
    shutil.rmtree(second / "spark_checkpoint")
    grow(40)
    progress = drain(df, second, key="parity", lateness="1 s")
    assert progress["checkpoint"].startswith("rebuilt")
    found = [row["v"] for rows in content(second).values() for row in rows]
    late = [row["v"] for row in sl.stream(str(second)).read(spark, late=True).collect()]
    assert sorted(found + late) == sorted(f"v{i}" for i in range(380))
