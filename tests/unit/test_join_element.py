"""Joins in batches over streams, as a driver and its tasks run them: the same results whatever happens."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import strandline as sl
from strandline.checkpoint.policy import cec, instant
from strandline.errors import OptionError
from strandline.operators.join.definition import JoinDefinition, JoinInput
from strandline.operators.join.join_windows import join_windows
from strandline.processing.serialised_intake import intake_of
from strandline.processing.state_cache import StateCache
from strandline.recovery.recover import Stand, recover
from strandline.recovery.stream_definition import definition_of
from strandline.units import END_OF_TIME
from tests.operator_streams import COLUMNS, bits, rows_table
from tests.union_streams import UnionStory, UnionStreams

POLICIES = [cec(replay=20), cec(), cec(extent=30, replay=10), instant("1 hour")]
WINDOWS: dict[str, dict[str, Any]] = {
    "band": {"within": 3},
    "later": {"within": (0, 4), "how": "left"},
    "full": {"within": 2, "how": "full"},
    "count": {"left": sl.count_window(4), "right": sl.count_window(2)},
    "partition": {"left": sl.count_window(9), "right": sl.count_window(3), "per": "partition"},
}


def definition(name: str) -> JoinDefinition:
    side = JoinInput(COLUMNS, ("k",), "t")
    return JoinDefinition.of(side, side, join_windows(**WINDOWS[name]), group=4)


def at_once(streams: UnionStreams, partition: int) -> pa.Table:
    """The results of one join that takes in everything in one step, as bits."""
    operator = streams.definition.fresh("set_aside")
    operator.begin()
    order = {id(row): m for m, row in enumerate(streams.serialised(partition))}
    tables = []
    for own in streams.rows:
        rows = sorted(own[partition], key=lambda row: order[id(row)])
        places = pa.array([order[id(row)] for row in rows], pa.int64())
        tables.append(rows_table(rows).drop_columns(["_offset"]).append_column("_offset", places))
    found = list(operator.feed(tables))
    if streams.definition.has_times and (due := operator.advance(END_OF_TIME)):
        found.append(due)
    schema = streams.output.spec.arrow
    return bits(pa.concat_tables([schema.empty_table(), *(pa.Table.from_arrays(c, schema=schema) for c in found)]))


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("seed", range(3))
def test_results_of_a_join_do_not_depend_on_who_was_ahead_on_cuts_on_losses_or_on_policies(
    tmp_path: Path, name: str, seed: int
) -> None:
    rng = Random(f"{name} {seed}")
    machine = [0]
    streams = UnionStreams(
        definition(name), 2, lambda p: StateCache(tmp_path / f"machine{machine[0]}-{p}"), rng.choice([1, 2])
    )
    story = UnionStory(rng, streams)
    for _ in range(30):
        story.grow()
        if rng.random() < 0.6:
            streams.batch(rng.choice(POLICIES), tuples_max=rng.choice([1, 10, 1000]))
        if rng.random() < 0.3:
            machine[0] += 1
            streams.reopen()
        if rng.random() < 0.2:
            streams.tidy(rng)
    if streams.output.state.standings:
        known = definition_of(streams.output.spec, "here", [log.spec for log in streams.inputs])
        operator, _ = recover(streams.output, intake_of(known, streams.inputs), known, Stand.of(streams.output, 0))
        assert operator.open_windows == streams.output.state.standings[0].open
    streams.finish()
    streams.drain(rng.choice(POLICIES), tuples_max=rng.choice([20, 1000]))
    for p in range(streams.partitions):
        assert streams.results(p).equals(at_once(streams, p)), f"partition {p}"
    assert streams.output.state.finished


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
    with pytest.raises(OptionError, match="left and right are the same stream"):
        orders.join(orders, within="10 s")
    with pytest.raises(OptionError, match="left of the join is"):
        sl.union(orders, payments).join(payments, within="10 s")
