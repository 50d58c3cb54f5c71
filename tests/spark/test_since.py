"""`start(…, since=…)` in Spark: in words of a session, over streams and behind entry points, and at the next start."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.errors import StreamMismatchError


def written(spark: SparkSession, folder: Path, name: str, first: int = 0) -> Any:
    """A source of 60 tuples, a second apart."""
    rows = spark.range(first, first + 60).selectExpr("id % 3 AS k", "timestamp_seconds(1767225600 + id) AS at", "id")
    rows.coalesce(1).write.mode("append").parquet(str(folder / f"{name}-files"))
    df = spark.readStream.schema("k long, at timestamp, id long").parquet(str(folder / f"{name}-files"))
    return sl.source(df, str(folder / name), key="k", time="at", partitions=2, lateness="5 s", max_ahead=None)


def counts(spark: SparkSession, path: Path) -> dict[int, int]:
    """How many tuples came out, by the second at which their window begins."""
    results = sl.stream(str(path)).read(spark)
    rows = results.groupBy((results["window_start"].cast("long") - 1767225600).alias("at")).sum("n").collect()
    return {row["at"]: row["sum(n)"] for row in rows}


def test_it_begins_at_a_time_of_the_session_and_goes_on_from_there(spark: SparkSession, tmp_path: Path) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        entry = written(spark, tmp_path, "items")
        entry.start(spark, trigger="available-now").await_termination()
        windows = sl.stream(str(tmp_path / "items")).window(sl.time_window("10 s"))
        operator = windows.aggregate(n=sl.count_all())
        said = {"since": "2026-01-01 05:30:25", "trigger": "available-now"}
        operator.start(spark, str(tmp_path / "out"), **said).await_termination()
        written(spark, tmp_path, "items", 60).start(spark, trigger="available-now", final=True).await_termination()
        for refused in ("2026-01-01 05:30:26", "earliest", "latest", {0: 3}):
            with pytest.raises(StreamMismatchError, match="since=2026-01-01 00:00:25"):
                operator.start(spark, str(tmp_path / "out"), since=refused, trigger="available-now")
        operator.start(spark, str(tmp_path / "out"), trigger="available-now").await_termination()
        operator.start(spark, str(tmp_path / "out"), **said).await_termination()
        assert counts(spark, tmp_path / "out") == {20: 5, **dict.fromkeys(range(30, 120, 10), 10)}
        assert sl.stream(str(tmp_path / "out")).is_finished
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_behind_an_entry_point_it_begins_with_what_comes_from_now_on(spark: SparkSession, tmp_path: Path) -> None:
    entry = written(spark, tmp_path, "items")
    entry.start(spark, trigger="available-now").await_termination()
    again = written(spark, tmp_path, "items", 60)
    operator = again.window(sl.time_window("10 s")).aggregate(n=sl.count_all())
    query = operator.start(spark, str(tmp_path / "out"), since="latest", trigger="available-now", final=True)
    query.await_termination()
    assert counts(spark, tmp_path / "out") == dict.fromkeys(range(60, 120, 10), 10)


def test_a_join_begins_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("left", "right"):
        written(spark, tmp_path, name).start(spark, trigger="available-now", final=True).await_termination()
    left, right = (sl.stream(str(tmp_path / name)) for name in ("left", "right"))
    query = left.join(right.select("k", "at", other="id"), within="0 s").start(
        spark, str(tmp_path / "pairs"), since="2026-01-01 00:00:40+00:00", trigger="available-now"
    )
    query.await_termination()
    pairs = sl.stream(str(tmp_path / "pairs")).read(spark).select("id", "other").collect()
    assert sorted(map(tuple, pairs)) == [(i, i) for i in range(40, 60)]
