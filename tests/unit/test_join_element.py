"""Joins in batches over streams, as a driver and its tasks run them."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.checkpoint.policy import cec
from strandline.errors import OptionError
from strandline.inputs import serialised_input
from strandline.inputs.input_of import input_of
from strandline.log.stream import quiet
from strandline.operators.join.definition import JoinDefinition, JoinInput
from strandline.operators.join.join_windows import JoinWindows
from strandline.recovery.recover import Stand, recover
from strandline.running.state.state_cache import StateCache
from tests.support.operator_streams import COLUMNS
from tests.support.union_streams import UnionStory, UnionStreams


def definition(windows: JoinWindows, where: Callable[..., Any] | None = None) -> JoinDefinition:
    one = JoinInput(dict(COLUMNS), ("k",), "t")
    return JoinDefinition.of(one, one, windows, where, group=4)


def test_a_recovery_reads_hardly_more_than_it_replays_and_says_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one step: T lies somewhere inside of it, and the place where the replay begins not far before T."""
    monkeypatch.setattr(serialised_input, "_EDGE_EVERY", 20)
    streams = UnionStreams(definition(JoinWindows("band", -5, 5)), 2, lambda p: StateCache(tmp_path / f"state{p}"))
    story = UnionStory(Random(4), streams)
    for _ in range(150):
        story.grow()
    assert len(streams.batch(cec(replay=30), tuples_max=1 << 40)) == 1
    (standing,) = streams.output.state.standings
    assert standing.marks is not None
    assert standing.input > 300
    assert 0 < standing.replay <= 30 < standing.read_again + 30
    assert standing.replay <= standing.read_again < standing.replay + 60
    mine = streams.definition
    intake = input_of(mine, streams.inputs, [standing])
    _, done = recover(streams.output, intake, mine, Stand.of(streams.output, 0))
    assert (done.replayed, done.read) == (standing.replay, standing.read_again)
    assert standing.predicted_s >= standing.unit_costs[1] * standing.read_again / 1e9


@pytest.mark.parametrize("windows", [JoinWindows("key", sizes=(3, 2)), JoinWindows("band", 0, 9, how="full")])
def test_time_alone_is_a_commit_only_if_it_tells_readers_of_the_results_something(
    tmp_path: Path, windows: JoinWindows
) -> None:
    streams = UnionStreams(definition(windows), 2, lambda p: StateCache(tmp_path / f"state{p}"))
    for number in range(2):
        streams.append(number, {0: [{"k": 1, "s": "", "v": number, "x": 0.0, "t": 5}]})
        quiet.pass_time(streams.inputs[number], 100, "run")
    streams.drain()
    assert streams.output.state.ends[0] > 0
    for left, right, told in [(150, 100, None), (150, 130, 130), (150, 150, 150), (500, 150, None), (500, 501, 500)]:
        before = streams.output.state.seq
        for number, boundary in enumerate((left, right)):
            quiet.pass_time(streams.inputs[number], boundary, "run")
        streams.drain()
        assert streams.output.state.seq - before == (told is not None), "one commit for all that has passed, or none"
        if told is not None:
            assert streams.output.state.boundary == told - windows.delay
            assert streams.output.commit(streams.output.state.seq).blocks == ()


def feed(schema: str, **options: Any) -> Any:
    return sl.testing.stream(schema, **{"key": "id", "time": "at", "lateness": "5 s", **options})


def test_a_join_is_written_as_it_is_meant() -> None:
    orders, payments = feed("id long, at timestamp, amount double"), feed("id long, at timestamp, paid double")
    join = orders.join(payments, within="10 s", how="left").where(lambda left, right: left.amount <= right.paid)
    run = sl.testing.run(join.checkpoint(sl.cec(replay=1)))
    orders.add([(1, "2026-01-01 00:00:01", 2.0), (2, "2026-01-01 00:00:02", 3.0), (1, "2026-01-01 00:00:40", 9.0)])
    payments.add([(1, "2026-01-01 00:00:04", 2.5), (2, "2026-01-01 00:00:05", 1.0), (7, "2026-01-01 00:00:40", 1.0)])
    rows = run.step().to_pylist()
    assert {(r["id"], r["amount"], r["paid"]) for r in rows} == {(1, 2.0, 2.5), (2, 3.0, None)}
    run.crash()
    orders.finish()
    payments.finish()
    assert [(r["id"], r["amount"], r["paid"]) for r in run.step().to_pylist()] == [(1, 9.0, None)]
    assert "Join(" in repr(join)
    with pytest.raises(OptionError, match="left of the join is"):
        sl.union(orders, payments).join(payments, within="10 s")


def test_a_stream_joined_with_itself_is_one_input_and_no_tuple_meets_itself() -> None:
    readings = feed("id long, at timestamp, n long")
    join = readings.where(pc.field("n") > 1).join(readings.where(pc.field("n") < 9), within="10 s", how="left")
    assert "left self join" in repr(join)
    assert len(join.inputs) == 1
    run = sl.testing.run(join.checkpoint(sl.cec(replay=1)))
    readings.add([(1, f"2026-01-01 00:00:0{n}", n) for n in (1, 2, 5)])
    readings.add([(2, "2026-01-01 00:00:05", 7), (1, "2026-01-01 00:00:05", 9)])
    run.step()
    run.crash()
    readings.finish()
    run.step()
    met = sorted((row["left_n"], row["right_n"]) for row in run.rows if row["right_n"] is not None)
    assert met == [(2, 1), (2, 5), (5, 1), (5, 2), (9, 1), (9, 2), (9, 5)]
    assert [row["left_n"] for row in run.rows if row["right_n"] is None] == [7], "7 is the only one of its key"

    before = sl.testing.run(readings.join(readings, left=sl.count_window(2), right=sl.count_window(0)))
    before.step()
    assert sorted((row["left_n"], row["right_n"]) for row in before.rows) == [(1, 2), (1, 5), (2, 5), (2, 9), (5, 9)]
    with pytest.raises(OptionError, match="needs a window of tuples on the left only") as refused:
        readings.join(readings, left=sl.count_window(2), right=sl.count_window(1))
    assert "right=count_window(0)" in refused.value.todo

    plain = readings.join(readings, within="10 s").definition
    assert JoinDefinition.from_json(plain.to_json()) == plain
    assert JoinDefinition.from_json({**plain.to_json(), "self": False}) != plain


def test_a_window_of_no_tuples_is_for_joins_and_a_join_has_one_condition() -> None:
    orders, payments = feed("id long, at timestamp, amount double"), feed("id long, at timestamp, paid double")
    join = orders.join(payments, left=sl.count_window(2), right=sl.count_window(0), where=lambda left, right: True)
    with pytest.raises(OptionError, match="a join has one condition"):
        join.where(lambda left, right: left.amount < right.paid)
    with pytest.raises(OptionError, match="for a side of a join"):
        orders.window(sl.count_window(0))
    run = sl.testing.run(join)
    orders.add([(1, "2026-01-01 00:00:01", 1.0), (1, "2026-01-01 00:00:02", 2.0), (1, "2026-01-01 00:00:03", 3.0)])
    payments.add([(1, "2026-01-01 00:00:00", 0.5), (1, "2026-01-01 00:00:04", 4.0)])
    orders.finish()
    payments.finish()
    assert [(r["amount"], r["paid"]) for r in run.step().to_pylist()] == [(2.0, 4.0), (3.0, 4.0)]


def test_a_number_without_a_unit_is_refused_where_times_are_timestamps() -> None:
    orders, payments = feed("id long, at timestamp, amount double"), feed("id long, at timestamp, paid double")
    for within in (5, (0, 5), (-3, "5 s")):
        with pytest.raises(OptionError, match="has no unit, and the time column is a timestamp") as refused:
            orders.join(payments, within=within)
        assert ' s"' in refused.value.todo
    orders.join(payments, within=(0, "5 s"))
    for window in (sl.time_window(5), sl.session_window(5), sl.time_window("10 ms", advance=5_000)):
        with pytest.raises(OptionError, match="without a unit, and the times are timestamps"):
            orders.window(window)
    numbers = feed("id long, at long", lateness=3)
    numbers.window(sl.time_window(5))
    numbers.join(feed("id long, at long, n long", lateness=3), within=5)


def test_operators_over_several_inputs_say_what_they_are() -> None:
    orders, payments = feed("id long, at timestamp, amount double"), feed("id long, at timestamp, paid double")
    assert repr(orders) == "Feed(id, at, amount; key=id, time=at, 2 partitions, 0 tuples)"
    join = orders.join(payments.where(pc.field("paid") > 0), within="10 s", how="left")
    join = join.where(lambda left, right: left.amount <= right.paid, version=2)
    told = "left join, right -10 s to 10 s after left, where left.amount <= right.paid (version 2)"
    assert told in repr(join)
    assert "where (paid > 0) in input 2" in repr(join)
    assert "left join, right -10 s to 10 s after left" in join._repr_html_()
    barrier = sl.barrier(a=orders, b=payments, at_most=3)
    assert "barrier of a and b, at most 3 tuples of a key wait" in repr(barrier)
    assert "barrier of a and b" in barrier._repr_html_()
    union = sl.union(orders, payments)
    assert repr(union) == f"Union({orders!r}, {payments!r})"
    assert "at, at" in union._repr_html_()
