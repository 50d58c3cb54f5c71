"""Barriers: what they refuse, other policies, and what the local state may not be."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import strandline as sl
from strandline.errors import OptionError, SchemaError
from strandline.operators.barrier.barrier_operator import BarrierOperator
from strandline.operators.barrier.definition import BarrierDefinition, BarrierInput
from strandline.operators.open_windows.record import USED
from strandline.operators.operator import Limits, Saved
from strandline.running.state.state_cache import StateCache

KEY = (("k", "long"),)
LEFT = BarrierInput("left", "t", (("t", "long"), ("v", "string")))
RIGHT = BarrierInput("right", "t", (("t", "long"), ("v", "string")))
BOTH = BarrierDefinition(KEY, (LEFT, RIGHT))


def tables(*tuples: tuple[int, int, int]) -> list[pa.Table]:
    """From input, key and place; the value is the place."""
    found = []
    for i, schema in enumerate(BOTH.payload_schemas):
        rows = [{"k": k, "t": at, "v": str(at)} for number, k, at in tuples if number == i]
        places = [at for number, _, at in tuples if number == i]
        table = pa.Table.from_pylist(rows, schema=schema)
        found.append(table.append_column("_offset", pa.array(places, pa.int64())))
    return found


def fed(operator: BarrierOperator, *tuples: tuple[int, int, int]) -> list[tuple[int, int]]:
    """The places of the sets that these complete."""
    found: list[tuple[int, int]] = []
    for columns in operator.feed(tables(*tuples)):
        table = pa.Table.from_arrays(columns, schema=operator.definition.output_schema)
        found += zip(*(table.column(name).to_pylist() for name in operator.definition.at_columns), strict=True)
    return found


def written(columns: list[pa.Array], first: int) -> pa.Table:
    table = pa.Table.from_arrays(columns, schema=BOTH.output_schema)
    return table.append_column("_offset", pa.array(first + np.arange(len(table))))


def waiting(operator: BarrierOperator) -> list[int]:
    table = pa.Table.from_arrays(operator.windows(), schema=BOTH.output_schema)
    both = zip(table.column("_at_left").to_pylist(), table.column("_at_right").to_pylist(), strict=True)
    return [left if right is None else right for left, right in both]


def test_the_nth_tuples_of_a_key_come_together_in_the_order_of_the_last() -> None:
    operator = BOTH.fresh()
    operator.begin()
    tuples = [(0, 1, 0), (0, 2, 1), (0, 1, 2), (1, 2, 3), (1, 1, 4), (1, 1, 5), (1, 1, 6)]
    assert fed(operator, *tuples) == [(1, 3), (0, 4), (2, 5)]
    assert waiting(operator) == [6]


def test_nothing_is_written_as_long_as_a_replay_is_short_enough() -> None:
    operator = BOTH.fresh()
    operator.begin()
    fed(operator, *((0, k, k) for k in range(50)))
    saved = operator.save(0, Limits(extent=100, replay=50))
    assert [len(saved.opened[0]), len(saved.checked[0])] == [0, 0]
    extent = operator.extent(0)
    assert (extent.open_windows, extent.oldest_input, extent.oldest_output) == (50, 0, 0)


def test_footprints_are_written_again_once_they_lie_too_far_back() -> None:
    operator = BOTH.fresh()
    operator.begin()
    fed(operator, (0, 1, 0))
    assert len(operator.save(0, Limits(extent=10, replay=0)).checked[0]) == 1
    operator.begin()
    fed(operator, *((number, 2, 1 + 2 * i + number) for i in range(11) for number in (0, 1)))
    assert len(operator.save(12, Limits(extent=10, replay=0)).checked[0]) == 1
    assert operator.oldest_footprint() == (0, 12)


def test_an_instant_checkpoint_is_the_whole_state_and_what_follows_is_fed_again() -> None:
    operator = BOTH.fresh()
    operator.begin()
    fed(operator, (0, 1, 0), (0, 2, 1), (1, 3, 2))
    saved = operator.save_all(0)
    assert len(saved.opened[0]) == 0
    footprints = written(saved.checked, 0)
    again = BOTH.fresh()
    again.load([Saved(footprints.slice(0, 0), footprints)])
    again.input_end = 3
    for each in (operator, again):
        each.begin()
        assert fed(each, (1, 1, 3), (0, 3, 4), (0, 2, 5)) == [(0, 3), (4, 2)]
        assert waiting(each) == [1, 5]


def test_after_a_policy_that_wrote_nothing_all_that_waits_is_written() -> None:
    operator = BOTH.fresh()
    operator.begin()
    fed(operator, (0, 1, 0), (0, 2, 1))
    operator.save(0, Limits(replay=1))
    operator.begin()
    fed(operator, (0, 3, 2))
    operator.save_nothing()
    operator.begin()
    operator.mark_unsaved(every=True)
    saved = operator.save(7, Limits())
    assert written(saved.opened, 7).column("_at_left").to_pylist() == [0, 1, 2]
    extent = operator.extent(10)
    assert (extent.open_windows, extent.oldest_input, extent.oldest_output) == (3, 3, 7)


def test_over_so_many_of_a_key_the_oldest_is_set_aside_and_the_next_takes_its_place() -> None:
    definition = BarrierDefinition(KEY, (LEFT, RIGHT), at_most=2)
    operator = definition.fresh()
    operator.begin()
    assert fed(operator, *((0, 1, at) for at in range(5)), (1, 1, 5)) == [(3, 5)]
    (table,) = operator.aside.tables["barrier"]
    assert table.column("_at_left").to_pylist() == [0, 1, 2]
    assert not [name for name in table.column_names if "right" in name], "columns without values are not made"
    assert operator.aside.nbytes > 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BarrierDefinition(KEY, (LEFT,)), "1 inputs"),
        (lambda: BarrierDefinition(KEY, (LEFT,) * 17), "17 inputs"),
        (lambda: BarrierDefinition(KEY, (LEFT, RIGHT), at_most=0), "at_most=0"),
    ],
)
def test_a_barrier_that_cannot_work_is_refused(make: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


def test_columns_that_would_have_one_name_are_refused() -> None:
    with pytest.raises(SchemaError, match="'a_b_c'"):
        inputs = (
            BarrierInput("a", "t", (("t", "long"), ("b_c", "long"))),
            BarrierInput("a_b", "t", (("t", "long"), ("c", "long"))),
        )
        BarrierDefinition(KEY, inputs)
    with pytest.raises(SchemaError, match="'time'"):
        BarrierDefinition((("time", "long"),), (LEFT, RIGHT))


def test_a_definition_survives_its_json_and_travel() -> None:
    nested = {"type": "array", "elementType": "long", "containsNull": True}
    one = BarrierDefinition(KEY, (LEFT, BarrierInput("other", "x", (("x", "long"), ("n", nested)))), 9)
    assert BarrierDefinition.from_json(json.loads(json.dumps(one.to_json())), dict(KEY)) == one
    assert one.key_codec.fits_word
    travelled = pickle.loads(pickle.dumps(one))
    assert travelled == one
    assert travelled.result_columns == one.result_columns
    assert {travelled: "found"}[one] == "found", "a worker knows by it what it has compiled"


def test_arrays_of_another_state_are_refused() -> None:
    operator = BOTH.fresh()
    arrays = operator.image().arrays
    BOTH.revived(arrays)
    three = BarrierDefinition(KEY, (LEFT, RIGHT, BarrierInput("third", "t", (("t", "long"),))))
    with pytest.raises(ValueError, match="another state"):
        three.revived(arrays)
    for name in ("records", "key_records"):
        with pytest.raises(ValueError, match="another state"):
            BOTH.revived({**arrays, name: arrays[name][:, :3]})
    header = arrays["header"].copy()
    header[USED] = 10_000
    with pytest.raises(ValueError, match="out of bounds"):
        BOTH.revived({**arrays, "header": header})


def test_the_local_state_on_disk_is_the_state(tmp_path: Path) -> None:
    cache, rng = StateCache(tmp_path / "cache"), np.random.default_rng(5)
    operator, place, parent = BOTH.fresh(), 0, ""
    twin, deltas = BOTH.fresh(), 0
    for step in range(25):
        tuples = [(int(rng.integers(2)), int(rng.integers(40)), place + i) for i in range(60)]
        place += 60
        operator.begin()
        twin.begin()
        assert fed(operator, *tuples) == fed(twin, *tuples)
        operator.save(step * 100, Limits(replay=500))
        operator.end()
        deltas += operator.image().changed is not None
        cache.leave(f"a{step}", parent, operator.image(), whole=step == 0)
        arrays = cache.open(f"a{step}")
        assert arrays is not None
        operator, parent = BOTH.revived(arrays), f"a{step}"
        assert waiting(operator) == waiting(twin)
    cache.close()
    assert deltas > 5


def test_tuples_with_lists_may_be_set_aside_in_two_partitions_at_once() -> None:
    at = pa.timestamp("us", "UTC")
    schema = pa.schema([("id", pa.int64()), ("at", at), ("tags", pa.list_(pa.int64()))])
    feeds = [sl.testing.stream(schema, key="id", time="at", lateness="5 s") for _ in range(2)]
    run = sl.testing.run(sl.barrier(a=feeds[0], b=feeds[1], at_most=1))
    feeds[0].add([(i, f"2026-01-01 00:00:0{t}", None if i % 2 else [i, t]) for i in range(8) for t in (1, 2)])
    feeds[1].add([(99, "2026-01-01 00:01:00", [])])
    feeds[0].finish()
    run.step()
    found = sorted(run.set_aside.column("a_tags").to_pylist(), key=str)
    assert found == [None, None, None, None, [0, 1], [2, 1], [4, 1], [6, 1]]
