"""Operators over several inputs: results are those of one sequence, whatever was ahead, cut, lost or tidied up."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from strandline.checkpoint.policy import Policy, cec, instant, none
from strandline.errors import InputWentBackError
from strandline.inputs.input_of import input_of
from strandline.inputs.stream_definition import definition_of
from strandline.log.operator_state.input_mark import Marks
from strandline.log.operator_state.standing import Standing
from strandline.log.stream.log import Log
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.recovery.recover import Stand, recover
from strandline.recovery.window_report import current_windows, saved_windows
from strandline.running.state.state_cache import StateCache
from strandline.testing import MemoryStorage
from strandline.units import END_OF_TIME
from tests.support.operator_streams import PLANS, uninterrupted
from tests.support.union_streams import UnionStory, UnionStreams

POLICIES = [cec(extent="2x", replay=30), cec(), instant("1 hour")]


def over(plan: AggregateDefinition, inputs: int) -> AggregateDefinition:
    """The same over several inputs."""
    return replace(plan, more_times=("t",) * (inputs - 1))


class Case:
    """A union and the machine on which its operator works."""

    def __init__(self, tmp_path: Path, name: str, inputs: int = 2, partitions: int = 1) -> None:
        self._tmp_path = tmp_path
        self.machine = 0
        self.plan = PLANS[name]
        self.streams = UnionStreams(over(self.plan, inputs), inputs, self._cache, partitions)

    def _cache(self, partition: int) -> StateCache:
        return StateCache(self._tmp_path / f"machine{self.machine}-{partition}")

    def lose_machine(self) -> None:
        """Local state and handles are gone."""
        self.machine += 1
        self.streams.reopen()

    def check(self, bound: int | None = END_OF_TIME) -> None:
        """Results are those of an operator that takes in all at once."""
        for p in range(self.streams.partitions):
            rows = self.streams.serialised(p)
            expected = uninterrupted(self.plan, rows, bound)
            assert self.streams.results(p).equals(expected), f"partition {p}"


@pytest.mark.parametrize("name", ["tumbling count", "sliding time", "session", "select and where, session"])
@pytest.mark.parametrize("seed", range(4))
def test_results_do_not_depend_on_who_was_ahead_on_cuts_on_losses_or_on_policies(
    tmp_path: Path, name: str, seed: int
) -> None:
    rng = Random(f"{name} {seed}")
    case = Case(tmp_path, name, inputs=rng.randint(2, 3), partitions=rng.choice([1, 2]))
    story, streams = UnionStory(rng, case.streams), case.streams
    for _ in range(30):
        story.grow()
        if rng.random() < 0.6:
            streams.batch(rng.choice(POLICIES), tuples_max=rng.choice([1, 10, 1000]))
        if rng.random() < 0.3:
            case.lose_machine()
        if rng.random() < 0.2:
            streams.tidy(rng)
    streams.finish()
    streams.drain(rng.choice(POLICIES), tuples_max=rng.choice([20, 1000]))
    case.check()
    assert streams.output.state.finished
    assert streams.batch() == []


def test_tuples_wait_for_the_input_that_is_behind(tmp_path: Path) -> None:
    case = Case(tmp_path, "tumbling time")
    rows = [{"k": 1, "s": "a", "v": 1, "x": 1.0, "t": t} for t in range(0, 100, 5)]
    case.streams.append(0, {0: rows})
    assert case.streams.batch() == []
    case.streams.append(1, {0: [{**rows[0], "t": 48}]})
    case.streams.drain()
    (marks,) = case.streams.marks
    assert marks.stands.bound == 40
    assert marks.stands.ordinal == 8
    assert [m.first for m in marks.inputs] == [0, 0]
    assert case.streams.results(0).column("window_end").to_pylist() == [10, 20, 30, 40]
    case.streams.finish()
    case.streams.drain()
    case.check()


@pytest.mark.parametrize("policy", [*POLICIES, none()])
def test_what_is_open_can_be_rebuilt_after_every_batch(tmp_path: Path, policy: Policy) -> None:
    rng = Random(5)
    case = Case(tmp_path, "session", inputs=3)
    story, streams = UnionStory(rng, case.streams), case.streams
    for _ in range(12):
        for _ in range(3):
            story.grow()
        streams.drain(policy, tuples_max=25)
        if not streams.output.state.standings:
            continue
        now = current_windows(streams.output, streams.inputs)
        assert now.num_rows == streams.output.state.standings[0].open
        if policy.replays:
            definition = definition_of(streams.output.spec, "here", [log.spec for log in streams.inputs])
            assert definition == streams.definition
            intake = input_of(definition, streams.inputs, streams.output.state.standings)
            operator, done = recover(streams.output, intake, definition, Stand.of(streams.output, 0))
            assert operator.open_windows == now.num_rows
            assert done.replayed == streams.output.state.standings[0].replay
            if policy.starts_from == "footprints":
                assert saved_windows(streams.output).num_rows == now.num_rows


def test_an_input_that_was_put_back_is_refused(tmp_path: Path) -> None:
    case = Case(tmp_path, "tumbling count")
    story = UnionStory(Random(1), case.streams)
    for _ in range(30):
        story.grow()
    case.streams.drain()
    assert case.streams.marks[0].inputs[1].seen > 0
    last = case.streams.inputs[1]
    other = Log.create(MemoryStorage(case.streams.clock), last.spec, case.streams.clock)
    case.streams.inputs = (case.streams.inputs[0], other)
    with pytest.raises(InputWentBackError, match="the input has lost tuples"):
        case.streams.batch()


def test_marks_are_kept_in_the_standing_and_nothing_of_them_over_one_stream() -> None:
    standing = Standing(input=3, commit=1, open=1, oldest=2, extent=1, replay=1)
    assert "marks" not in standing.to_json()
    assert Standing.from_json(standing.to_json()) == standing
    marked = replace(standing, marks=Marks(standing.stands, standing.replays_from, ()))
    assert Standing.from_json(marked.to_json()) == marked
