"""A block with footprints that is rotten or gone costs a longer replay, not the state, while the inputs hold it all."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from strandline.checkpoint.policy import Policy, cec, instant
from strandline.errors import CorruptBlockError, StrandlineWarning
from strandline.log.stream.log import Log
from strandline.log.upkeep import retention
from strandline.operators.join.join_windows import JoinWindows
from strandline.running.state.state_cache import StateCache
from strandline.spark.operator.recovery_warnings import RecoveryWarnings
from strandline.testing.faulty_storage import flipped
from strandline.units import END_OF_TIME
from tests.simulation.machines import KeptStates
from tests.simulation.simulated_operators import serialised
from tests.specification.plain_join import PlainJoin
from tests.support.operator_streams import PLANS, Row, Streams, bits, published_results, uninterrupted
from tests.support.union_streams import UnionStory, UnionStreams
from tests.unit.test_join_element import definition


def rotten(log: Log, file: str) -> None:
    log.storage.put(file, flipped(log.storage.read(file), 100))


def lost(log: Log, file: str) -> None:
    log.storage.delete(file)


damaged = pytest.mark.parametrize("damage", [rotten, lost])
every_policy = pytest.mark.parametrize("policy", [cec(extent=1_000_000), instant("1 hour")], ids=repr)


def row(i: int, key: int) -> Row:
    return {"k": key, "s": f"s{key}", "v": i, "x": float(i), "t": i}


class Case(Streams):
    """An aggregate that has a window open since its first step, and many steps behind it."""

    def __init__(self, policy: Policy, steps: int) -> None:
        self.kept = KeptStates()
        super().__init__(PLANS["tumbling count"], lambda _: self.kept)  # type: ignore[arg-type,return-value]
        self.policy = policy
        self.rows = [row(0, 1)]
        self.append(self.rows)
        self.drain(policy)
        for i in range(1, steps):
            self.go_on(row(i, 2))

    def go_on(self, *rows: Row) -> None:
        self.rows += rows
        self.append(rows)
        self.drain(self.policy)


@damaged
@every_policy
@pytest.mark.parametrize("steps", [1, 3, 150])
def test_what_is_left_of_the_first_step_is_got_back_from_the_beginning(
    policy: Policy, steps: int, damage: Callable[[Log, str], None]
) -> None:
    case = Case(policy, steps)
    damage(case.output, next(iter(case.output.blocks(0))).file)
    case.kept.states.clear()
    end = case.output.state.ends[0]
    case.append(more := [row(steps + i, 1) for i in range(4)])
    case.rows += more
    with pytest.warns(StrandlineWarning, match=r"partition 0 of here could not .* a published block"):
        RecoveryWarnings(policy, "here").of_older(case.batch(policy))
    from_there = case.output.read(0, end, columns=["k", "n", "least", "mean"])
    found = [r for table in from_there for r in table.to_pylist() if r["_kind"] == 0]
    expected = uninterrupted(case.plan, case.rows, None).to_pylist()[-1]
    assert [(r["k"], r["n"], r["least"]) for r in found] == [(1, 4, expected["least"])] == [(1, 4, 0)]


def test_without_the_beginning_it_says_what_is_rotten() -> None:
    case = Case(cec(extent=1_000_000), 3)
    rotten(case.output, next(iter(case.output.blocks(0))).file)
    case.kept.states.clear()
    retention.truncate(case.input, before_offset=1)
    with pytest.raises(CorruptBlockError, match="a published block has"):
        case.go_on(row(3, 1))


@damaged
@pytest.mark.parametrize("how", ["inner", "full"])
def test_a_join_gets_its_groups_back_from_the_inputs(
    tmp_path: Path, how: str, damage: Callable[[Log, str], None]
) -> None:
    machine = [0]
    join = definition(JoinWindows("band", -40, 40, how=how))  # type: ignore[arg-type]
    streams = UnionStreams(join, 2, lambda p: StateCache(tmp_path / f"machine{machine[0]}-{p}"))
    story = UnionStory(Random(3), streams)
    for _ in range(12):
        story.grow()
        streams.batch(cec(replay=2))
    results = streams.results(0)
    assert streams.output.state.standings[0].extent
    for block in list(streams.output.blocks(0))[:-1]:
        damage(streams.output, block.file)
    end, machine[0] = streams.output.state.ends[0], 1
    for _ in range(6):
        story.grow()
    streams.finish()
    streams.drain(cec(replay=2))
    plain = PlainJoin(join)
    rows = plain.feed(serialised([own[0] for own in streams.rows], END_OF_TIME)) + plain.advance(END_OF_TIME)
    expected = bits(pa.Table.from_pylist(rows, schema=streams.output.spec.arrow))
    assert expected.slice(0, len(results)).equals(results)
    assert published_results(streams.output, 0, end).equals(expected.slice(len(results)))
