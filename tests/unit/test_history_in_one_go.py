"""A long history that comes in one commit: taken in bounded steps, windows closed on the way, the same results."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from strandline.checkpoint.policy import cec
from strandline.errors import CorruptManifestError
from strandline.inputs import one_stream
from strandline.inputs.input import InputSlice
from strandline.inputs.one_stream import OneStream
from strandline.log.operator_state.input_mark import Position
from strandline.log.stream import commit_kinds
from strandline.log.stream.append_commit import Append, AppendCommit
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import commit_key
from strandline.operators.aggregate import aggregate_operator
from strandline.operators.aggregate.aggregate_operator import AggregateOperator
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.open_windows.arrays import RECORDS
from strandline.operators.open_windows.record import HINT, NEWER, START
from strandline.running import step
from tests.simulation.machines import KeptStates
from tests.support.operator_streams import LATENESS, PLANS, Row, Streams, rows_table, uninterrupted

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


def streams(plan: AggregateDefinition) -> Streams:
    kept = KeptStates()
    return Streams(plan, lambda _: kept)  # type: ignore[arg-type,return-value]


def small(monkeypatch: pytest.MonkeyPatch, rows: int, windows: int = 1 << 20) -> None:
    monkeypatch.setattr(aggregate_operator, "_ROWS_MAX", rows)
    monkeypatch.setattr(aggregate_operator, "_WINDOWS_MAX", rows)
    monkeypatch.setattr(step, "WINDOWS_MAX", windows)


@every_plan
@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "shuffled"])
def test_one_commit_is_taken_in_by_several_steps_with_the_same_results(
    plan: AggregateDefinition, in_order: bool, monkeypatch: pytest.MonkeyPatch
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


def test_a_limit_of_tuples_bounds_what_is_taken_of_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, plan = history(400), PLANS["tumbling count"]
    monkeypatch.setattr(step, "ROWS_MIN", 1)
    case = streams(plan)
    case.append(rows)
    batches = case.drain(cec(), tuples_max=50)
    assert [done[0].tuples for done in batches] == [50] * 8
    assert case.results().equals(uninterrupted(plan, rows, case.input.state.boundaries[0]))


def test_pieces_of_one_stream_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, plan, sizes = history(400), PLANS["tumbling count"], []
    feed = AggregateOperator.feed
    monkeypatch.setattr(one_stream, "PIECE_BYTES_MAX", 1_000)
    monkeypatch.setattr(AggregateOperator, "feed", lambda o, t: sizes.append(sum(x.nbytes for x in t)) or feed(o, t))
    case = streams(plan)
    case.append(rows)
    case.drain(cec(), tuples_max=1 << 20)
    assert len(sizes) > 10
    assert max(sizes) <= 1_100
    assert case.results().equals(uninterrupted(plan, rows, case.input.state.boundaries[0]))


@every_plan
def test_a_step_stops_after_so_many_windows(plan: AggregateDefinition, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = history(300)
    small(monkeypatch, 10, windows=20)
    case = streams(plan)
    case.append(rows)
    batches = case.drain(cec(), tuples_max=1 << 40)
    assert len(batches) > 4
    assert case.results().equals(uninterrupted(plan, rows, case.input.state.boundaries[0]))


@timed_plan
def test_open_windows_of_a_history_in_order_stay_few(
    plan: AggregateDefinition, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, 50)
    most = 0
    run = AggregateOperator._run

    def counted(self: AggregateOperator, batch: object) -> object:
        nonlocal most
        found = run(self, batch)  # type: ignore[arg-type]
        most = max(most, self.state.open_windows)
        return found

    monkeypatch.setattr(AggregateOperator, "_run", counted)
    case = streams(plan)
    case.append(history(3_000))
    case.drain(cec(), tuples_max=1 << 40)
    assert len(case.results()) > 500
    assert 0 < most < 200


@timed_plan
def test_nothing_earlier_follows_a_piece_than_it_says(
    plan: AggregateDefinition, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(monkeypatch, 7)
    case = streams(plan)
    commits: Sequence[list[Row]] = [history(40), [{**r, "t": r["t"] + 80} for r in history(40, in_order=False)]]
    case.append(*commits)
    rows = [row for commit in commits for row in commit]
    boundary = case.input.state.boundaries[0]
    assert boundary == max(r["t"] for r in rows) - LATENESS
    taken = InputSlice(Position(0, None), len(rows), boundary, len(rows))
    found = list(OneStream(plan, case.input).ahead(taken, 0, 0, 7))
    assert [p.end for p in found][-1] == len(rows)
    assert found[-1].boundary == boundary
    for piece in found[:-1]:
        assert piece.boundary is not None
        assert piece.boundary <= min([boundary, *(r["t"] for r in rows[piece.end :])])


def test_sessions_of_one_key_are_found_without_a_look_at_all_of_them() -> None:
    """Twelve thousand open sessions of one key: each opening touches its neighbours only."""
    plan = PLANS["session"]
    work = plan.fresh()
    rows = [{"k": 1, "s": "one", "v": 1, "x": 1.0, "t": 100 * i} for i in range(12_000)]
    list(work.feed([rows_table(rows)]))
    assert work.state.open_windows == 12_000
    work.begin()
    list(work.feed([rows_table([{**rows[-1], "t": 100 * 12_000}], 12_000)]))
    assert work.state.trace.counts[RECORDS] <= 3
    work.begin()
    closed = work.advance(100 * 12_000 + 50)
    assert closed is not None
    assert len(closed[0]) == 12_001


@pytest.mark.parametrize("day_by_day", [False, True], ids=["newest first", "the newest day first"])
def test_sessions_that_come_newest_first_are_found_near_to_each_other(day_by_day: bool) -> None:
    """A search far behind the newest session begins where the one before it ended, not at the newest one."""
    plan, many, day = PLANS["session"], 4_000, 400
    numbers = [first + i for first in range(many - day, -1, -day) for i in range(day)] if day_by_day else range(many)
    times = [100 * i if day_by_day else 100 * (many - i) for i in numbers]
    rows = [{"k": 1, "s": "one", "v": 1, "x": 1.0, "t": t} for t in times]
    work = plan.fresh()
    work.begin()
    list(work.feed([rows_table(rows[:-2])]))
    records = work.state.arrays.records
    (newest,) = np.flatnonzero(records[: many - 2, NEWER] == -1)
    found = records[records[newest, HINT], START]
    assert found in (times[-3], times[-4])
    list(work.feed([rows_table(rows[-2:], many - 2)]))
    assert work.state.open_windows == many
    closed = work.advance(1 << 60)
    assert closed is not None
    assert closed[1].to_pylist() == sorted(times)


def test_a_smaller_limit_after_a_step_that_stopped_half_way_goes_on() -> None:
    """What is taken next must reach at least as far as any partition has come, or nothing would ever move again."""
    kept = [KeptStates(), KeptStates()]
    case = Streams(PLANS["tumbling count"], lambda p: kept[p], 2)  # type: ignore[arg-type,return-value]
    for later in (0, 1_000, 2_000):
        case.append({p: [{**row, "t": row["t"] + later} for row in history(many)] for p, many in ((0, 300), (1, 20))})
    with pytest.MonkeyPatch.context() as patch:
        small(patch, 50)
        case.batch(cec(), tuples_max=500)
        inputs = [s.input for s in case.output.state.standings]
        assert inputs != [900, 60]
        for _ in range(200):
            if not case.batch(cec(), tuples_max=10):
                break
    assert [s.input for s in case.output.state.standings] == [900, 60]
    assert case.output.state.standings[0].commit == 2


def test_a_hot_partition_among_many_is_not_cut_into_as_many_steps() -> None:
    kept = [KeptStates() for _ in range(8)]
    case = Streams(PLANS["tumbling count"], lambda p: kept[p], 8)  # type: ignore[arg-type,return-value]
    case.append({0: history(400)})
    assert len(case.drain(cec(), tuples_max=400)) == 1


def test_a_stream_whose_standing_went_back_under_an_early_version_can_be_read() -> None:
    """Early versions published such standings after `none`; only publishing another one is refused."""
    case = streams(PLANS["tumbling count"])
    case.append(history(30))
    case.drain(cec(extent=10_000))
    base = case.output.state
    back = replace(base.standings[0], oldest=base.standings[0].oldest - 1, replay=1)
    with pytest.raises(CorruptManifestError, match="would need older tuples"):
        case.output.append(Append(standings=[back], boundaries=base.boundaries), base=base)
    commit = AppendCommit(
        seq=base.seq + 1,
        stream="output",
        published_us=1,
        ends=base.ends,
        boundaries=base.boundaries,
        standings=(back,),
        time_max=base.time_max,
    )
    case.output_storage.create(commit_key(commit.seq), commit_kinds.encode(commit))
    assert Log.open(case.output_storage).state.standings == (back,)
