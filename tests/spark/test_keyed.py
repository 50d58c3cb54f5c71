"""Keyed functions with a real Spark: sources, restarts, errors of a user's function as a user sees them."""

import math
from pathlib import Path
from typing import Any

import pytest

import strandline as sl

pytestmark = pytest.mark.spark
LIMIT = 1.5


@sl.keyed(state="n long, mean double, name string", output="n long, mean double, name string", expire="1 hour")
def running(state: Any, row: Any, out: Any) -> int:
    """The running mean of a key; texts are copied."""
    if row.value < 0:
        raise ValueError("negative")
    state.n += 1
    state.mean += (row.value - state.mean) / state.n
    if state.is_new or row.name != state.name:
        state.name = row.name
    out.n, out.mean = state.n, math.floor(state.mean * 1000) / 1000
    out.name = state.name
    return sl.EMIT if state.mean > LIMIT else 0


def files(spark: Any, folder: Path, number: int, rows: list[tuple[Any, ...]]) -> None:
    df = spark.createDataFrame(rows, "k long, s long, value double, name string")
    df = df.selectExpr("k", "timestamp_seconds(s) AS at", "value", "name")
    df.coalesce(1).write.mode("append").parquet(str(folder / "files"))


def start(spark: Any, folder: Path, **options: Any) -> Any:
    schema = spark.read.parquet(str(folder / "files")).schema
    df = spark.readStream.schema(schema).parquet(str(folder / "files"))
    items = sl.source(df, str(folder / "items"), key="k", time="at", partitions=2, lateness="1 s")
    query = items.apply(running).start(spark, str(folder / "means"), trigger="available-now", **options)
    query.await_termination()
    return query


def test_a_function_goes_on_where_it_stood_and_an_error_has_the_line_of_the_user(spark: Any, tmp_path: Path) -> None:
    def rows(first: int) -> list[tuple[Any, ...]]:
        return [(i % 3, i, float(i % 7), f"name {i % 2}") for i in range(first, first + 30)]

    expected: list[tuple[Any, ...]] = []
    states: dict[int, tuple[int, float]] = {}
    for k, _, value, name in [*rows(0), *rows(30)]:
        n, mean = states.get(k, (0, 0.0))
        n += 1
        mean += (value - mean) / n
        states[k] = n, mean
        if mean > LIMIT:
            expected.append((k, n, math.floor(mean * 1000) / 1000, name))
    for first in (0, 30):
        files(spark, tmp_path, first, rows(first))
        start(spark, tmp_path)
    found = sl.stream(str(tmp_path / "means")).read(spark).select("k", "n", "mean", "name").collect()
    assert sorted(map(tuple, found)) == sorted(expected)
    assert sl.stream(str(tmp_path / "means")).open_windows().num_rows == 3

    files(spark, tmp_path, 60, [(1, 61, -1.0, "x")])
    line = running.main.function.__code__.co_firstlineno + 4
    with pytest.raises(sl.InputError, match=rf"test_keyed.py, line {line}; key k=1, input offset \d+"):
        start(spark, tmp_path)
    start(spark, tmp_path, on_error="set_aside")
    aside = sl.stream(str(tmp_path / "means")).read(spark, late=True, positions=True).collect()
    assert [row["_reason"] for row in aside] == ["function"]
