"""Filters, selections and unions as streams in Spark: over streams, behind a source, and as inputs of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

import strandline as sl
from strandline.errors import OptionError, StreamMismatchError
from strandline.log.audit.stream_audit import verify
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.log import Log
from tests.spark.test_union import events

COLUMNS = ("id", "at", "v")


def source(spark: SparkSession, folder: Path, name: str, parts: int = 2) -> Any:
    df = events(spark, folder / f"{name}-files", parts, len(name))
    return sl.source(df, str(folder / name), key="id", time="at", partitions=2, lateness="1 hour", max_ahead=None)


def rows(df: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, df.select(*(columns or COLUMNS)).collect()))


def persisted(spark: SparkSession, folder: Path, name: str) -> sl.Stream:
    source(spark, folder, name).start(spark, trigger="available-now", final=True).await_termination()
    return sl.stream(str(folder / name))


@pytest.mark.long
def test_a_filter_behind_a_source_goes_on_where_it_stood(spark: SparkSession, tmp_path: Path) -> None:
    items, path = source(spark, tmp_path, "items"), str(tmp_path / "large")
    large = items.where(pc.field("v") > 500).select(*COLUMNS, twice=pc.field("v") * 2)
    large.start(spark, path, trigger="available-now").await_termination()
    before = sl.stream(path).offsets()
    more = spark.range(900, 1000).selectExpr("id % 5 AS id", "timestamp_seconds(1767225700 + id) AS at", "id AS v")
    more.coalesce(1).write.mode("append").parquet(str(tmp_path / "items-files"))
    query = large.start(spark, path, trigger="available-now")
    query.await_termination()
    assert query.progress["open_windows"] == 0
    stream, stored = sl.stream(path), sl.stream(str(tmp_path / "items"))
    expected = rows(stored.read(spark).where("v > 500").selectExpr(*COLUMNS, "v * 2 AS twice"), *COLUMNS, "twice")
    assert rows(stream.read(spark), *COLUMNS, "twice") == expected
    assert sum(stream.offsets().values()) == len(expected) == sum(before.values()) + 100
    assert [(p["open_windows"], p["extent"], p["replay"]) for p in stream.recovery()] == [(0, 0, 0)] * 2
    assert stream.open_windows().num_rows == stream.open_windows(now=True).num_rows == 0
    assert "where (v > 500), select id, at, v, twice=(v * 2)" in str(stream.describe())
    assert verify(Log.open(open_storage(path))).problems == ()
    other = items.where(pc.field("v") > 600).select(*COLUMNS, twice=pc.field("v") * 2)
    with pytest.raises(StreamMismatchError, match=r"where \(v > 500\)"):
        other.start(spark, path, trigger="available-now")


@pytest.mark.long
def test_a_union_feeds_a_join(spark: SparkSession, tmp_path: Path) -> None:
    east, west, prices = (persisted(spark, tmp_path, name) for name in ("east", "westward", "price"))
    both = sl.union(east, west.where(pc.field("v") > 100))
    with pytest.raises(OptionError, match="no state to save"):
        both.checkpoint(sl.cec())
    both.start(spark, str(tmp_path / "both"), trigger="available-now", max_tuples_per_batch=50).await_termination()
    stream = sl.stream(str(tmp_path / "both"))
    assert stream.is_finished
    every = east.read(spark).unionAll(west.read(spark).where("v > 100"))
    assert rows(stream.read(spark)) == rows(every)
    pairs = stream.join(prices, within="2 s")
    pairs.start(spark, str(tmp_path / "pairs"), trigger="available-now").await_termination()
    every.createOrReplaceTempView("both")
    prices.read(spark).createOrReplaceTempView("prices")
    expected = spark.sql(
        "SELECT b.id, b.v AS left_v, p.v AS right_v FROM both b JOIN prices p "
        "ON b.id = p.id AND abs(unix_micros(b.at) - unix_micros(p.at)) <= 2000000"
    )
    names = ("id", "left_v", "right_v")
    found = rows(sl.stream(str(tmp_path / "pairs")).read(spark), *names)
    assert found == rows(expected, *names)
    assert len(found) > 100


@pytest.mark.long
def test_a_union_of_sources_with_a_bound_is_an_element_like_any_other(spark: SparkSession, tmp_path: Path) -> None:
    union = sl.union(source(spark, tmp_path, "one"), source(spark, tmp_path, "three"))
    query = union.availability(bound="5 s").start(spark, str(tmp_path / "both"), trigger="200 ms")
    query.process_all_available()
    query.finish()
    query.await_termination()
    stored = [sl.stream(str(tmp_path / name)).read(spark) for name in ("one", "three")]
    assert rows(sl.stream(str(tmp_path / "both")).read(spark)) == rows(stored[0].unionAll(stored[1]))
    assert query.progress["state"] == "STABLE"
