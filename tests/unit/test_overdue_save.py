"""Under `partial` the state is saved in time, whether anything comes or not: a silent stream loses no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.checkpoint.policy import Policy, instant, none, partial
from strandline.log.operator_state.loss_record import loss_table
from strandline.log.stream import quiet
from strandline.running.state.state_cache import StateCache
from tests.simulation.machines import KeptStates
from tests.support.operator_streams import PLANS, Row, Streams
from tests.support.union_streams import UnionStreams

POLICY = partial("10 s")


def row(key: int, time: int) -> Row:
    return {"k": key, "s": f"s{key}", "v": time, "x": float(time), "t": time}


class Machines:
    """What tasks leave, by partition, until somebody takes it away."""

    def __init__(self) -> None:
        self.kept: dict[int, KeptStates] = {}

    def of(self, partition: int) -> StateCache:
        return self.kept.setdefault(partition, KeptStates())  # type: ignore[return-value]

    def crash(self) -> None:
        self.kept.clear()


def test_a_stream_that_falls_silent_is_saved_when_the_policy_says_so() -> None:
    machines = Machines()
    case = Streams(PLANS["tumbling count"], machines.of)
    case.append([row(1, 0), row(1, 1)])
    case.drain(POLICY)
    case.append([row(1, 2)])
    case.drain(POLICY)
    before = case.output.state.standings[0]
    assert before.oldest == 2, "the third tuple is in no checkpoint"
    case.clock.advance(9.0)
    assert case.batch(POLICY) == [], "it is not due"
    case.clock.advance(2.0)
    (done,) = case.batch(POLICY)
    assert (done.tuples, done.checked) == (0, 1)
    after = case.output.state.standings[0]
    assert (after.oldest, after.input) == (3, 3)
    assert (after.commit, after.seen, after.seen_checksum) == (before.commit, before.seen, before.seen_checksum)
    case.clock.advance(100.0)
    assert case.batch(POLICY) == [], "nothing is at risk"
    machines.crash()
    case.append([row(1, 3)])
    case.drain(POLICY)
    assert loss_table(case.output).num_rows == 0
    assert case.results().column("n").to_pylist() == [4]


def test_a_partition_that_gets_nothing_is_saved_while_others_get_something() -> None:
    machines = Machines()
    case = Streams(PLANS["tumbling count"], machines.of, partitions_=2)
    for time in range(3):
        case.append({0: [row(1, time)], 1: [row(2, time)]})
        case.drain(POLICY)
    case.clock.advance(11.0)
    case.append({0: [row(1, 3)]})
    case.drain(POLICY)
    machines.crash()
    case.append({0: [row(1, 4)], 1: [row(2, 4)]})
    case.drain(POLICY)
    assert loss_table(case.output).num_rows == 0
    assert case.results(1).column("n").to_pylist() == [4]


def test_over_several_inputs_too() -> None:
    machines = Machines()
    case = UnionStreams(replace(PLANS["tumbling count"], more_times=("t",)), 2, machines.of)
    for time in range(3):
        for number in (0, 1):
            case.append(number, {0: [row(1, 10 * time)]})
        case.drain(POLICY)
    before = case.output.state.standings[0]
    assert before.oldest < before.input
    case.clock.advance(11.0)
    (done,) = case.batch(POLICY)
    assert done.tuples == 0
    after = case.output.state.standings[0]
    assert after.oldest == after.input == before.input
    assert after.marks is not None
    assert before.marks is not None
    assert after.marks.stands == before.marks.stands == after.marks.oldest
    assert [m.seen for m in after.marks.inputs] == [m.seen for m in before.marks.inputs]
    machines.crash()
    case.finish()
    case.drain(POLICY)
    assert loss_table(case.output).num_rows == 0


@pytest.mark.parametrize("policy", [instant("10 s"), none()], ids=str)
def test_policies_that_lose_nothing_or_save_nothing_leave_a_silent_stream_alone(policy: Policy) -> None:
    case = Streams(PLANS["tumbling count"], Machines().of)
    for time in range(2):
        case.append([row(1, time)])
        case.drain(policy)
    case.clock.advance(100.0)
    assert case.batch(policy) == []


def test_a_finished_stream_is_left_alone() -> None:
    case = Streams(PLANS["tumbling count"], Machines().of)
    for time in range(2):
        case.append([row(1, time)])
        case.drain(POLICY)
    quiet.finish(case.input, "run")
    case.drain(POLICY)
    case.clock.advance(100.0)
    assert case.batch(POLICY) == []
