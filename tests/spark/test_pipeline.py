"""Pipelines in Spark: elements that start, fail, stop and finish together."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.errors import OptionError, SecondWriterError, StrandlineWarning
from tests.support.machine import patience

SQL = """
SELECT k, window.start AS window_start, window.end AS window_end, sum(n) AS n FROM
  (SELECT k, count(*) AS n, window(at, '10 seconds').end AS at FROM tuples WHERE v <> 'v3'
   GROUP BY k, window(at, '10 seconds'))
GROUP BY k, window(at, '1 minute')
"""


@pytest.fixture
def flow(feed: Callable[..., Any], items: Callable[..., Any], tmp_path: Path) -> tuple[Any, sl.Pipeline]:
    """A source, a filter, windows of ten seconds, and windows of a minute over their results."""
    files = feed(items(200), items(200, first=200))
    source = sl.source(files.df, str(tmp_path / "items"), key="k", time="at", lateness="5 s", max_ahead=None)
    small = source.where(pc.field("v") != "v3").window(sl.time_window("10 s")).aggregate(n=sl.count_all())
    ten = small.into(str(tmp_path / "ten"))
    minute = ten.window(sl.time_window("1 min")).aggregate(n=sl.sum("n")).into(str(tmp_path / "minute"))
    return files, sl.pipeline(minute)


def results(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, sl.stream(str(path)).read(spark).collect()))


def expected(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    sl.stream(str(path)).read(spark).createOrReplaceTempView("tuples")
    return sorted(map(tuple, spark.sql(SQL).collect()))


def test_elements_run_one_after_the_other_over_what_is_there(
    spark: SparkSession, flow: tuple[Any, sl.Pipeline], tmp_path: Path
) -> None:
    _, pipeline = flow
    run = pipeline.start(spark, trigger="available-now", final=True)
    assert run.await_termination(patience(180))
    assert not run.is_active
    assert run.progress["state"] == "stopped"
    assert list(run.progress["elements"]) == list(pipeline.paths)
    assert sl.stream(str(tmp_path / "minute")).is_finished
    assert results(spark, tmp_path / "minute") == expected(spark, tmp_path / "items") != []


def test_elements_follow_each_other_until_the_pipeline_is_finished(
    spark: SparkSession,
    flow: tuple[Any, sl.Pipeline],
    items: Callable[..., Any],
    eventually: Callable[..., None],
    tmp_path: Path,
) -> None:
    files, pipeline = flow
    with pipeline.start(spark, trigger="200 ms") as run:
        run.process_all_available()
        eventually(lambda: run.progress["oldest_waiting_s"] == 0)
        files.add(items(100, first=400))
        run.process_all_available()
        assert run[str(tmp_path / "items")].progress["tuples"] == 100
        assert run[str(tmp_path / "minute")].progress["results"] >= 0
        with pytest.raises(SecondWriterError):
            pipeline.start(spark)
        with pytest.raises(OptionError, match="no element of this pipeline writes a stream"):
            run[str(tmp_path / "elsewhere")]
        run.finish()
    assert "oldest_waiting_s" not in run.progress
    assert results(spark, tmp_path / "minute") == expected(spark, tmp_path / "items") != []


def test_an_element_that_fails_stops_those_behind_it_and_no_others(
    spark: SparkSession, feed: Callable[..., Any], items: Callable[..., Any], tmp_path: Path
) -> None:
    files = feed(items(50))
    source = sl.source(files.df, str(tmp_path / "items"), key="k", time="at", lateness="5 s", max_ahead=None)

    @sl.keyed(state="n long", output="m long")
    def quotient(state: Any, row: Any, out: Any) -> int:
        state.n += 1
        out.m = 100 // (20 - state.n)
        return sl.EMIT

    failing = source.apply(quotient).into(str(tmp_path / "failing"))
    behind = failing.window(sl.time_window("10 s")).aggregate(n=sl.count_all()).into(str(tmp_path / "behind"))
    other = source.window(sl.time_window("10 s")).aggregate(n=sl.count_all()).into(str(tmp_path / "other"))
    run = sl.pipeline(behind, other).start(spark, trigger="100 ms")
    try:
        run.process_all_available()
        files.add(items(150, first=50))
        with (
            pytest.warns(StrandlineWarning, match=r"failing has failed, so .*behind stopped"),
            pytest.raises(Exception, match="quotient"),
        ):
            run.await_termination(patience(120))
        assert run.progress["state"] == "failed"
        assert list(run.progress["failed"]) == [str(tmp_path / "failing")]
        assert not run[str(tmp_path / "behind")].is_active
        assert run[str(tmp_path / "other")].is_active
    finally:
        run.stop()
    assert not run.is_active


def test_an_output_of_another_shape_is_an_error_before_anything_starts(
    spark: SparkSession,
    flow: tuple[Any, sl.Pipeline],
    feed: Callable[..., Any],
    items: Callable[..., Any],
    tmp_path: Path,
) -> None:
    _, pipeline = flow
    pipeline.start(spark, trigger="available-now").await_termination(patience(180))
    source = pipeline._network.elements[str(tmp_path / "items")]
    other = source.window(sl.time_window("20 s")).aggregate(n=sl.count_all()).into(str(tmp_path / "ten"))
    fresh = other.window(sl.time_window("1 min")).aggregate(n=sl.count_all()).into(str(tmp_path / "fresh"))
    with pytest.raises(sl.StreamMismatchError, match="window"):
        sl.pipeline(fresh).start(spark)
    assert not (tmp_path / "fresh").exists()
