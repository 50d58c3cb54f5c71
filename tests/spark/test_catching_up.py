"""Readers that start in the past while others write, compact and clean up: they meet the present and miss nothing."""

import pytest

import strandline as sl
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.log import Log
from strandline.log.upkeep import compaction
from strandline.spark.query.following_run import FollowingRun
from strandline.spark.read.read_options import ReadOptions
from strandline.spark.read.source import BatchReader
from strandline.spark.read.source_schema import spark_schema
from tests.support.items import append_items, item_spec
from tests.support.machine import patience

pytestmark = pytest.mark.spark


def numbers(spark, rows_per_batch):
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
    return source.option("startTimestamp", 0).load().selectExpr("value % 11 as k", "value as v", "timestamp as at")


class Reader:
    """A streaming query that notes every tuple in the order of its arrival."""

    def __init__(self, df):
        self.rows = []
        self._query = df.writeStream.foreachBatch(self._take).trigger(processingTime="50 milliseconds").start()

    def _take(self, batch, _number):
        self.rows += batch.collect()

    def values(self):
        return sorted(row["v"] for row in self.rows)

    def assert_in_order(self):
        last = {}
        for row in self.rows:
            partition, offset = row["_partition"], row["_offset"]
            assert offset == last.get(partition, -1) + 1
            last[partition] = offset

    def stop(self):
        assert self._query.exception() is None
        self._query.stop()


@pytest.mark.long
def test_a_reader_catches_up_with_a_live_writer(spark, eventually, tmp_path):
    path = str(tmp_path / "s")
    writer = sl.persist(numbers(spark, 40), path, key="k", time="at").start(trigger="50 ms")
    eventually(lambda: writer.progress.get("batch", 0) >= 5)
    reader = Reader(sl.stream(path).read_stream(spark, max_tuples_per_batch=100, positions=True))
    eventually(lambda: len(reader.rows) >= 200)
    at_least = writer.progress["batch"] + 8  # so that both are at work for a while
    eventually(lambda: writer.progress["batch"] >= at_least)
    writer.stop()
    published = sum(sl.stream(path).offsets().values())
    eventually(lambda: len(reader.rows) >= published)
    reader.stop()
    assert reader.values() == list(range(published))
    reader.assert_in_order()


@pytest.fixture
def past(tmp_path):
    """A stream of many small blocks, complete."""
    path = str(tmp_path / "s")
    log = Log.create(open_storage(path), item_spec())
    for b in range(25):
        rows = [(i % 11, i, i) for i in range(30 * b, 30 * b + 30)]
        append_items(log, {0: rows[:13], 1: rows[13:]})
    return path


@pytest.mark.long
def test_readers_are_not_disturbed_by_compaction_and_clean_up(spark, eventually, past, content):
    before = content(past)
    published = sum(map(len, before.values()))
    reader = Reader(sl.stream(past).read_stream(spark, max_tuples_per_batch=40, positions=True))
    keeper = sl.stream(past)
    deleted = 0
    for target_bytes in (8_000, 30_000, 120_000, 500_000):  # ever larger, so that each run replaces the one before
        so_far = len(reader.rows)
        eventually(lambda n=so_far: len(reader.rows) > n)
        assert len(reader.rows) < published, "the reader is done already"
        compaction.compact(keeper_log(past), target_bytes=target_bytes, blocks_min=2)
        deleted += len(keeper.collect(grace=0))
    eventually(lambda: len(reader.rows) >= published)
    reader.stop()
    assert deleted > 50
    assert reader.values() == list(range(published))
    reader.assert_in_order()
    assert content(past) == before


def keeper_log(path):
    return Log.open(open_storage(path))


def test_a_reader_whose_files_were_replaced_after_it_planned_finds_the_tuples_elsewhere(past, content):
    options = ReadOptions.of({"path": past, "positions": "true"})
    reader = BatchReader(options, spark_schema(options.place.open().spec, positions=True))
    planned = reader.partitions()
    log = keeper_log(past)
    compaction.compact(log)
    assert len(sl.stream(past).collect(grace=0)) > 40
    found = {}
    for part in planned:
        for batch in reader.read(part):
            found.setdefault(part.partition, []).extend(batch.column("v").to_pylist())
    assert found == {p: [row["v"] for row in rows] for p, rows in content(past).items()}


def test_a_reader_whose_tuples_were_truncated_after_it_planned_says_so(past):
    options = ReadOptions.of({"path": past})
    reader = BatchReader(options, spark_schema(options.place.open().spec, positions=False))
    planned = reader.partitions()
    stream = sl.stream(past)
    stream.truncate(before={p: end - 1 for p, end in stream.offsets().items()})
    stream.collect(grace=0)
    with pytest.raises(sl.TruncatedError, match="was dropped"):
        list(reader.read(planned[0]))


def test_a_writer_whose_files_were_collected_too_early_repeats_its_batch(spark, eventually, monkeypatch, tmp_path):
    path = str(tmp_path / "s")
    entry = sl.persist(numbers(spark, 30), path, key="k", time="at")
    query = entry.start(trigger="0 s")
    append, collected = Log.append, []

    def late_append(log, blocks, **arguments):
        if log.state.seq == 3 and not collected:
            collected.extend(sl.stream(path).collect(grace=0))
        return append(log, blocks, **arguments)

    monkeypatch.setattr(Log, "append", late_append)
    with pytest.raises(sl.CollectedError, match="files were collected") as raised:
        query.await_termination(patience(60))
    assert "repeats the batch" in raised.value.todo
    assert collected
    query = entry.start(trigger="0 s")
    eventually(lambda: query.progress.get("batch", 0) >= 5)
    query.stop()
    values = sorted(row["v"] for row in sl.stream(path).read(spark).collect())
    assert values == list(range(len(values)))


@pytest.mark.long
def test_available_now_takes_in_what_was_there_when_it_started(spark, feed, drain, items, monkeypatch, tmp_path):
    source = feed(items(100))
    path = tmp_path / "s"
    drain(source.df, path)
    source.add(items(100, first=100))

    def and_grow(run):
        """The input grows after the query has looked at it for the last time, before its first batch."""
        monkeypatch.undo()
        drain(source.df, path)
        run.start()

    monkeypatch.setattr(FollowingRun, "start", and_grow)
    counting = sl.stream(str(path)).window(sl.count_window(1)).aggregate(n=sl.count_all())
    results = []
    for _ in range(2):
        assert counting.start(spark, str(tmp_path / "n"), trigger="available-now").await_termination(patience(120))
        results.append(sl.stream(str(tmp_path / "n")).read(spark).count())
    assert results == [100, 200]
