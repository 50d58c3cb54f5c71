"""Operators over several inputs in Spark: results are those of the same data in one batch."""

import threading
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.errors import OptionError, StrandlineError, StreamMismatchError
from strandline.spark.operator.operator_job import OperatorJob
from tests.support.machine import patience

SQL = """
SELECT id, window.start AS window_start, window.end AS window_end, count(*) AS n, sum(v) AS total
FROM (SELECT id, v, window(at, '10 seconds') AS window FROM tuples) GROUP BY id, window
"""


def events(spark: SparkSession, folder: Path, parts: int, start: int) -> Any:
    """A streaming DataFrame over files that are there: tuples in disorder, none later than five seconds."""
    folder.mkdir()
    for part in range(parts):
        rows = spark.range(200).selectExpr(
            f"(id * 7 + {start}) % 5 AS id",
            f"timestamp_seconds(1767225600 + {part} * 20 + id div 10 - (id * 3 + {start}) % 4) AS at",
            f"id * 10 + {start} AS v",
        )
        rows.coalesce(1).write.mode("append").parquet(str(folder))
    return spark.readStream.schema("id long, at timestamp, v long").parquet(str(folder))


def source(spark: SparkSession, tmp_path: Path, name: str, parts: int, start: int) -> Any:
    df = events(spark, tmp_path / f"{name}-files", parts, start)
    return sl.source(df, str(tmp_path / name), key="id", time="at", partitions=2, lateness="1 hour", max_ahead=None)


def counted(*inputs: Any) -> sl.Aggregation:
    window = sl.union(*inputs).window(sl.time_window("10 s"))
    return window.aggregate(n=sl.count_all(), total=sl.sum("v"))


@pytest.fixture
def at_work(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The threads that take in tuples."""
    threads, catch_up = set(), OperatorJob.catch_up

    def watched(*arguments: Any, **options: Any) -> None:
        threads.add(threading.get_ident())
        catch_up(*arguments, **options)

    monkeypatch.setattr(OperatorJob, "catch_up", watched)
    return threads


def test_a_union_of_streams_and_a_source_gives_what_a_batch_gives(
    spark: SparkSession, tmp_path: Path, at_work: set[int]
) -> None:
    parts = [source(spark, tmp_path, name, n, n) for name, n in (("one", 1), ("two", 2), ("three", 3))]
    for part in parts[:2]:
        part.start(spark, trigger="available-now", final=True).await_termination()
    first, second = (sl.stream(str(tmp_path / name)) for name in ("one", "two"))
    operator = counted(first, parts[2], second)
    query = operator.start(spark, str(tmp_path / "counted"), trigger="available-now", max_tuples_per_batch=100)
    query.await_termination()
    assert sl.stream(str(tmp_path / "counted")).read(spark).count() == 0  # the third is not finished, and an hour late
    assert [s["tuples"] for s in query.progress["sources"]] == [600]
    parts[2].start(spark, trigger="available-now", final=True).await_termination()
    # Another program, which has nothing but the streams.
    last = sl.stream(str(tmp_path / "three"))
    counted(first, last, second).start(spark, str(tmp_path / "counted"), trigger="available-now").await_termination()
    results = sl.stream(str(tmp_path / "counted"))
    assert results.is_finished
    assert at_work, "somebody has taken in tuples"
    assert threading.get_ident() not in at_work, "and not start() itself, which nobody could stop or look at"
    everything = first.read(spark).unionAll(second.read(spark)).unionAll(last.read(spark))
    everything.createOrReplaceTempView("tuples")
    expected = sorted(map(tuple, spark.sql(SQL).collect()))
    assert (
        sorted(map(tuple, results.read(spark).select("id", "window_start", "window_end", "n", "total").collect()))
        == expected
    )
    assert results.open_windows(now=True).num_rows == 0
    assert str(tmp_path / "three") in results.describe().operator.input  # type: ignore[union-attr]
    with pytest.raises(StreamMismatchError, match="its input is"):
        counted(last, first, second).start(spark, str(tmp_path / "counted"), trigger="available-now")


@pytest.mark.long
def test_sources_start_and_stop_with_the_operator_and_a_failure_of_one_ends_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    good = source(spark, tmp_path, "good", 1, 1)
    bad = source(spark, tmp_path, "bad", 1, 2)
    query = counted(good, bad).start(spark, str(tmp_path / "counted"))
    query.process_all_available()
    assert len(spark.streams.active) == 2, "the sources: a thread of ours drives the operator"
    assert query.is_active
    assert query.spark_query is None
    query.stop()
    assert not query.is_active
    assert spark.streams.active == []
    assert sum(sl.stream(str(tmp_path / "good")).offsets().values()) == 200
    query = counted(good, bad).start(spark, str(tmp_path / "counted"))
    (tmp_path / "bad-files" / "part-9.parquet").write_bytes(b"no parquet")
    with pytest.raises(Exception, match=r"(?i)parquet") as caught:
        query.await_termination(patience(60))
    assert not isinstance(caught.value, StrandlineError) or "bad" in str(caught.value)
    assert spark.streams.active == []


@pytest.mark.long
def test_a_union_of_sources_is_finished_with_its_query(spark: SparkSession, tmp_path: Path) -> None:
    one, two = source(spark, tmp_path, "one", 1, 1), source(spark, tmp_path, "two", 1, 2)
    query = counted(one, two).start(spark, str(tmp_path / "counted"))
    query.process_all_available()
    assert query.progress["sources"][1]["tuples"] == 200
    query.finish()
    results = sl.stream(str(tmp_path / "counted"))
    assert results.is_finished
    assert results.read(spark).selectExpr("sum(n)").collect() == [(400,)]
    streams = [sl.stream(str(tmp_path / name)) for name in ("one", "two")]
    assert all(stream.is_finished for stream in streams)
    running = counted(*streams).start(spark, str(tmp_path / "again"))
    with running, pytest.raises(OptionError, match="does not work for an operator over a stream"):
        running.finish()


def test_a_barrier_of_streams_gives_what_a_batch_join_by_number_gives(spark: SparkSession, tmp_path: Path) -> None:
    for name, parts in (("one", 1), ("two", 2)):
        source(spark, tmp_path, name, parts, parts).start(
            spark, trigger="available-now", final=True
        ).await_termination()
    one, two = (sl.stream(str(tmp_path / name)) for name in ("one", "two"))
    path = str(tmp_path / "both")
    barrier = sl.barrier(a=one, b=two).checkpoint(sl.cec(replay=20))
    query = barrier.start(spark, path, trigger="available-now", max_tuples_per_batch=150)
    query.await_termination()
    both = sl.stream(path)
    assert both.is_finished
    for name, stream in (("a", one), ("b", two)):
        numbered = stream.read(spark, positions=True).withColumnsRenamed({"_offset": "place", "_partition": "part"})
        numbered.selectExpr(
            "id", "at", "v", "row_number() OVER (PARTITION BY id ORDER BY at, place) AS n"
        ).createOrReplaceTempView(name)
    expected = spark.sql("SELECT a.id, greatest(a.at, b.at), a.v, b.v FROM a JOIN b ON a.id = b.id AND a.n = b.n")
    found = both.read(spark).select("id", "time", "a_v", "b_v").collect()
    assert sorted(map(tuple, found)) == sorted(map(tuple, expected.collect()))
    waiting = one.read(spark).count() + two.read(spark).count() - 2 * len(found)
    assert both.open_windows(now=True).num_rows == waiting == query.progress["open_windows"] > 0
    assert sum(r["open_windows"] for r in both.recovery()) == waiting
    assert both.describe().operator.windows == "barrier of a and b"  # type: ignore[union-attr]
    with pytest.raises(StreamMismatchError, match="made by barrier of a and b"):
        counted(one, two).start(spark, path, trigger="available-now")


def test_a_join_of_streams_gives_what_a_batch_join_gives(spark: SparkSession, tmp_path: Path) -> None:
    one, two = (source(spark, tmp_path, name, parts, parts) for name, parts in (("one", 1), ("two", 2)))
    path = str(tmp_path / "pairs")
    join = one.join(two, within=("0 s", "2 s"), how="left").where(lambda left, right: left.v < right.v)
    query = join.start(spark, path, trigger="available-now", final=True, max_tuples_per_batch=150)
    query.await_termination()
    pairs = sl.stream(path)
    assert pairs.is_finished
    for name in ("one", "two"):
        sl.stream(str(tmp_path / name)).read(spark).createOrReplaceTempView(name)
    expected = spark.sql(
        "SELECT one.id, one.at, one.v, two.at, two.v FROM one LEFT JOIN two ON one.id = two.id AND one.v < two.v "
        "AND two.at BETWEEN one.at AND one.at + INTERVAL 2 SECONDS"
    )
    columns = ["id", "left_at", "left_v", "right_at", "right_v"]
    found = pairs.read(spark).select(*columns).collect()
    assert sorted(repr(tuple(row)) for row in found) == sorted(repr(tuple(row)) for row in expected.collect())
    assert {row.right_v is None for row in found} == {False, True}


def test_sources_and_streams_in_shapes_are_joined(spark: SparkSession, tmp_path: Path) -> None:
    left, right = (source(spark, tmp_path, name, 1, start) for name, start in (("left", 1), ("right", 2)))
    few = left.where(pc.field("v") > 500).select("id", "at", mine=pc.field("v") + 1)
    join = few.join(right.select("id", "at", yours="v"), within="1 s")
    join.start(spark, str(tmp_path / "pairs"), trigger="available-now", final=True).await_termination()
    for name in ("left", "right"):
        sl.stream(str(tmp_path / name)).read(spark).createOrReplaceTempView(f"{name}_tuples")
    expected = spark.sql(
        """
        SELECT l.id, l.v + 1, r.v FROM left_tuples l JOIN right_tuples r ON l.id = r.id
        AND abs(timestampdiff(MICROSECOND, l.at, r.at)) <= 1000000 WHERE l.v > 500
        """
    )
    found = sl.stream(str(tmp_path / "pairs")).read(spark).select("id", "mine", "yours")
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, expected.collect()))
    assert found.count() > 10
    told = sl.stream(str(tmp_path / "pairs")).describe().to_json()["operator"]["shape"]
    assert told.endswith("in input 1; select id, at, yours=v in input 2")
