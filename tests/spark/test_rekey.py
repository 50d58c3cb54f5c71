"""`rekey` as an operator in Spark: between a join and an aggregate, whose bound reaches to the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from tests.spark.test_failing_sources import break_next, mend
from tests.support.machine import patience
from tests.support.operator_streams import bits, published_results

NAMES = ("pairs", "by-value", "counts")


def chain(inputs: list[Any], folder: Path) -> Any:
    north, south = inputs
    pairs = north.join(south, within="3 s", how="left").into(str(folder / "pairs"))
    by_value = pairs.rekey("left_v", partitions=3).into(str(folder / "by-value"))
    return by_value.window(sl.time_window("10 s")).aggregate(n=sl.count_all()).into(str(folder / "counts"))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::strandline.errors.StrandlineWarning")
def test_tentative_results_of_a_join_reach_the_end_through_another_key_and_are_corrected(
    spark: SparkSession,
    feed: Callable[..., Any],
    items: Callable[..., Any],
    eventually: Callable[..., None],
    tmp_path: Path,
) -> None:
    feeds = [feed(items(60), name=name) for name in ("north", "south")]
    streams = [str(tmp_path / f"stream-{one.folder.name}") for one in feeds]
    options: dict[str, Any] = {"key": "k", "time": "at", "lateness": "0 s", "max_ahead": None}
    sources = [sl.source(one.df, path, **options) for one, path in zip(feeds, streams, strict=True)]
    flow = sl.pipeline(chain(sources, tmp_path)).availability(within="9 s")
    assert str(flow.graph()).count("rekey by left_v") == 1
    run = flow.start(spark, trigger="200 ms")
    paths = [str(tmp_path / name) for name in NAMES]
    try:
        eventually(lambda: all(run[path].progress.get("results") is not None for path in paths), 180)
        broken = break_next(feeds[1])
        feeds[0].add(items(60, first=60))
        eventually(lambda: run[paths[2]].progress["tentative"], 90)
        assert [run[path].progress["state"] for path in paths] == ["UP_FAILURE"] * 3
        assert set(run[paths[1]].progress["missing"]) <= {"pairs (partition 0)", "pairs (partition 1)"} != set()
        assert [consumer.label for consumer in sl.stream(paths[0]).describe().consumers] == ["by-value"]
        assert sl.stream(paths[2]).read(spark, tentative=True).where("_tentative").count() > 0
        mend(feeds[1], broken, items(60, first=60))
        eventually(lambda: all(run[path].progress["state"] == "STABLE" for path in paths), 180)
        assert not sl.stream(paths[2]).read(spark, tentative=True).where("_tentative").count()
        assert {row["_kind"] for row in _changes(tmp_path / "by-value")} == {"stable", "tentative", "undo", "rec_done"}
        calm = tmp_path / "calm"
        inputs = [sl.stream(path) for path in streams]
        again = sl.pipeline(chain(inputs, calm)).start(spark, trigger="available-now")
        assert again.await_termination(patience(240))
        eventually(lambda: all(_stable(tmp_path / name) == _stable(calm / name) for name in NAMES), 60)
        assert len(_stable(calm / "counts")) > 10
    finally:
        run.stop()


def _stable(path: Path) -> list[dict[str, Any]]:
    log = Log.open(LocalStorage(path))
    tables = [published_results(log, p) for p in range(log.spec.partitions)]
    return [{"partition": p, **row} for p, table in enumerate(tables) for row in bits(table).to_pylist()]


def _rows(stream: sl.Stream, partition: int) -> list[tuple[Any, ...]]:
    return sorted((row["k"], row["v"], row["at"]) for row in stream.log(partition))


def _changes(path: Path) -> list[dict[str, Any]]:
    from strandline.log.reading.tentative_results import changes

    log = Log.open(LocalStorage(path))
    return [row for p in range(log.spec.partitions) for table in changes(log, p) for row in table.to_pylist()]


@pytest.mark.long
def test_tuples_are_where_an_entry_point_would_have_put_them(
    spark: SparkSession, feed: Callable[..., Any], items: Callable[..., Any], tmp_path: Path
) -> None:
    files = feed(items(120))
    source = sl.source(files.df, str(tmp_path / "items"), key="k", time="at", lateness="5 s", max_ahead=None)
    rekeyed = source.rekey(["v", "k"], partitions=3)
    query = rekeyed.start(spark, str(tmp_path / "operator"), trigger="available-now", final=True)
    assert query.await_termination(patience(120))
    stream = sl.stream(str(tmp_path / "items"))
    entry = stream.rekey(["v", "k"], str(tmp_path / "entry"), spark=spark, partitions=3, start="earliest")
    assert entry.start(trigger="available-now").await_termination(patience(120))
    operator = sl.stream(str(tmp_path / "operator"))
    assert operator.is_finished
    found, expected = (
        [_rows(stream, p) for p in range(3)] for stream in (operator, sl.stream(str(tmp_path / "entry")))
    )
    assert found == expected
    assert sum(map(len, found)) == 120
    with pytest.raises(sl.StreamMismatchError, match=r"partitions|key"):
        stream.rekey("v", partitions=3).start(spark, str(tmp_path / "operator"), trigger="available-now")
    with pytest.raises(sl.StreamMismatchError, match="partitions"):
        stream.rekey(["v", "k"], partitions=2).start(spark, str(tmp_path / "operator"), trigger="available-now")
