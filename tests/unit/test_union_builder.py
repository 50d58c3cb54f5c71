"""`sl.union` and `sl.barrier` as a user writes them, without Spark: what they give, and what they refuse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.errors import OptionError, SchemaError, StreamMismatchError

ITEMS = "id long, at timestamp, price double"


def feed(schema: str = ITEMS, **options: Any) -> Any:
    return sl.testing.stream(schema, **{"key": "id", "time": "at", "lateness": "5 s", **options})


def counted(union: Any) -> sl.Aggregation:
    return union.window(sl.time_window("10 s")).aggregate(total=sl.sum("price"), first=sl.first("price"))  # type: ignore[no-any-return]


def test_a_union_is_taken_in_by_time_and_then_by_input() -> None:
    one, two = feed(), feed("id long, day timestamp, price double, more string", time="day")
    run = sl.testing.run(counted(sl.union(one, two)))
    one.add([(1, "2026-01-01 00:00:30", 1.0), (1, "2026-01-01 00:00:02", 2.0), (1, "2026-01-01 00:00:01", 3.0)])
    assert run.step().num_rows == 0  # what the other one has is not known
    two.add([(1, "2026-01-01 00:00:01", 4.0, "x"), (1, "2026-01-01 00:00:00", 5.0, "y")])
    assert run.step().num_rows == 0
    two.add([(2, "2026-01-01 00:00:16", 6.0, "z")])
    run.crash()
    rows = run.step().to_pylist()
    assert [(r["id"], r["total"], r["first"]) for r in rows] == [(1, 14.0, 5.0)]
    one.finish()
    two.finish()
    assert {(r["id"], r["total"]) for r in run.step().to_pylist()} == {(1, 1.0), (2, 6.0)}
    assert run.recoveries > 0
    assert run.open_windows == 0


def test_stateless_work_behind_a_union_is_done_to_the_tuples_of_all_inputs() -> None:
    one, two = feed(), feed("id long, day timestamp, price double", time="day")
    union = sl.union(one, two).where(pc.field("price") > 1.0).select("id", "at", price=pc.field("price") * 2.0)
    run = sl.testing.run(counted(union))
    one.add([(1, "2026-01-01 00:00:01", 1.0), (1, "2026-01-01 00:00:02", 2.0)])
    two.add([(1, "2026-01-01 00:00:03", 3.0), (1, "2026-01-01 00:00:04", 0.5)])
    one.finish()
    two.finish()
    assert [r["total"] for r in run.step().to_pylist()] == [10.0]


@pytest.mark.parametrize(
    ("others", "error", "what"),
    [
        ({"lateness": None}, OptionError, "input 2 has no lateness"),
        ({"partitions": 3}, StreamMismatchError, "input 1: 2; input 2: 3"),
        ({"schema": "number long, at timestamp, price double", "key": "number"}, SchemaError, "number long"),
        ({"schema": "id int, at timestamp, price double"}, SchemaError, "input 1: id long; input 2: id integer"),
        ({"schema": "id long, at long, price double", "lateness": 5}, SchemaError, "input 1: timestamp; input 2: long"),
    ],
)
def test_inputs_that_differ_are_refused_with_what_differs(others: dict[str, Any], error: type, what: str) -> None:
    with pytest.raises(error, match=re.escape(what)):
        sl.union(feed(), feed(**others))


def test_columns_that_are_read_have_to_be_the_same_in_all_inputs() -> None:
    text = sl.union(feed(), feed("id long, at timestamp, price string"))
    with pytest.raises(SchemaError, match="has price string"):
        counted(text)
    none = sl.union(feed(), feed("id long, at timestamp"))
    with pytest.raises(SchemaError, match="has no column 'price'"):
        counted(none)
    none.window(sl.count_window(2)).aggregate(n=sl.count_all())


def test_what_is_no_union_is_refused(tmp_path: Path) -> None:
    one, two = feed(), feed()
    with pytest.raises(OptionError, match="the union has 1 input"):
        sl.union(one)
    with pytest.raises(OptionError, match="input 1 and input 3 are the same stream"):
        sl.union(one, two, one)
    with pytest.raises(OptionError, match="input 2 of the union is 'streams/items', not a stream"):
        sl.union(one, "streams/items")
    with pytest.raises(OptionError, match="input 2 of the union is"):
        sl.union(one, sl.union(two, feed()).where(pc.field("price") > 0))
    with pytest.raises(OptionError, match=re.escape("to_arrow() does not work for a union")):
        sl.union(one, two).where(pc.field("price") > 0).to_arrow()
    with pytest.raises(SchemaError, match="differ in time"):
        sl.barrier(a=one, b=feed("id long, t long", time="t", lateness=1))
    assert "Union(" in repr(sl.union(one, two))


def test_a_number_without_a_unit_is_no_lateness_of_timestamps() -> None:
    with pytest.raises(OptionError, match="lateness=5 has no unit, and the time column is a timestamp") as caught:
        feed(lateness=5)
    assert '"5 us"' in caught.value.todo
    assert feed(lateness="5 us")._input_spec.lateness == feed("id long, at long", lateness=5)._input_spec.lateness == 5
    assert feed(lateness=0)._input_spec.lateness == 0


def test_what_is_only_half_built_says_what_it_lacks() -> None:
    one, two = feed(), feed()
    union, windows = sl.union(one, two), one.window(sl.count_window(2))
    for method in ("start", "checkpoint", "availability"):
        with pytest.raises(OptionError, match=re.escape(f"without an aggregate has no {method}()")) as caught:
            getattr(windows, method)(None, "streams/x")
        assert ".aggregate(n=sl.count_all(), …)" in caught.value.todo
    for method in ("read", "read_stream", "to_arrow"):
        with pytest.raises(OptionError, match="a union"):
            getattr(union, method)()
    for wrong in (union, windows, counted(one)):
        with pytest.raises(OptionError, match="right of the join is"):
            one.join(wrong, within="1 s")
        if wrong is union:
            with pytest.raises(OptionError, match="left of the join is"):
                wrong.join(one, within="1 s")


# ---------------------------------------------------------------------- barriers


def test_a_barrier_that_could_never_complete_a_set_is_refused() -> None:
    three = {"a": feed(), "b": feed(), "c": feed()}
    with pytest.raises(OptionError, match="at_most=1 of 3 inputs: no set would ever be complete"):
        sl.barrier(**three, at_most=1)
    run = sl.testing.run(sl.barrier(**three, at_most=2))
    for second, one in enumerate(three.values()):
        one.add([(1, f"2026-01-01 00:00:0{second}", 1.0)])
        one.finish()
    assert run.step().num_rows == 1


def test_a_barrier_brings_the_nth_tuples_of_a_key_together() -> None:
    one, two = feed(), feed("id long, day timestamp, level int", time="day")
    run = sl.testing.run(sl.barrier(price=one, level=two).checkpoint(sl.cec(replay=2)))
    one.add([(1, "2026-01-01 00:00:01", 1.0), (1, "2026-01-01 00:00:03", 2.0), (2, "2026-01-01 00:00:30", 3.0)])
    two.add([(1, "2026-01-01 00:00:02", 7), (2, "2026-01-01 00:00:30", 8)])
    (row,) = run.step().to_pylist()
    assert list(row) == ["id", "time", "price_at", "price_price", "level_day", "level_level"]
    assert (row["id"], row["time"], row["price_price"], row["level_level"]) == (1, row["level_day"], 1.0, 7)
    assert run.open_windows == 1
    run.crash()
    two.add([(1, "2026-01-01 00:00:40", 9)])
    one.finish()
    two.finish()
    assert [(r["price_price"], r["level_level"]) for r in run.step().to_pylist()] == [(3.0, 8), (2.0, 9)]
    assert run.open_windows == 0
    assert run.recoveries > 0


def test_what_is_no_barrier_is_refused() -> None:
    with pytest.raises(OptionError, match="the barrier has 1 input"):
        sl.barrier(a=feed())
    with pytest.raises(OptionError, match="a and b are the same stream"):
        one = feed()
        sl.barrier(a=one, b=one)
    with pytest.raises(OptionError, match="at_most='many'"):
        sl.barrier(at_most="many", a=feed(), b=feed())  # type: ignore[arg-type]
    assert "Barrier(" in repr(sl.barrier(a=feed(), b=feed()))


def test_a_list_of_inputs_and_inputs_without_a_name_are_refused_with_what_to_write() -> None:
    one, two = feed(), feed()
    with pytest.raises(OptionError, match=r"(?s)the union has 1 input, a list.*one by one"):
        sl.union([one, two])
    with pytest.raises(OptionError, match=r"(?s)2 inputs of the barrier have no name.*sl.barrier\(temperature=a"):
        sl.barrier(one, two)
