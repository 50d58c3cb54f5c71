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
from tests.support.machine import patience
from tests.support.operator_streams import bits, published_results
from tests.support.sensors import Sensors

NAMES = ("pairs", "by-value", "counts")


def chain(sensors: Sensors, folder: Path) -> Any:
    north, south = (sl.stream(str(path)) for path in sensors.paths)
    pairs = north.join(south, within=3, how="left").into(str(folder / "pairs"))
    by_value = pairs.rekey("left_v", partitions=3).into(str(folder / "by-value"))
    return by_value.window(sl.time_window(10)).aggregate(n=sl.count_all()).into(str(folder / "counts"))


@pytest.mark.long
def test_tentative_results_of_a_join_reach_the_end_through_another_key_and_are_corrected(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    sensors = Sensors(tmp_path, ("north", "south"))
    for number in range(2):
        sensors.write(number, 0, 25)
    flow = sl.pipeline(chain(sensors, tmp_path)).availability(within="9 s")
    graph = str(flow.graph())
    assert graph.count("rekey by left_v") == 1
    run = flow.start(spark, trigger="200 ms")
    paths = [str(tmp_path / name) for name in NAMES]
    try:
        eventually(lambda: all(run[path].progress.get("results") is not None for path in paths), 180)
        sensors.write(0, 25, 45)
        eventually(lambda: run[paths[2]].progress["tentative"], 60)
        assert [run[path].progress["state"] for path in paths] == ["UP_FAILURE"] * 3
        assert set(run[paths[1]].progress["missing"]) == {"pairs (partition 0)", "pairs (partition 1)"}
        assert sl.stream(paths[2]).read(spark, tentative=True).where("_tentative").count() > 0
        sensors.write(1, 25, 45)
        eventually(lambda: all(run[path].progress["state"] == "STABLE" for path in paths), 180)
        assert not sl.stream(paths[2]).read(spark, tentative=True).where("_tentative").count()
        kinds = {row["_kind"] for row in _changes(tmp_path / "by-value")}
        assert kinds == {"stable", "tentative", "undo", "rec_done"}
    finally:
        run.stop()
    calm = tmp_path / "calm"
    again = sl.pipeline(chain(sensors, calm)).start(spark, trigger="available-now")
    assert again.await_termination(patience(240))
    for name in NAMES:
        found, expected = (Log.open(LocalStorage(folder / name)) for folder in (tmp_path, calm))
        for p in range(found.spec.partitions):
            assert bits(published_results(found, p)).equals(bits(published_results(expected, p))), name
    assert sum(len(published_results(expected, p)) for p in range(3)) > 10


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
