"""Barriers in batches over streams, as a driver and its tasks run them: the same results whatever happens."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import strandline as sl
from strandline.checkpoint.policy import cec, instant, none
from strandline.operators.barrier.definition import BarrierDefinition, BarrierInput
from strandline.processing.serialised_intake import intake_of
from strandline.processing.state_cache import StateCache
from strandline.recovery.checkpoint_audit import audit
from strandline.recovery.recover import Stand, recover
from strandline.recovery.stream_definition import definition_of
from strandline.recovery.window_report import current_windows
from tests.operator_streams import COLUMNS, bits, rows_table
from tests.union_streams import UnionStory, UnionStreams

POLICIES = [cec(replay=5), cec(), cec(extent=3, replay=10), instant("1 hour")]


def definition(inputs: int, at_most: int | None = None) -> BarrierDefinition:
    own = tuple((name, kind) for name, kind in COLUMNS.items() if name != "k")
    return BarrierDefinition((("k", "long"),), tuple(BarrierInput(f"in{i}", "t", own) for i in range(inputs)), at_most)


def at_once(streams: UnionStreams, partition: int) -> pa.Table:
    """The results of one barrier that takes in everything in one step, as bits."""
    barrier: BarrierDefinition = streams.definition  # type: ignore[assignment]
    operator = barrier.fresh("set_aside")
    operator.begin()
    order = {id(row): m for m, row in enumerate(streams.serialised(partition))}
    tables = []
    for own in streams.rows:
        rows = sorted(own[partition], key=lambda row: order[id(row)])
        places = pa.array([order[id(row)] for row in rows], pa.int64())
        tables.append(rows_table(rows).drop_columns(["_offset"]).append_column("_offset", places))
    names = [name for name, _ in barrier.result_columns]
    found = [columns[: len(names)] for columns in operator.feed(tables)]
    schema = streams.output.spec.arrow
    return bits(pa.concat_tables([schema.empty_table(), *(pa.Table.from_arrays(c, schema=schema) for c in found)]))


@pytest.mark.parametrize("seed", range(6))
def test_results_of_a_barrier_do_not_depend_on_who_was_ahead_on_cuts_on_losses_or_on_policies(
    tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    machine = [0]
    inputs = rng.randint(2, 3)
    streams = UnionStreams(
        definition(inputs, rng.choice([None, 20])),
        inputs,
        lambda p: StateCache(tmp_path / f"machine{machine[0]}-{p}"),
        rng.choice([1, 2]),
        "set_aside",
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
        assert known == streams.definition
        operator, _ = recover(streams.output, intake_of(known, streams.inputs), known, Stand.of(streams.output, 0))
        assert operator.open_windows == streams.output.state.standings[0].open
        windows = current_windows(streams.output, streams.inputs, intake_of)
        assert windows.num_rows == sum(s.open for s in streams.output.state.standings)
        assert audit(streams.output, intake_of).problems == ()
    streams.finish()
    streams.drain(rng.choice([*POLICIES, none()]), tuples_max=rng.choice([20, 1000]))
    for p in range(streams.partitions):
        assert streams.results(p).equals(at_once(streams, p)), f"partition {p}"
    assert streams.output.state.finished


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
