"""A long history that comes in one commit: taken in bounded steps, windows closed on the way, the same results."""

from collections.abc import Sequence
from random import Random

import pytest

from strandline.checkpoint.policy import cec
from strandline.operators import operator
from strandline.operators.arrays import RECORDS
from strandline.operators.operator import Operator
from strandline.operators.plan import Plan
from strandline.recovery import step
from strandline.recovery.intake import pieces
from tests.operator_streams import LATENESS, PLANS, Row, Streams, rows_table, uninterrupted
from tests.simulation.operator_world import KeptStates

every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
timed_plan = pytest.mark.parametrize("plan", [p for p in PLANS.values() if p.window.has_times], ids=str)


def history(count: int, *, in_order: bool = True) -> list[Row]:
    """Tuples of five keys, one every two moments."""
    rng = Random(7)
    rows = [
        {"k": i % 5, "s": f"key{i % 5}", "v": rng.randrange(100), "x": rng.uniform(-1, 1), "t": 2 * i}
        for i in range(count)
    ]
    if not in_order:
        rng.shuffle(rows)
    return rows


def streams(plan: Plan) -> Streams:
    kept = KeptStates()
    return Streams(plan, lambda _: kept)  # type: ignore[arg-type,return-value]


def small(monkeypatch: pytest.MonkeyPatch, rows: int, windows: int = 1 << 20) -> None:
    monkeypatch.setattr(operator, "_ROWS_MAX", rows)
    monkeypatch.setattr(operator, "_WINDOWS_MAX", rows)
    monkeypatch.setattr(step, "WINDOWS_MAX", windows)


@every_plan
@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "shuffled"])
def test_one_commit_is_taken_in_by_several_steps_with_the_same_results(
    plan: Plan, in_order: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = history(400, in_order=in_order)
    small(monkeypatch, 32)
    case = streams(plan)
    case.append(rows)
    batches = case.drain(cec(), tuples_max=64)
    assert 5 <= len(batches) <= 7
    inputs = [done[0].standing.input for done in batches]
    assert inputs == sorted(inputs)
    assert all(done[0].tuples < 64 + 32 for done in batches)  # stops where a piece ends
    assert [done[0].standing.commit for done in batches] == [-1] * (len(batches) - 1) + [0]
    assert case.results().equals(uninterrupted(plan, rows, case.input.state.boundaries[0]))


@every_plan
def test_a_step_stops_after_so_many_windows(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = history(300)
    small(monkeypatch, 10, windows=20)
    case = streams(plan)
    case.append(rows)
    batches = case.drain(cec(), tuples_max=1 << 40)
    assert len(batches) > 4
    assert case.results().equals(uninterrupted(plan, rows, case.input.state.boundaries[0]))


@timed_plan
def test_open_windows_of_a_history_in_order_stay_few(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, 50)
    most = 0
    run = Operator._run

    def counted(self: Operator, batch: object) -> object:
        nonlocal most
        found = run(self, batch)  # type: ignore[arg-type]
        most = max(most, self.state.open_windows)
        return found

    monkeypatch.setattr(Operator, "_run", counted)
    case = streams(plan)
    case.append(history(3_000))
    case.drain(cec(), tuples_max=1 << 40)
    assert len(case.results()) > 500
    assert 0 < most < 200


@timed_plan
def test_nothing_earlier_follows_a_piece_than_it_says(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, 7)
    case = streams(plan)
    commits: Sequence[list[Row]] = [history(40), [{**r, "t": r["t"] + 80} for r in history(40, in_order=False)]]
    case.append(*commits)
    rows = [row for commit in commits for row in commit]
    boundary = case.input.state.boundaries[0]
    assert boundary == max(r["t"] for r in rows) - LATENESS
    found = list(pieces(case.input, plan, 0, 0, len(rows), boundary, 7))
    assert [p.end for p in found][-1] == len(rows)
    assert found[-1].boundary == boundary
    for piece in found[:-1]:
        assert piece.boundary is not None
        assert piece.boundary <= min([boundary, *(r["t"] for r in rows[piece.end :])])


def test_sessions_of_one_key_are_found_without_a_look_at_all_of_them() -> None:
    """Twelve thousand open sessions of one key: each opening touches its neighbours only."""
    plan = PLANS["session"]
    work = Operator.new(plan)
    rows = [{"k": 1, "s": "one", "v": 1, "x": 1.0, "t": 100 * i} for i in range(12_000)]
    list(work.feed(rows_table(rows)))
    assert work.state.open_windows == 12_000
    work.begin()
    list(work.feed(rows_table([{**rows[-1], "t": 100 * 12_000}], 12_000)))
    assert work.state.trace.counts[RECORDS] <= 3
    work.begin()
    closed = work.close_until(100 * 12_000 + 50)
    assert closed is not None
    assert len(closed[0]) == 12_001
