"""The eventual checkpoint, read back from the output, and what replay makes of it: the state as it was."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from strandline.checkpoint.policy import Policy, cec, instant, none
from strandline.clock import ManualClock
from strandline.errors import CorruptManifestError, OptionError, TruncatedError
from strandline.inputs.one_stream import OneStream
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import TruncateCommit
from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import compact
from strandline.operators.aggregate.aggregate_operator import AggregateOperator
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.open_windows.record import POS, T
from strandline.operators.open_windows.window_state import WindowState
from strandline.operators.operator import StateImage
from strandline.recovery import eventual_checkpoint
from strandline.recovery.recover import Stand, recover
from strandline.recovery.window_report import saved_windows
from strandline.recovery.without_replay import recover_without_replay
from tests.support.operator_streams import PLANS, Streams, Tuples, identity, windows_of

POLICIES = {
    "default": cec(),
    "tight extent": cec(extent="1x"),
    "no extent": cec(extent=0),
    "short replay": cec(replay=5),
    "loose": cec(extent=10_000),
    "in time": cec(recover_within="160 ms"),
    "instant": instant("1 ms"),
    "instant, seldom": instant("25 ms"),
}
every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


class Kept:
    """A cache that keeps the state of the last attempt in memory, so that a test can look at it."""

    def __init__(self) -> None:
        self.attempt = ""
        self.arrays: Mapping[str, Any] | None = None

    def open(self, attempt: str) -> Mapping[str, Any] | None:
        return self.arrays if attempt == self.attempt else None

    def leave(self, attempt: str, parent: str, state: StateImage, *, whole: bool = False) -> int:
        self.attempt, self.arrays = attempt, state.arrays
        return 1

    def close(self) -> None:
        pass


class Case(Streams):
    """Streams with that cache and a source of tuples."""

    def __init__(self, plan: AggregateDefinition, seed: int = 1) -> None:
        self.kept = Kept()
        super().__init__(plan, lambda _: self.kept)  # type: ignore[arg-type,return-value]
        self.tuples = Tuples(Random(seed))

    def run(self, policy: Policy, commits: int = 6, rows: int = 40) -> None:
        for _ in range(commits):
            self.append(self.tuples.rows(rows))
            assert isinstance(self.clock, ManualClock)
            self.clock.advance(0.01)
            self.drain(policy)

    @property
    def live(self) -> WindowState:
        assert self.kept.arrays is not None
        return self.plan.revived(self.kept.arrays).state

    def load(self, log: Log | None = None, **changes: Any) -> WindowState:
        log = log or self.output
        standing = replace(log.state.standings[0], **changes)
        operator = eventual_checkpoint.load(log, self.plan, 0, standing, log.state.ends[0])
        assert isinstance(operator, AggregateOperator)
        return operator.state

    def recovered(self) -> WindowState:
        operator, _ = recover(self.output, OneStream(self.plan, self.input), self.plan, Stand.of(self.output, 0))
        assert isinstance(operator, AggregateOperator)
        return operator.state


@every_policy
@every_plan
@pytest.mark.parametrize("compacted", [False, True], ids=["as written", "compacted"])
def test_checkpoint_and_replay_give_back_the_state_as_it_was(
    plan: AggregateDefinition, policy: Policy, compacted: bool
) -> None:
    case = Case(plan)
    for _ in range(3):
        case.run(policy, commits=2)
        if compacted:
            assert compact(case.output, blocks_min=2).blocks_before > 1
            assert compact(case.input, blocks_min=2).blocks_before > 1
        live, recovered = windows_of(plan, case.live), windows_of(plan, case.recovered())
        assert live, "nothing is open, nothing is tested"
        if policy.kind == "instant":  # windows that opened since the whole checkpoint have no footprint to compare
            for windows in (live, recovered):
                for window in windows.values():
                    del window["position"], window["_input"]
                    if not plan.window.has_times:
                        del window["window_end"]
        assert recovered == live


@every_plan
def test_a_window_in_the_checkpoint_is_its_newest_footprint(plan: AggregateDefinition) -> None:
    case = Case(plan)
    case.run(cec(extent="2x"))
    rows = [r for t in case.output.read(0) for r in t.to_pylist() if r["_kind"] != 0]
    newest = {tuple(row[c] for c in identity(plan)): row for row in rows}
    loaded = case.load()
    for window in windows_of(plan, loaded).values():
        footprint = newest[tuple(window[c] for c in identity(plan))]
        assert window["position"] == footprint["_offset"]
        for column in ("_input", "_rows", "window_start", "window_end"):
            assert window[column] == footprint[column]
    assert loaded.open_windows == case.output.state.standings[0].open
    standing = case.output.state.standings[0]
    records = loaded.arrays.records[: loaded.open_windows]
    assert records[:, T].min() == standing.oldest
    assert records[:, POS].min() == case.output.state.ends[0] - standing.extent


@every_plan
def test_windows_come_in_the_order_of_their_footprints(plan: AggregateDefinition) -> None:
    case = Case(plan)
    case.run(cec(extent="2x"))
    loaded = case.load()
    positions = loaded.arrays.records[: loaded.open_windows, POS].tolist()
    assert positions == sorted(positions)


def test_a_checkpoint_without_windows_reads_nothing() -> None:
    case = Case(PLANS["tumbling count"])
    rows = [{"k": 1, "s": "a", "v": i, "x": 1.0, "t": i} for i in range(8)]
    case.append(rows)
    case.drain(cec())
    assert case.output.state.standings[0].extent == 0
    assert case.load().open_windows == 0


def test_without_a_policy_recovery_begins_with_nothing() -> None:
    case = Case(PLANS["tumbling count"])
    case.run(none())
    assert case.live.open_windows > 0
    stand = Stand.of(case.output, 0)
    operator, recovery = recover_without_replay(case.output, case.plan, stand)
    assert operator.open_windows == recovery.replayed == 0
    assert operator.input_end == stand.standing.input
    assert [(loss.first, loss.until, loss.windows, loss.reason) for loss in recovery.losses] == [
        (0, stand.standing.input, stand.standing.open, "nothing saved")
    ]


@every_plan
def test_output_that_was_truncated_too_far_is_reported_as_such(plan: AggregateDefinition) -> None:
    case = Case(plan)
    case.run(cec(extent="2x"))
    end = case.output.state.ends[0]

    def drop(state: Any, _seen: Any) -> Commit:
        # By hand: `truncate` itself leaves alone what the operator needs.
        starts = (end - 1, 0)
        return TruncateCommit(state.seq + 1, case.output.spec.id, 0, starts=starts)

    case.output.publish(drop, since=case.output.state.seq)
    with pytest.raises(TruncatedError, match="was dropped"):
        case.load()
    with pytest.raises(TruncatedError):
        case.recovered()


@every_plan
@pytest.mark.parametrize("change", [{"open": 1}, {"extent": 1}, {"open": 0}], ids=["N", "extent", "none open"])
def test_a_checkpoint_that_does_not_add_up_to_n_is_not_used(plan: AggregateDefinition, change: dict[str, Any]) -> None:
    case = Case(plan)
    case.run(cec(extent="2x"))
    assert case.output.state.standings[0].open > 1
    with pytest.raises(CorruptManifestError, match=r"footprints of \d+ open windows?, the manifest says \d+") as raised:
        case.load(**change)
    assert "partition 0" in raised.value.where
    assert "verify" in raised.value.todo


def test_a_whole_checkpoint_that_does_not_add_up_is_not_used() -> None:
    case = Case(PLANS["sliding time"])
    case.run(instant("1 s"))
    with pytest.raises(CorruptManifestError):
        case.load(saved=case.output.state.standings[0].saved + 1)
    with pytest.raises(CorruptManifestError):
        case.load(oldest=case.output.state.standings[0].oldest - 1)


def test_replay_that_does_not_lead_to_n_windows_is_not_used() -> None:
    case = Case(PLANS["sliding time"])
    case.run(instant("1 s"))
    state = case.output.state
    wrong = replace(state.standings[0], open=state.standings[0].open + 1)
    with pytest.raises(CorruptManifestError, match="after replay"):
        recover(
            case.output,
            OneStream(case.plan, case.input),
            case.plan,
            Stand(0, wrong, state.ends[0], state.boundaries[0]),
        )


# ---------------------------------------------------------------------- the table of open windows


@every_plan
def test_open_windows_are_a_table_that_anybody_can_read(plan: AggregateDefinition) -> None:
    case = Case(plan)
    assert saved_windows(case.output).num_rows == 0
    empty = saved_windows(case.output)
    case.run(cec(extent="2x"))
    table = saved_windows(Log.open(case.output_storage))
    assert table.column_names == empty.column_names
    assert table.num_rows == case.live.open_windows == case.output.state.standings[0].open
    live = windows_of(plan, case.recovered())
    for row in table.to_pylist():
        window = live[tuple(row[c] for c in identity(plan))]
        assert row["_input"] == window["_input"]
        assert row["_rows"] <= window["_rows"]
        assert row["_partition"] == 0
    for name in (a.name for a in plan.accumulators):
        assert name not in table.column_names


def test_open_windows_of_a_stream_without_an_operator_are_refused() -> None:
    case = Case(PLANS["session"])
    with pytest.raises(OptionError, match="no operator writes this stream"):
        saved_windows(case.input)
