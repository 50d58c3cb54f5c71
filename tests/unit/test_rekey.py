"""`rekey` without a path: an operator over all partitions of its input, with a bound or without one."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.inputs.input_of import input_of
from strandline.inputs.stream_definition import definition_of
from strandline.log.operator_state.upstream import Origin, origins_of, upstream_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.stream.partition_view import partition_views
from strandline.recovery.checkpoint_audit import audit
from strandline.spark.describe.rekey import Rekeyed
from strandline.spark.operator.operator_inputs import OperatorInputs
from strandline.spark.operator.partition_input import PartitionInput
from strandline.testing.spark_placement import partition_of
from tests.support.items import append_items, item_spec

READINGS = "room string, sensor long, at timestamp"


def feeds(many: int = 2, **options: Any) -> list[Any]:
    clock = sl.testing.HandClock()
    given = {"key": "room", "time": "at", "lateness": "0 s", "partitions": 2, "clock": clock, **options}
    return [sl.testing.stream(READINGS, **given) for _ in range(many)]


def measure(feed: Any, first: int, end: int) -> None:
    """Adds a tuple at each of these seconds, of three rooms and four sensors."""
    for at in range(first, end):
        feed.add([(f"room {room}", (at + room) % 4, f"2026-01-01 00:00:{at:02d}") for room in range(3)])


def places(table: pa.Table) -> list[int]:
    return [partition_of([value], ["long"], 3) for value in table.column("sensor").to_pylist()]


def test_tentative_tuples_pass_through_and_are_undone_and_corrected() -> None:
    north, south = feeds()
    both = sl.testing.run(sl.union(north, south).where(pc.field("sensor") >= 0).availability(bound="3 s"))
    by_sensor = sl.testing.run(both.rekey("sensor", partitions=3).availability(bound="3 s"))
    counts = by_sensor.window(sl.time_window("5 s")).aggregate(n=sl.count_all())
    ends = sl.testing.run(counts.availability(bound="3 s"))
    chain = (both, by_sensor, ends)

    def step(pause: str | None = None) -> None:
        if pause:
            north.clock.advance(pause)
        for one in chain:
            one.step()

    measure(north, 0, 11)
    measure(south, 0, 11)
    step()
    assert [one.state for one in chain] == ["STABLE"] * 3
    south.fall_silent()
    measure(north, 11, 21)
    step()
    for _ in range(4):
        step("3 s")
    assert [one.state for one in chain] == ["UP_FAILURE"] * 3
    assert by_sensor.missing == [both]
    assert sum(row["n"] for row in ends.tentative.to_pylist()) > 0
    log = by_sensor.input_log
    for partition in range(3):
        rows = pa.concat_tables(log.read(partition, 0)).select(["sensor", "_kind"])
        sensors = rows.filter(pc.less(pc.cast(rows.column("_kind"), pa.int64()), 2)).column("sensor").to_pylist()
        known = [sensor for sensor in sensors if sensor is not None]
        assert {partition_of([sensor], ["long"], 3) for sensor in known} <= {partition}

    by_sensor.crash()
    south.come_back()
    measure(south, 11, 21)
    for feed in (north, south):
        feed.finish()
    for _ in range(8):
        step("1 s")
    assert [one.state for one in chain] == ["STABLE"] * 3
    assert [one.tentative.num_rows for one in chain] == [0] * 3
    kinds = by_sensor.changes.column("_kind").to_pylist()
    assert {"tentative", "undo", "rec_done"} <= set(kinds)

    calm_both = sl.testing.run(sl.union(north, south).where(pc.field("sensor") >= 0))
    calm_by_sensor = sl.testing.run(calm_both.rekey("sensor", partitions=3))
    calm = sl.testing.run(calm_by_sensor.window(sl.time_window("5 s")).aggregate(n=sl.count_all()))
    for one in (calm_both, calm_by_sensor, calm):
        one.step()
    for partition in range(3):
        assert results(by_sensor, partition) == results(calm_by_sensor, partition)
        assert results(ends, partition) == results(calm, partition)
    assert sum(row["n"] for row in ends.rows) == 2 * 21 * 3


def results(run: Any, partition: int) -> list[Any]:
    tables = [run.input_log.spec.arrow.empty_table()]
    for table in run.input_log.read(partition, 0):
        stable = table.filter(pc.equal(table.column("_kind").cast(pa.int64()), 0))
        tables.append(stable.select(run.input_log.spec.columns))
    return pa.concat_tables(tables).to_pylist()  # type: ignore[no-any-return]


def test_progress_counts_a_tuple_once_however_many_partitions_read_it(tmp_path: Path) -> None:
    log = Log.create(LocalStorage(tmp_path / "items"), item_spec(2))
    append_items(log, {0: [(0, 1, 1), (0, 2, 2)], 1: [(1, 3, 3)]})
    views = partition_views(log, 5)
    assert [view.state.ends[:5] for view in views] == [(2,) * 5, (1,) * 5]
    assert [view.spec.partitions for view in views] == [5, 5]
    assert [[block.end for block in view.blocks(4)] for view in views] == [[2], [1]]
    read = [[table.num_rows for _, table in view.read_blocks(4, 0, 9, None, (None, None), True)] for view in views]
    assert read == [[2], [1]]
    append_items(log, {1: [(1, 4, 4)]})
    assert views[1].state.ends[0] == 2, "a view is as its stream is"


def test_what_stream_json_says_of_the_inputs_is_one_stream_and_its_partitions() -> None:
    origins = [Origin("a", "streams/a", partition=p) for p in range(3)]
    assert origins_of(upstream_of(origins)) == origins
    assert origins_of(upstream_of(origins[:1])) == origins[:1]


def test_tools_know_the_operator_from_its_stream(tmp_path: Path) -> None:
    (north,) = feeds(1)
    run = sl.testing.run(north.rekey(["sensor", "room"], partitions=3))
    measure(north, 0, 10)
    run.step()
    spec = run.input_log.spec
    known = definition_of(spec, "here", [view.spec for view in partition_views(north.input_log, 3)])
    assert known.to_json() == {name: value for name, value in spec.operator.items() if name != "footprints"}
    assert (spec.key, spec.partitions, spec.lateness) == (("sensor", "room"), 3, 0)
    assert known.text(is_timestamp=True) == "rekey by sensor, room"
    assert audit(run.input_log).problems == ()


@pytest.mark.parametrize(
    ("call", "kind", "what"),
    [
        (lambda north, _: north.rekey("colour"), sl.SchemaError, r"(?s)no column 'colour'.*name one of these columns"),
        (lambda north, _: north.rekey(["room", "room"]), sl.OptionError, "names 'room' twice"),
        (lambda north, _: north.rekey([]), sl.OptionError, "key"),
        (lambda north, _: north.rekey("sensor", partitions=0), sl.OptionError, "partitions"),
        (lambda north, south: sl.union(north, south).rekey("sensor"), sl.OptionError, "of a union"),
        (lambda north, _: north.select("room", "at").rekey("sensor"), sl.SchemaError, "no column 'sensor'"),
        (
            lambda north, _: north.where(pc.field("sensor") > 1).rekey("sensor", lateness="1 s"),
            sl.OptionError,
            "lateness=",
        ),
        (lambda north, _: north.rekey("sensor").checkpoint(sl.cec()), sl.OptionError, "no state to save"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(call: Any, kind: type[Exception], what: str) -> None:
    with pytest.raises(kind, match=what):
        call(*feeds())


def test_an_input_without_lateness_is_refused() -> None:
    (north,) = feeds(1, lateness=None)
    with pytest.raises(sl.OptionError, match="has no lateness"):
        north.rekey("sensor")


def test_each_partition_of_the_input_is_an_input() -> None:
    (north,) = feeds(1)
    operator = north.rekey("sensor", partitions=3)
    streams = operator._streams_of(operator.inputs)
    assert operator.inputs == (north,)
    assert [stream.number for stream in streams if isinstance(stream, PartitionInput)] == [0, 1]
    assert {stream._input_spec.partitions for stream in streams} == {3}


def test_a_task_knows_a_few_blocks_of_one_partition_and_all_of_them_are_missing_at_once(tmp_path: Path) -> None:
    log = Log.create(LocalStorage(tmp_path / "items"), item_spec(2))
    append_items(log, {0: [(0, 1, 1)], 1: [(1, 2, 2), (1, 3, 3)]})
    items = sl.stream(str(tmp_path / "items"))
    operator = items.rekey("v", partitions=3)
    assert isinstance(operator, Rekeyed)
    streams = operator._streams_of(operator.inputs)
    views = [stream._opened_input() for stream in streams]
    places = [pickle.loads(pickle.dumps(stream._input_place.within(5.0))) for stream in streams]
    assert [place.open().state.ends[:3] for place in places] == [(1,) * 3, (2,) * 3]
    shares = [place.unread(view.spec, list(view.blocks(2))) for place, view in zip(places, views, strict=True)]
    assert [share.state.ends[:3] for share in shares] == [(1,) * 3, (2,) * 3]
    assert [[table.column("v").to_pylist() for table in share.read(2, 0)] for share in shares] == [[[1]], [[2, 3]]]
    inputs = OperatorInputs(places, input_of(operator.definition, views), bears_failures=True)
    assert inputs.bear(sl.StorageError("no answer", stream=places[0].url)) is False
    assert inputs.unreadable() == {0, 1}
