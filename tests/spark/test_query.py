"""The handle on a running writer: what it says, how it stops, how it goes on."""

import time

import pytest

import strandline as sl
from strandline.log.index import index
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.commit_kinds import CollectCommit
from strandline.log.stream.log import Log
from tests.support.machine import patience

pytestmark = pytest.mark.spark


def numbers(spark, rows_per_batch=10):
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows_per_batch)
    return source.option("startTimestamp", 0).load().selectExpr("value % 7 as k", "value as v", "timestamp as at")


def values(spark, path):
    return sorted(row["v"] for row in sl.stream(str(path)).read(spark).collect())


def test_progress_tells_of_the_last_batch(feed, drain, items, tmp_path):
    progress = drain(feed(items(50), [*items(20, first=50), *items(3)]).df, tmp_path / "s", lateness="10 s")
    offsets = sl.stream(str(tmp_path / "s")).offsets()
    blocks = list(tmp_path.glob("s/blocks/*/*-000000000001-*.parquet")) + list(tmp_path.glob("s/late/*.parquet"))
    assert progress.pop("write_s") > 0
    assert progress.pop("publish_s") > 0
    assert progress == {
        "batch": 1,
        "commit": 1,
        "tuples": 20,
        "late": 3,
        "set_aside": {},
        "late_total": 3,
        "bytes": sum(file.stat().st_size for file in blocks),
        "offsets": offsets,
        "boundary": 59_000_000,
    }


def test_a_query_that_is_stopped_goes_on_when_it_is_started_again(spark, eventually, tmp_path):
    entry = sl.persist(numbers(spark), str(tmp_path / "s"), key="k", time="at")
    batches = []
    for _ in range(3):
        query = entry.start(trigger="20 ms", name="counting")
        assert query.spark_query.name == "counting"
        begin = batches[-1] if batches else -1
        eventually(lambda q=query, b=begin: q.progress.get("batch", -1) > b)
        assert query.is_active
        assert query.await_termination(0.01) is False
        query.stop()
        assert not query.is_active
        assert query.exception() is None
        assert query.await_termination(patience(10)) is True
        batches.append(query.progress["batch"])
        found = values(spark, tmp_path / "s")
        assert found == list(range(10 * (batches[-1] + 1))), "what progress said is published, and nothing else"
    assert batches == sorted(set(batches))


def test_stopping_waits_for_the_batch_under_way(spark, eventually, tmp_path):
    from pyspark.sql import functions as F

    @F.udf("long")
    def slowly(value):
        time.sleep(0.02)
        return value

    source = numbers(spark, 100).select("k", slowly("v").alias("v"), "at")
    query = sl.persist(source, str(tmp_path / "s"), key="k", time="at").start()
    eventually(lambda: list((tmp_path / "s").glob("staging/*")))
    query.stop()
    assert query.exception() is None
    assert values(spark, tmp_path / "s") == list(range(100 * (query.progress["batch"] + 1)))


def test_stopping_at_once_and_twice(spark, tmp_path):
    query = sl.persist(numbers(spark), str(tmp_path / "s"), key="k", time="at").start()
    query.stop()
    query.stop()
    assert query.exception() is None
    found = values(spark, tmp_path / "s")
    assert found == list(range(len(found)))


def test_a_failure_of_the_users_own_code_is_passed_on_as_it_is(spark, tmp_path):
    source = (
        numbers(spark)
        .selectExpr("k", "v", "at", "raise_error('not today') as oops")
        .selectExpr("k", "if(isnull(oops), v, 0L) as v", "at")
    )
    query = sl.persist(source, str(tmp_path / "s"), key="k", time="at").start()
    with pytest.raises(Exception, match="not today") as raised:
        query.await_termination(patience(60))
    assert not isinstance(raised.value, sl.StrandlineError)
    assert "not today" in str(query.exception())
    assert values(spark, tmp_path / "s") == []


def test_retention_is_applied_while_the_writer_runs(spark, eventually, monkeypatch, tmp_path):
    monkeypatch.setattr(index, "FOLD_EVERY", 4)  # the writer looks at it whenever it folds the index
    path = str(tmp_path / "s")
    entry = sl.persist(numbers(spark), path, key="k", time="at", retention="3 s")  # a batch is a second of the source
    query = entry.start(trigger="0 s")
    eventually(lambda: query.progress.get("batch", -1) >= 13 or not query.is_active)
    query.stop()
    assert query.exception() is None
    found = values(spark, path)
    batches = query.progress["batch"] + 1
    assert found[-1] == 10 * batches - 1
    assert found == list(range(found[0], 10 * batches))
    kept = len(found) // 10
    assert 4 <= kept <= 4 + 4, "what is older than 3 s, give or take the batches since it last looked"
    log = Log.open(open_storage(path))
    assert all(start > 0 for start in log.state.starts[:2])


def test_retention_is_applied_although_others_commit_in_between(feed, drain, items, monkeypatch, tmp_path):
    monkeypatch.setattr(index, "FOLD_EVERY", 2)
    append = Log.append

    def append_after_another_commit(log, blocks, **arguments):
        other = Log.open(log.storage)  # so that all appends have odd numbers
        seq = other.state.seq
        other.publish(lambda _state, _seen: CollectCommit(seq + 1, other.spec.id, published_us=0), since=seq)
        return append(log, blocks, **arguments)

    monkeypatch.setattr(Log, "append", append_after_another_commit)
    drain(feed(*[items(5, first=100 * b) for b in range(4)]).df, tmp_path / "s", retention="50 s")
    assert sum(Log.open(open_storage(str(tmp_path / "s"))).state.starts) == 15


def test_retention_yields_to_a_registered_consumer(spark, eventually, monkeypatch, tmp_path):
    monkeypatch.setattr(index, "FOLD_EVERY", 4)
    path = str(tmp_path / "s")
    query = sl.persist(numbers(spark), path, key="k", time="at", retention="2 s").start(trigger="0 s")
    eventually(lambda: "batch" in query.progress)
    sl.stream(path).register_consumer("auditor")
    kept = sl.stream(path).read(spark).first()["v"]
    seen = query.progress["batch"]
    eventually(lambda: query.progress["batch"] >= seen + 10 or not query.is_active)
    query.stop()
    assert query.exception() is None
    assert values(spark, path)[0] <= kept
