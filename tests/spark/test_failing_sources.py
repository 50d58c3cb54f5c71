"""Sources whose queries fail: behind a bound their streams are missing inputs, with `restart=` they start again."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from tests.support.machine import patience

pytestmark = pytest.mark.filterwarnings("ignore::strandline.errors.StrandlineWarning")


def break_next(feed: Any) -> Path:
    """Adds a file that Spark cannot read."""
    path = feed.folder / f"{len(list(feed.folder.iterdir())):05d}.parquet"
    path.write_bytes(b"PAR1 this is no Parquet file PAR1")
    return path  # type: ignore[no-any-return]


def mend(feed: Any, broken: Path, rows: Any) -> None:
    """Puts a file with these rows in its place, as a disk that is mounted again would."""
    broken.unlink()
    feed.add(rows)
    assert broken.exists()


def test_a_source_that_fails_behind_a_bound_is_missing_until_it_is_back(
    spark: SparkSession,
    feed: Callable[..., Any],
    items: Callable[..., Any],
    eventually: Callable[..., None],
    tmp_path: Path,
) -> None:
    feeds = [feed(items(30), name=name) for name in ("one", "two")]

    def sources() -> list[sl.Entry]:
        options = {"key": "k", "time": "at", "lateness": "0 s", "max_ahead": None}
        return [sl.source(f.df, str(tmp_path / f"stream-{f.folder.name}"), **options) for f in feeds]

    def counted(inputs: list[Any]) -> sl.Aggregation:
        return sl.union(*inputs).window(sl.time_window("10 s")).aggregate(n=sl.count_all())

    operator = counted(sources()).availability(bound="2 s")
    with operator.start(spark, str(tmp_path / "counted"), trigger="100 ms") as query:
        eventually(lambda: query.progress.get("state") == "STABLE" and query.progress["sources"])
        query.process_all_available()
        broken = break_next(feeds[1])
        feeds[0].add(items(40, first=30))
        eventually(lambda: query.progress["state"] == "UP_FAILURE")
        eventually(lambda: any("failed" in source for source in query.progress["sources"]))
        results = sl.stream(str(tmp_path / "counted"))
        eventually(lambda: results.read(spark, tentative=True).where("_tentative").count() > 0)
        assert query.exception() is None
        mend(feeds[1], broken, items(40, first=30))
        eventually(lambda: query.progress["state"] == "STABLE")
        assert [source.get("restarts", 0) > 0 for source in query.progress["sources"]] == [False, True]
        assert results.read(spark, tentative=True).where("_tentative").count() == 0
    inputs = [sl.stream(str(tmp_path / f"stream-{name}")) for name in ("one", "two")]
    again = counted(inputs).start(spark, str(tmp_path / "again"), trigger="available-now")
    assert again.await_termination(patience(120))
    found, expected = (sl.stream(str(tmp_path / name)).read(spark) for name in ("counted", "again"))
    assert expected.count() > 0
    assert found.exceptAll(expected).isEmpty()
    assert expected.exceptAll(found).isEmpty()


def test_an_entry_point_that_may_start_again_goes_on_where_it_failed(
    spark: SparkSession,
    feed: Callable[..., Any],
    items: Callable[..., Any],
    eventually: Callable[..., None],
    content: Callable[[Path], dict[int, list[Any]]],
    tmp_path: Path,
) -> None:
    source = feed(items(10))
    entry = sl.persist(source.df, str(tmp_path / "out"), key="k", time="at", max_ahead=None)
    with entry.start(spark, trigger="100 ms", restart="1 s") as query:
        query.process_all_available()
        broken = break_next(source)
        eventually(lambda: "failed" in query.progress)
        assert query.is_active
        mend(source, broken, items(10, first=10))
        eventually(lambda: sum(len(rows) for rows in content(tmp_path / "out").values()) == 20)
        assert query.progress["restarts"] > 0
        eventually(lambda: "failed" not in query.progress)
    assert not query.is_active


def test_without_a_bound_a_source_that_fails_ends_the_operator(
    spark: SparkSession, feed: Callable[..., Any], items: Callable[..., Any], tmp_path: Path
) -> None:
    feeds = [feed(items(5), name=name) for name in ("one", "two")]
    inputs = [
        sl.source(f.df, str(tmp_path / f"stream-{f.folder.name}"), key="k", time="at", lateness="0 s", max_ahead=None)
        for f in feeds
    ]
    operator = sl.union(*inputs).window(sl.time_window("10 s")).aggregate(n=sl.count_all())
    query = operator.start(spark, str(tmp_path / "counted"), trigger="100 ms")
    query.process_all_available()
    break_next(feeds[1])
    with pytest.raises(Exception, match=r"footer|Parquet"):
        query.await_termination(patience(120))
    assert not query.is_active
