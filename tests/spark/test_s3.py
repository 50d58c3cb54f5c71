"""A stream in an object store: a real S3 server process, blocks by Python tasks, Spark's own checkpoint on the disk."""

import uuid

import pytest

import strandline as sl
from strandline.log.audit.stream_audit import verify
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.log import Log
from tests.support.machine import patience

pytestmark = pytest.mark.spark


@pytest.fixture
def bucket(s3_endpoint):
    """An empty folder of a bucket, and how to get there: tasks know nothing of this process's environment."""
    options = {
        "key": "tests",
        "secret": "tests",
        "endpoint_url": s3_endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
    }
    return f"s3://tests/{uuid.uuid4().hex}", options


@pytest.mark.long
def test_a_stream_is_written_and_read_back(bucket, spark, feed, items, replayed, tmp_path):
    url, options = bucket
    source = feed(items(60), [*items(60, first=60), *items(5)])

    def write():
        entry = sl.persist(source.df, url, key="k", time="at", lateness="10 s", storage_options=options)
        query = entry.start(trigger="available-now", spark_checkpoint_dir=str(tmp_path / "checkpoint"))
        assert query.await_termination(patience(120))
        return query.progress

    progress = write()
    assert (progress["batch"], progress["late_total"]) == (1, 5)
    source.add(items(30, first=120))
    assert write()["batch"] == 2

    stream = sl.stream(url, storage_options=options)
    assert sum(stream.offsets().values()) == 150
    assert sorted(row["v"] for row in stream.read(spark).collect()) == sorted(f"v{i}" for i in range(150))
    since = stream.read(spark, since="1970-01-01 00:02:00", positions=True)
    assert sorted(row["v"] for row in since.collect()) == sorted(f"v{i}" for i in range(120, 150))
    assert sorted(row["v"] for row in stream.read(spark, late=True).collect()) == [f"v{i}" for i in range(5)]
    batches = replayed(stream.read_stream(spark, max_tuples_per_batch=100))
    assert [len(rows) for rows in batches] == [100, 50]
    ends = stream.offsets()
    assert stream.read(spark, since={0: 1}, until={0: 3, 1: 2}).count() == 4
    assert stream.read(spark, since=ends).count() == 0
    assert verify(Log.open(open_storage(url, **options))).problems == ()


@pytest.mark.long
def test_no_plan_and_no_file_shows_the_options_of_the_storage(bucket, spark, feed, items, tmp_path):
    url, options = bucket
    options = {**options, "key": "AKIA-open", "secret": "sesame-7", "default_block_size": 7_654_321}
    place = {"storage_options": options, "spark_checkpoint_dir": str(tmp_path / "checkpoint")}
    source = sl.source(feed(items(40)).df, url, key="k", time="at", lateness="1 s", storage_options=options)
    counted = source.window(sl.time_window("10 s")).aggregate(n=sl.count("v"))
    query = counted.start(spark, f"{url}-counts", trigger="available-now", **place)
    assert query.await_termination(patience(120))
    stream = sl.stream(f"{url}-counts", storage_options=options)
    shown = [repr(stream), repr(stream.describe()), repr(query.progress)]
    for df in (stream.read(spark), stream.read_stream(spark)):
        shown.append(df._jdf.queryExecution().toString())
        shown.append(df._jdf.queryExecution().analyzed().toJSON())
    for place_ in (url, f"{url}-counts"):
        storage = open_storage(place_, **options)
        shown += [str(storage.read(f.key)) for f in storage.list("") if f.key.endswith(".json")]
    assert "storage_options_secret=*********(redacted)" in shown[5]
    for text in shown:
        assert "sesame-7" not in text
        assert "AKIA-open" not in text
        assert "7654321" not in text


def test_spark_does_not_write_blocks_into_an_object_store(bucket, feed, items, tmp_path):
    url, options = bucket
    entry = sl.persist(feed(items(5)).df, url, key="k", time="at", storage_options=options)
    with pytest.raises(sl.OptionError, match="blocks='native'"):
        entry.start(blocks="native", spark_checkpoint_dir=str(tmp_path / "checkpoint"))


def test_sparks_own_checkpoint_needs_a_place_that_spark_knows(bucket, feed, items):
    url, options = bucket
    entry = sl.persist(feed(items(5)).df, url, key="k", time="at", storage_options=options)
    with pytest.raises(sl.OptionError, match="Spark cannot keep its own checkpoint") as raised:
        entry.start()
    assert "spark_checkpoint_dir" in raised.value.todo
