"""The kit for users' tests: a source fed by hand, steps on demand, crashes, a clock moved by hand, and no JVM."""

from __future__ import annotations

import datetime as dt
import doctest
import gc
import importlib
import re
import warnings
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import SparkContext

import strandline as sl
from strandline.schema_text import schema_json
from tests.support.plain_context import jvm_context

ITEMS = "id long, at timestamp, price double"


def averages(items: Any) -> sl.Aggregation:
    return items.window(sl.time_window("10 s")).aggregate(average=sl.avg("price"), n=sl.count_all())  # type: ignore[no-any-return]


def feed(**options: Any) -> sl.testing.Feed:  # type: ignore[name-defined]
    return sl.testing.stream(ITEMS, **{"key": "id", "time": "at", "lateness": "5 s", **options})


def second(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(f"2026-01-01 00:00:{text}+00:00")


def test_a_window_closes_when_the_boundary_has_passed_it() -> None:
    spark = SparkContext._active_spark_context  # of another test in this process, if there is one
    items = feed()
    run = sl.testing.run(averages(items))
    items.add([(1, "2026-01-01 00:00:01", 2.0), (1, "2026-01-01 00:00:04", 4.0)])
    assert run.step().num_rows == 0
    assert run.open_windows == 1
    items.add([(2, "2026-01-01 00:00:14", 1.0)])
    assert run.step().num_rows == 0
    items.add([(2, "2026-01-01 00:00:15", 1.0)])
    (row,) = run.step().to_pylist()
    assert row == {"id": 1, "window_start": second("00"), "window_end": second("10"), "average": 3.0, "n": 2}
    assert run.rows == [row]
    assert SparkContext._active_spark_context is spark


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([(1, "2026-01-01", 1.0), (2,)], "row 1 has 1 value, and the stream has 3 columns"),
        ([(1, "2026-01-01", 1.0, 5)], "row 0 has 4 values, and the stream has 3 columns"),
        ((1, "2026-01-01", 1.0), "row 0 is 1, and not a row of values"),
        (("h", "2026-01-01", "x"), "row 0 is 'h', and not a row of values"),
    ],
)
def test_rows_that_do_not_fit_the_columns_are_refused_with_what_to_do(rows: Any, what: str) -> None:
    with pytest.raises(sl.SchemaError, match=what) as refused:
        feed().add(rows)
    assert refused.value.where == "sl.testing, columns: id, at, price"
    assert "add([(" in refused.value.todo


def test_a_run_that_is_dropped_removes_its_folder_in_silence() -> None:
    run = sl.testing.run(averages(feed()))
    folder = run._folder
    assert folder.is_dir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del run
        gc.collect()
    assert not folder.exists()


def test_late_tuples_go_to_the_side_log() -> None:
    items = feed()
    items.add([(1, "2026-01-01 00:00:30", 1.0)])
    items.add([(1, "2026-01-01 00:00:24", 2.0), (1, "2026-01-01 00:00:25", 3.0)])
    assert [(r["price"], r["_reason"]) for r in items.late.to_pylist()] == [(2.0, "late")]
    assert items.tuples().column("price").to_pylist() == [1.0, 3.0]


def test_a_clock_moved_by_hand_closes_the_windows_of_a_quiet_stream() -> None:
    items = feed(heartbeat="1 s")
    run = sl.testing.run(averages(items))
    items.add([(1, "2026-01-01 00:00:01", 2.0)])
    items.clock.advance("14 s")
    assert run.step().num_rows == 0
    items.clock.advance(dt.timedelta(seconds=1))
    assert run.step().num_rows == 1


def test_what_is_ahead_of_the_clock_is_set_aside_if_the_test_wants_that() -> None:
    items = feed(max_ahead="1 day")
    items.add([(1, "2026-01-03", 1.0), (1, "2026-01-01", 2.0)])
    assert [(r["price"], r["_reason"]) for r in items.late.to_pylist()] == [(1.0, "ahead")]
    items.clock.advance("2 days")
    items.add([(1, "2026-01-03", 3.0)])
    assert items.tuples().column("price").to_pylist() == [2.0, 3.0]


@pytest.mark.parametrize("policy", [sl.cec(), sl.cec(extent=0), sl.instant("1 s")], ids=["cec", "all", "instant"])
def test_results_do_not_depend_on_crashes_and_steps(policy: sl.Policy) -> None:
    rng = Random(5)
    batches = [
        [(rng.randrange(4), dt.datetime(2026, 1, 1, 0, i, rng.randrange(60)), rng.random()) for _ in range(15)]
        for i in range(6)
    ]

    def results(crashes: float, at_once: bool, tuples_max: int) -> list[tuple[Any, ...]]:
        items = feed(lateness="1 min")
        run = sl.testing.run(averages(items).checkpoint(policy), max_tuples_per_batch=tuples_max)
        for batch in batches:
            items.add(batch)
            if not at_once:
                run.step()
            if rng.random() < crashes:
                run.crash()
        items.finish()
        run.step()
        assert (run.recoveries > 0) == (crashes > 0)
        return sorted(tuple(row.values()) for row in run.rows)

    expected = results(0, True, 10_000)
    assert len(expected) > 50
    assert results(0.6, False, 10_000) == results(0.6, False, 7) == expected


def test_operators_follow_each_other() -> None:
    items = feed()
    first = sl.testing.run(averages(items.where(pc.field("price") > 0)))
    busy = first.window(sl.count_window(2)).aggregate(most=sl.max("n"))
    second_run = sl.testing.run(busy)
    items.add([(1, f"2026-01-01 00:00:{s:02d}", p) for s, p in ((1, 1.0), (2, -1.0), (11, 1.0), (12, 1.0), (40, 1.0))])
    assert first.step().column("n").to_pylist() == [1, 2]
    second_run.crash()
    assert second_run.step().column("most").to_pylist() == [2]


def test_what_cannot_be_computed_is_set_aside_or_stops() -> None:
    def run(on_error: Any) -> Any:
        items = sl.testing.stream("id long, at long, v long", key="id", time="at", partitions=1)
        summed = items.window(sl.count_window(2)).aggregate(total=sl.sum("v"))
        found = sl.testing.run(summed, on_error=on_error)
        items.add([(1, 1, 1 << 62), (1, 2, 1 << 62)])
        return found

    with pytest.raises(sl.AggregateOverflowError):
        run("stop").step()
    aside = run("set_aside")
    assert aside.step().num_rows == 0
    assert aside.set_aside.column("_reason").to_pylist() == ["overflow"]


@pytest.mark.parametrize(
    "rows",
    [
        [{"price": 1.5, "id": 1, "at": second("05")}],
        [(1, "2026-01-01 01:00:05+01:00", 1.5)],
        pa.table({"at": pa.array([second("05")]), "id": [1], "price": [1.5]}),
        pd.DataFrame({"id": [1], "at": [pd.Timestamp("2026-01-01 00:00:05", tz="UTC")], "price": [1.5]}),
    ],
    ids=["dictionaries", "tuples", "arrow", "pandas"],
)
def test_rows_come_in_any_of_the_usual_forms(rows: Any) -> None:
    items = feed()
    items.add(rows)
    assert items.tuples().to_pylist() == [{"id": 1, "at": second("05"), "price": 1.5}]


def test_schemas_come_as_text_as_arrow_or_as_spark_has_them() -> None:
    from pyspark.sql.types import DoubleType, LongType, StructField, StructType, TimestampType

    arrow = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("price", pa.float64())])
    spark = StructType(
        [StructField("id", LongType()), StructField("at", TimestampType()), StructField("price", DoubleType())]
    )
    assert schema_json(ITEMS) == schema_json(arrow) == schema_json(spark)
    text = "`a b` INT, b: decimal( 12 , 3 ), c dec, d string"
    assert [f["type"] for f in schema_json(text)["fields"]] == ["integer", "decimal(12,3)", "decimal(10,0)", "string"]


def test_mistakes_are_told_at_once() -> None:
    items = feed()
    for rows, error, words in (
        ([{"id": 1, "at": "2026-01-01", "cost": 1.0}], sl.SchemaError, "cost"),
        (pa.table({"id": [1]}), sl.SchemaError, "the rows have the columns id"),
        ([(1, None, 1.0)], sl.NullTimeError, "at is null"),
        ([(1, "yesterday", 1.0)], sl.OptionError, "yesterday"),
    ):
        with pytest.raises(error, match=words):
            items.add(rows)
    with pytest.raises(sl.OptionError, match="'at nothing'"):
        sl.testing.stream("id long, at nothing", key="id", time="at")
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=jvm_context()))
    with pytest.raises(sl.OptionError, match="not started with Spark"):
        averages(items).start(spark, "nowhere")
    with pytest.raises(sl.OptionError, match=r"leave out \.into"):
        sl.testing.run(averages(items).into("elsewhere"))  # type: ignore[arg-type]
    with pytest.raises(sl.OptionError, match="a Feed is no operator"):
        sl.testing.run(items)  # type: ignore[arg-type]
    items.finish()
    with pytest.raises(sl.StreamFinishedError):
        items.add([(1, "2026-01-01", 1.0)])


def test_the_example_of_the_docs_runs() -> None:
    text = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
    program = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(program, names)
    tests = [test for name, test in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()


@pytest.mark.parametrize("module", ["testing.hand_clock", "schema_text", "testing.spark_placement"])
def test_the_examples_run(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"strandline.{module}"))
    assert found.attempted > 0
    assert found.failed == 0
