"""What a standing says is what was saved: whenever the clock moves, and whichever policy followed which."""

from dataclasses import replace
from random import Random
from unittest import mock

import pytest

from strandline.checkpoint import saving
from strandline.checkpoint.policy import Policy, cec, instant, none
from strandline.clock import ManualClock
from strandline.errors import CorruptManifestError, TruncatedError
from strandline.inputs.one_stream import OneStream
from strandline.log.operator_state.standing import Standing
from strandline.log.stream import log
from strandline.log.upkeep.retention import truncate
from strandline.operators.aggregate.aggregate_operator import AggregateOperator
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.open_windows import window_state
from strandline.operators.open_windows.record import BYTES_END
from strandline.recovery.recover import Stand, recover
from strandline.running.state.state_cache import StateCache
from tests.simulation.machines import KeptStates
from tests.support.operator_streams import PLANS, Streams, Tuples, uninterrupted, windows_of

every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)


class Case(Streams):
    """An operator whose state is kept in memory; recovery can be asked for at any time."""

    def __init__(self, plan: AggregateDefinition, tick_us: int = 0) -> None:
        self.kept = KeptStates()
        super().__init__(plan, self._cache, clock=ManualClock(1_000_000, tick_us))
        self.tuples = Tuples(Random(1), keys=40)  # so many that some windows stay open for long

    def _cache(self, _partition: int) -> StateCache:
        return self.kept  # type: ignore[return-value]

    def run(self, policy: Policy, commits: int = 1, rows: int = 20) -> None:
        for _ in range(commits):
            self.append(self.tuples.rows(rows))
            self.drain(policy)

    def require_recoverable(self) -> None:
        """What is in the streams gives the state that the operator has."""
        standing = self.output.state.standings[0]
        back, _ = recover(self.output, OneStream(self.plan, self.input), self.plan, Stand.of(self.output, 0))
        assert isinstance(back, AggregateOperator)
        live = self.kept.open(standing.attempt)
        assert live is not None
        found, wanted = windows_of(self.plan, back.state), windows_of(self.plan, self.plan.revived(live).state)
        saved_at = ("_input", "_open", "position")
        for window in wanted:
            for row in (found[window], wanted[window]):
                for name in saved_at:
                    row.pop(name)
            if not self.plan.window.has_times:  # of an open count window: where its footprint stood
                found[window].pop("window_end"), wanted[window].pop("window_end")
        assert found == wanted


@every_plan
@pytest.mark.parametrize("tick_us", [1, 700, 2_000])
def test_a_whole_checkpoint_that_is_published_was_written(plan: AggregateDefinition, tick_us: int) -> None:
    case = Case(plan, tick_us)
    for _ in range(40):
        case.run(instant("5 ms"), rows=8)
        case.require_recoverable()


@every_plan
@pytest.mark.parametrize("first", [cec(), cec(extent="1x"), instant("1 ms"), instant("1 hour")], ids=str)
@pytest.mark.parametrize("then", [cec(), cec(extent=10_000), instant("1 ms"), instant("1 hour")], ids=str)
def test_a_policy_after_one_that_let_go_saves_every_window_anew(
    plan: AggregateDefinition, first: Policy, then: Policy
) -> None:
    case = Case(plan)
    case.run(first, commits=3)
    case.run(none(), commits=2)
    before = case.output.state
    for _ in range(3):
        case.run(then)
        case.require_recoverable()
        standing, let_go = case.output.state.standings[0], before.standings[0]
        assert standing.oldest >= let_go.oldest
        assert case.output.state.ends[0] - standing.extent >= before.ends[0] - let_go.extent


def unwritten(standing: Standing, before: Standing, written: int, saved: object) -> Standing:
    """What version 0.1 could say: that everything was saved, when nothing was."""
    extent = min(standing.open, before.extent + written)
    return replace(standing, oldest=standing.input, extent=extent, replay=0, saved=standing.open, saved_us=1)


def with_an_unwritten_checkpoint(plan: AggregateDefinition, first: Policy, steps_since: int) -> Case:
    case = Case(plan)
    case.run(first, commits=3)
    case.run(instant("1 ms"))
    with (
        mock.patch.object(saving, "_since_the_last_whole", unwritten),
        # nor did it look whether that goes back
        mock.patch.object(log, "require_forward", side_effect=lambda _, manifest: manifest),
    ):
        case.run(instant("1 hour"))
    case.run(instant("1 hour"), commits=steps_since)
    return case


@every_plan
@pytest.mark.parametrize("steps_since", [0, 2])
@pytest.mark.parametrize("first", [instant("1 ms"), cec()], ids=str)
@pytest.mark.parametrize("then", [instant("1 hour"), cec(), none()], ids=str)
def test_a_stream_whose_last_checkpoint_was_never_written_goes_on_from_an_older_one(
    plan: AggregateDefinition, steps_since: int, first: Policy, then: Policy
) -> None:
    case = with_an_unwritten_checkpoint(plan, first, steps_since)
    case.require_recoverable()
    case.kept.states.clear()
    case.run(then, commits=1)
    standing = case.output.state.standings[0]
    assert standing.recovered is not None
    if then.mode != "none":  # what it says now is there
        case.kept.states.clear()
        case.run(then)
        assert case.output.state.standings[0].recovered != standing.recovered
    rows = [row for table in case.input.read(0) for row in table.drop_columns(["_offset", "_kind"]).to_pylist()]
    assert case.results().equals(uninterrupted(plan, rows, case.input.state.boundaries[0]))


@every_plan
def test_without_the_input_such_a_stream_says_what_is_missing(plan: AggregateDefinition) -> None:
    case = with_an_unwritten_checkpoint(plan, instant("1 ms"), 1)
    case.kept.states.clear()
    truncate(case.input, before_offset=case.output.state.standings[0].oldest)
    case.append(case.tuples.rows(5))
    with pytest.raises(CorruptManifestError, match="hold footprints of") as found:
        case.batch(instant("1 hour"))
    assert isinstance(found.value.__cause__, TruncatedError), "and an older one needs more than the input holds"


@pytest.mark.parametrize("policy", [none(), instant("1 hour"), cec()], ids=str)
def test_bytes_that_no_window_refers_to_go_whatever_the_policy(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_state, "BYTES_MIN", 500)
    case = Case(PLANS["tumbling count, strings"])
    case.run(policy, commits=40)
    state = case.kept.states[case.output.state.standings[0].attempt]
    assert state["header"][BYTES_END] < 2_000  # of some 16,000 that came


@every_plan
def test_a_rotten_block_of_footprints_costs_a_longer_replay_and_no_state(plan: AggregateDefinition) -> None:
    case = Case(plan)
    case.run(cec(extent="2x"), commits=8)
    block = [b for b in case.output.blocks(0) if set(b.rows) - {"result"}][-1]
    data = bytearray(case.output.storage.read(block.file))
    data[len(data) // 2] ^= 1
    case.output.storage.put(block.file, bytes(data))
    case.require_recoverable()
