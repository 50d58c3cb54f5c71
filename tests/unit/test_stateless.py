"""Filters, selections and unions as streams of their own: no state, no footprints, and a place in the input."""

from __future__ import annotations

import datetime as dt
import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.errors import InputError, OptionError, SchemaError
from strandline.inputs.stream_definition import definition_of, words_of
from strandline.log.operator_state.operator_words import differences
from strandline.log.reading.summary import summary
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.operators.kernels.kernel_cache import TALLY
from strandline.recovery import checkpoint_audit
from strandline.recovery.window_report import current_windows, saved_windows
from strandline.running.kernel_warm_up import Kernels

ITEMS = "id long, at timestamp, price double"


def feed(schema: str = ITEMS, **options: Any) -> Any:
    return sl.testing.stream(schema, **{"key": "id", "time": "at", "lateness": "5 s", "partitions": 1, **options})


def second(text: str) -> str:
    return f"2026-01-01 00:00:{text}"


def times(rows: list[dict[str, Any]], name: str = "at") -> list[int]:
    return [row[name].second for row in rows]


def blocks_of(run: Any) -> list[Block]:
    log: Log = run.input_log
    return list(log.blocks(0))


def test_a_filter_writes_what_is_left_and_nothing_else() -> None:
    items = feed()
    run = sl.testing.run(items.where(pc.field("price") > 1.0).select("id", "at", double=pc.field("price") * 2.0))
    items.add([(1, second("04"), 1.0), (1, second("05"), 2.0)])
    items.add([(2, second("01"), 3.0), (2, second("03"), None)])
    found = run.step()
    assert found.schema.names == ["id", "at", "double"]
    assert [(row["id"], row["double"]) for row in found.to_pylist()] == [(1, 4.0), (2, 6.0)]  # in the input's order
    (block,) = blocks_of(run)
    assert block.rows == {"result": 2}
    standing = run.input_log.state.standings[0]
    assert (standing.input, standing.open, standing.extent, standing.replay, standing.oldest) == (4, 0, 0, 0, 4)
    assert run.open_windows == 0


def test_a_crash_costs_no_recovery_and_no_result() -> None:
    items = feed()
    run = sl.testing.run(items.where(pc.field("price") > 1.0))
    for price in range(6):
        items.add([(price, second(f"{price:02}"), float(price))])
        run.crash()
        run.step()
        run.crash()
        assert run.step().num_rows == 0
    assert run.results.column("price").to_pylist() == [2.0, 3.0, 4.0, 5.0]
    assert run.recoveries == 0


def test_nothing_is_left_on_the_machine_and_nothing_is_compiled() -> None:
    items = feed()
    compiled = TALLY.compiled
    run = sl.testing.run(items.where(pc.field("price") > 1.0))
    items.add([(1, second("01"), 2.0)])
    assert run.step().num_rows == 1
    assert [path for path in Path(run._folder.name).rglob("*") if path.is_file()] == []
    assert TALLY.compiled == compiled
    definition = definition_of(run.input_log.spec, "here", [items.input_log.spec])
    assert Kernels(definition, (items.input_log.spec,)).names == ()


def test_a_union_is_a_stream_in_the_order_of_time_then_input_then_offset() -> None:
    one, two = feed(), feed("price double, day timestamp, id long", time="day")
    run = sl.testing.run(sl.union(one, two))
    one.add([(1, second("03"), 1.0)])
    one.add([(1, second("01"), 2.0), (1, second("03"), 3.0), (1, second("20"), 4.0)])
    two.add([(5.0, second("03"), 1)])
    two.add([(6.0, second("02"), 1), (7.0, second("30"), 1)])
    found = run.step()
    assert found.schema.names == ["id", "at", "price"]
    assert found.column("price").to_pylist() == [2.0, 6.0, 1.0, 3.0, 5.0]
    one.finish()
    two.finish()
    run.crash()
    assert run.step().column("price").to_pylist() == [4.0, 7.0]
    assert run.input_log.state.finished
    assert run.input_log.spec.lateness == 0


def test_time_passes_through_a_filter_that_lets_no_tuple_pass() -> None:
    items = feed()
    rare = sl.testing.run(items.where(pc.field("price") > 1.0))
    counts = sl.testing.run(rare.window(sl.time_window("1 s")).aggregate(n=sl.count_all()))
    items.add([(1, second("01"), 2.0)])
    rare.step()
    assert counts.step().num_rows == 0
    items.add([(1, second("40"), 0.0)])
    assert rare.step().num_rows == 0
    assert counts.step().column("n").to_pylist() == [1]
    items.finish()
    rare.step()
    counts.step()
    assert counts.input_log.state.finished


def test_a_union_feeds_a_join_and_a_join_feeds_a_union() -> None:
    east, west, prices = feed(), feed(), feed("id long, at timestamp, paid double")
    both = sl.testing.run(sl.union(east, west))
    pairs = sl.testing.run(both.join(prices, within="2 s"))
    more = feed("id long, time timestamp, price double", time="time")
    every = sl.testing.run(sl.union(pairs.select("id", "time", "price"), more))
    east.add([(1, second("01"), 1.0)])
    west.add([(1, second("02"), 2.0), (2, second("02"), 9.0)])
    prices.add([(1, second("03"), 5.0), (2, second("03"), 5.0)])
    more.add([(7, second("02"), 7.0)])
    for stream in (east, west, prices, more):
        stream.finish()
    for run in (both, pairs, every):
        run.crash()
        run.step()
    assert [(row["id"], row["price"]) for row in every.rows] == [(7, 7.0), (1, 1.0), (1, 2.0), (2, 9.0)]


def test_the_shapes_of_a_union_and_of_its_streams_are_both_done() -> None:
    one, two = feed(), feed("id long, day timestamp, pence long", time="day")
    shaped = sl.union(one, two.select("id", "day", price=pc.field("pence") / 100.0)).where(pc.field("price") > 1.0)
    run = sl.testing.run(shaped.select("id", "at", whole=pc.field("price").cast("int64", safe=False)))
    one.add([(1, second("01"), 1.5), (1, second("03"), 0.5)])
    two.add([(1, second("02"), 250), (1, second("04"), 50)])
    one.finish()
    two.finish()
    assert [(row["at"].second, row["whole"]) for row in run.step().to_pylist()] == [(1, 1), (2, 2)]


def test_there_is_no_state_to_save() -> None:
    one, two = feed(), feed()
    for work in (sl.union(one, two), one.where(pc.field("price") > 0), sl.union(one, two).availability("3 s")):
        for policy in (sl.cec(), sl.instant("1 s"), sl.partial(), sl.none()):
            with pytest.raises(OptionError, match="this operator has no state to save") as caught:
                work.checkpoint(policy)
            assert "leave checkpoint(…) out" in caught.value.todo
    assert "cec" not in repr(sl.union(one, two).availability("3 s"))
    assert "availability" in repr(sl.union(one, two).availability("3 s"))


def test_a_union_loses_no_column_in_silence() -> None:
    one, two = feed(), feed("id long, at timestamp, price double, more string")
    with pytest.raises(SchemaError, match="columns that the first has not: more"):
        sl.testing.run(sl.union(one, two))
    with pytest.raises(SchemaError, match="has no column 'more'"):
        sl.testing.run(sl.union(two, one))
    with pytest.raises(SchemaError, match="has price string"):
        sl.testing.run(sl.union(one, feed("id long, at timestamp, price string")))
    run = sl.testing.run(sl.union(one, two).select("id", "at", "price"))
    two.add([(1, second("01"), 1.0, "x")])
    one.finish()
    two.finish()
    assert run.step().column("price").to_pylist() == [1.0]


def test_tuples_that_cannot_be_computed_stop_it_or_are_set_aside() -> None:
    one, two = feed("id long, at timestamp, n long"), feed("id long, day timestamp, n long", time="day")
    inverted = one.select("id", "at", n=pc.divide(pc.scalar(10), pc.field("n")))
    inverse = sl.union(inverted, two).select("id", "at", n=pc.divide(pc.scalar(6), pc.field("n")))
    stops, goes_on = sl.testing.run(inverse), sl.testing.run(inverse, on_error="set_aside")
    one.add([(1, second("01"), 0), (1, second("02"), 20), (1, second("03"), 5)])
    two.add([(2, second("04"), 0), (2, second("05"), 3)])
    one.finish()
    two.finish()
    with pytest.raises(InputError, match="divide by zero"):
        stops.step()
    assert goes_on.step().column("n").to_pylist() == [3, 2]
    aside = sorted(goes_on.set_aside.to_pylist(), key=lambda row: row["at"])
    assert [(row["id"], row["at"].second, row["_reason"]) for row in aside] == [
        (1, 1, "value"),
        (1, 2, "value"),  # 10 / 20 is 0
        (2, 4, "value"),
    ]


def test_order_and_lateness_of_the_input_are_those_of_the_results() -> None:
    items = feed()
    run = sl.testing.run(items.where(pc.field("price") > 0))
    assert run.input_log.spec.lateness == items.input_log.spec.lateness == 5_000_000
    items.add([(1, second("09"), 1.0)])
    items.add([(1, second("05"), 2.0)])
    assert times(run.step().to_pylist()) == [9, 5]
    assert run.input_log.state.boundaries == items.input_log.state.boundaries
    unordered = sl.testing.run(feed(lateness=None).where(pc.field("price") > 0))
    with pytest.raises(OptionError, match="has no lateness"):
        sl.union(unordered, items)


def test_results_of_count_windows_stay_what_they_are_behind_a_filter() -> None:
    items = feed()
    means = sl.testing.run(items.window(sl.count_window(2)).aggregate(mean=sl.avg("price")))
    run = sl.testing.run(means.where(pc.field("mean") > 1.0))
    items.add([(1, second("01"), 1.0), (1, second("02"), 1.0), (1, second("03"), 2.0), (1, second("04"), 4.0)])
    means.step()
    assert run.step().column("mean").to_pylist() == [3.0]
    assert run.input_log.spec.time_is_offset
    with pytest.raises(OptionError, match="whose times are offsets"):
        sl.union(run, feed())
    assert definition_of(run.input_log.spec, "here").to_json().items() <= (run.input_log.spec.operator or {}).items()


def test_nested_columns_and_others_pass_as_they_are() -> None:
    box = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.map_(pa.string(), pa.float64()))])
    tags, decimal = pa.list_(pa.string()), pa.decimal128(9, 2)
    columns = {"id": pa.int64(), "at": pa.timestamp("us", "UTC"), "tags": tags, "box": box, "d": decimal}
    items = feed(pa.schema(list(columns.items())))
    run = sl.testing.run(items.where(pc.field("id") > 0).select("id", "at", "box", "tags", e=pc.field("d")))
    row = (1, second("01"), ["a", None], {"a": 1, "b": [("x", 0.5)]}, None)
    items.add([row, (0, second("01"), [], None, None)])
    (found,) = run.step().to_pylist()
    assert (found["tags"], found["box"], found["e"]) == (row[2], row[3], None)
    assert definition_of(run.input_log.spec, "here").result_columns == run._element.definition.result_columns


def test_columns_that_an_input_gets_later_are_not_taken_over() -> None:
    items = feed()
    before = items.where(pc.field("price") > 0)._operator().definition
    later = feed("id long, at timestamp, price double, more string").where(pc.field("price") > 0)._operator().definition
    assert later != before
    assert later.continuing(before.to_json()) == before
    assert later.continuing(None) == later
    assert before.continuing(later.to_json()) == before  # which is another operator than that of the stream


def test_another_output_is_told_by_columns_and_types() -> None:
    mine, wanted = (
        feed().select(*names)._operator().definition.to_json() for names in (("id", "at"), ("id", "at", "price"))
    )
    (told,) = (text for text in differences(mine, wanted, is_timestamp=True) if "output" in text)
    assert told == "its output is id long, at timestamp, this program says id long, at timestamp, price double"


def test_the_tools_say_that_nothing_is_open() -> None:
    items = feed()
    run = sl.testing.run(items.where(pc.field("price") > 1.0))
    items.add([(1, second("01"), 2.0), (1, second("02"), 0.0)])
    run.step()
    log = run.input_log
    assert saved_windows(log).num_rows == 0
    assert current_windows(log, [items.input_log]).num_rows == 0
    audit = checkpoint_audit.audit(log)
    assert (audit.open_windows, audit.problems) == (0, ())
    told = summary(log, words_of=words_of).operator
    assert told is not None
    assert (told.windows, told.shape, told.open_windows) == ("where (price > 1.0)", "where (price > 1.0)", 0)
    assert (told.partitions[0]["extent"], told.partitions[0]["replay"]) == (0, 0)


def test_pictures_show_the_work_and_few_of_many_columns() -> None:
    one, two = feed(), feed()
    high = one.where(pc.field("price") > 1.0)
    wide = feed(", ".join(["id long, at timestamp", *(f"c{n} double" for n in range(78))]))
    united = sl.testing.run(sl.union(high, two))
    cases = [
        (high._operator(), "where (price > 1.0)"),
        (sl.union(one, two)._operator(), "union of 2 inputs"),
        (sl.union(high, two)._operator(), "union of 2 inputs: where (price > 1.0) in input 1"),
        (high.rekey("at"), "rekey by at: where (price > 1.0)"),
        (wide.select("id", "at", *(f"c{n}" for n in range(78)))._operator(), "c4, c5 and 72 more"),
    ]
    for operator, text in cases:
        assert text in operator.definition.text(is_timestamp=True)
        assert repr(operator).count(text) == 1
    assert words_of(united.input_log.spec).text == "union of 2 inputs: where (price > 1.0) in input 1"
    assert len(repr(cases[-1][0])) < 300


def test_since_leaves_out_what_came_before() -> None:
    one, two = feed(), feed()
    one.add([(1, second("01"), 1.0), (1, second("09"), 2.0)])
    two.add([(1, second("03"), 3.0), (1, second("20"), 4.0)])
    since = dt.datetime(2026, 1, 1, 0, 0, 3, tzinfo=dt.UTC)
    run = sl.testing.run(sl.union(one, two), since=since)
    one.finish()
    two.finish()
    assert run.step().column("price").to_pylist() == [3.0, 2.0, 4.0]
    alone = sl.testing.run(one.where(pc.field("price") > 0), since=since)
    assert alone.step().column("price").to_pylist() == [2.0]


def test_a_definition_travels_and_comes_back_from_its_json() -> None:
    one, two = feed(), feed("id long, day timestamp, price double", time="day")
    union = sl.union(one.where(pc.field("price") > 0), two).where(pc.field("price") < 9.0)._operator().definition
    assert pickle.loads(pickle.dumps(union)) == union
    assert hash(union) == hash(pickle.loads(pickle.dumps(union)))
    assert "Stateless(" in repr(sl.union(one, two)._operator())
    assert re.search("<td.*union of 2 inputs", sl.union(one, two)._operator()._repr_html_())
    assert isinstance(union.output_schema, pa.Schema)
