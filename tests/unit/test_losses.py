"""What failures cost under policies that do not replay, and where that is on record."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import strandline as sl
from strandline.checkpoint.policy import Policy, cec, instant, none, partial
from strandline.cli import inspect_parts
from strandline.errors import CollectedError, StorageError, StrandlineWarning
from strandline.log.audit.stream_audit import verify
from strandline.log.operator_state import loss_record
from strandline.log.operator_state.loss import Loss
from strandline.log.operator_state.loss_record import loss_table
from strandline.log.reading.summary import summary
from strandline.log.stream import block_sequence
from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.dropping import drop_commits
from strandline.log.upkeep.retention import apply_retention, collect
from strandline.running.step import Done
from strandline.spark.operator.recovery_warnings import RecoveryWarnings
from strandline.testing import MemoryStorage
from strandline.testing.faulty_storage import flipped
from tests.simulation.machines import KeptStates
from tests.support.operator_streams import PLANS, Row, Streams, published_results


class Case(Streams):
    """Windows of four tuples a key, over tuples that a test gives one by one."""

    def __init__(self, plan: str = "tumbling count") -> None:
        self.kept = KeptStates()
        super().__init__(PLANS[plan], lambda _: self.kept)  # type: ignore[arg-type,return-value]
        self.offset = 0

    def go_on(self, policy: Policy, *keys: int) -> list[Done]:
        rows: list[Row] = []
        for key in keys:
            rows.append({"k": key, "s": f"s{key}", "v": self.offset, "x": float(self.offset), "t": self.offset})
            self.offset += 1
        self.append(rows)
        return [done for batch in self.drain(policy) for done in batch]

    def crash(self) -> None:
        self.kept.states.clear()

    def losses(self) -> list[dict[str, Any]]:
        names = ("from", "until", "tuples", "windows", "reason")
        return [{name: row[name] for name in names} for row in loss_table(self.output).to_pylist()]

    def firsts(self) -> list[tuple[int, int]]:
        """Keys and first tuples of the results."""
        return [(row["k"], row["window_start"]) for row in self.results().to_pylist()]


def skipped(first: int, until: int, windows: int, reason: str = "skipped") -> dict[str, Any]:
    return {"from": first, "until": until, "tuples": until - first, "windows": windows, "reason": reason}


SELDOM = partial("1 hour")


def test_what_came_since_the_last_save_is_skipped_and_on_record() -> None:
    case = Case()
    case.go_on(SELDOM, 1, 1, 2)
    case.go_on(SELDOM, 1, 3)
    case.crash()
    (done,) = case.go_on(SELDOM, 1, 1, 3)
    assert case.losses() == [skipped(3, 5, windows=1)], "of key 3 all is gone"
    assert case.firsts() == [(1, 0)], "with two tuples from before and two from behind the gap"
    assert case.results().column("n").to_pylist() == [4]
    assert done.recovery is not None
    assert done.recovery.losses[0].text == "partition 0 lost input 3 to 4 (2) and 1 open window"
    case.crash()
    case.go_on(SELDOM, 2)
    assert len(case.losses()) == 1, "the state was saved anew with the first commit after the loss"


def test_a_window_that_closed_since_the_save_has_one_result() -> None:
    case = Case()
    case.go_on(SELDOM, 1, 1, 1)
    case.go_on(SELDOM, 1, 1)
    case.crash()
    case.go_on(SELDOM, 1, 1, 1, 1)
    assert case.firsts() == [(1, 0), (1, 5)], "the second began behind the gap"
    assert case.losses() == [skipped(3, 5, windows=1)]


def test_without_a_failure_or_with_nothing_since_the_save_nothing_is_lost() -> None:
    case = Case()
    case.go_on(SELDOM, 1, 2)
    case.go_on(SELDOM, 1)
    assert case.losses() == []
    case = Case()
    case.go_on(SELDOM, 1, 2)
    case.crash()
    case.go_on(SELDOM, 1, 1, 1)
    assert case.losses() == []
    assert case.firsts() == [(1, 0)]


def test_without_checkpoints_all_windows_are_on_record() -> None:
    case = Case()
    case.go_on(none(), 1, 2, 3)
    case.crash()
    case.go_on(none(), 1)
    case.crash()
    case.go_on(cec(), 2)
    assert case.losses() == [
        skipped(0, 3, windows=3, reason="nothing saved"),
        skipped(3, 4, windows=1, reason="nothing saved"),
    ]


@pytest.mark.parametrize("then", [cec(), instant("1 hour"), SELDOM], ids=str)
def test_another_policy_after_a_loss_loses_nothing_more(then: Policy) -> None:
    case = Case()
    case.go_on(SELDOM, 1, 1, 2)
    case.go_on(SELDOM, 1)
    case.crash()
    case.go_on(then, 1)
    case.crash()
    case.go_on(cec(), 1)
    assert case.losses() == [skipped(3, 4, windows=0)]
    assert case.firsts() == [(1, 0)]


@pytest.mark.parametrize("then", [cec(), instant("1 hour")], ids=str)
def test_a_policy_that_replays_takes_over_from_partial_without_a_loss(then: Policy) -> None:
    case = Case()
    case.go_on(SELDOM, 1, 2)
    case.go_on(SELDOM, 1, 2)
    case.go_on(then, 1)
    case.crash()
    case.go_on(then, 1, 2, 2)
    assert case.losses() == []
    assert case.firsts() == [(1, 0), (2, 1)]


def rot(log: Log, at: int) -> None:
    (block,) = log.blocks(0, at, at + 1)
    log.storage.put(block.file, flipped(log.storage.read(block.file), 100))


def test_a_rotten_block_costs_the_windows_in_it_and_is_on_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_sequence, "ROWS_MAX", 2)
    case = Case()
    case.go_on(SELDOM, 1, 2, 3)
    case.go_on(SELDOM, 3)
    rot(case.output, 0)
    case.crash()
    case.go_on(SELDOM, 1, 1, 1, 1, 3, 3, 3)
    assert case.losses() == [skipped(4, 4, windows=2, reason="footprints rotten"), skipped(3, 4, windows=0)]
    behind = published_results(case.output, 0, first=2).to_pylist()
    assert [(row["k"], row["window_start"]) for row in behind] == [(1, 4), (3, 2)], "what the other block has is used"


def test_a_window_whose_result_is_in_a_rotten_block_does_not_come_back() -> None:
    case = Case()
    case.go_on(SELDOM, 1, 1, 1, 2)
    before = case.output.state.ends[0]
    case.go_on(SELDOM, 1)
    (block,) = case.output.blocks(0, before)
    as_written = case.output.storage.read(block.file)
    rot(case.output, before)
    case.crash()
    case.go_on(SELDOM, 1, 1, 1, 1, 2, 2, 2, 2)
    assert case.losses() == [skipped(5, 5, windows=1, reason="footprints rotten"), skipped(4, 5, windows=0)]
    case.output.storage.put(block.file, as_written)
    assert case.firsts() == [(1, 0), (1, 5), (2, 9)], "which of the two had closed, only the rotten block could tell"


def test_time_closes_again_what_closed_in_a_rotten_block() -> None:
    case = Case("sliding time")
    case.go_on(SELDOM, *range(1, 9))
    before = case.output.state.ends[0]
    case.go_on(SELDOM, *[1] * 12)
    assert case.output.state.ends[0] > before
    windows = case.output.state.standings[0].open
    rot(case.output, before)
    case.crash()
    case.go_on(SELDOM, 1)
    assert windows > 0
    assert [loss["reason"] for loss in case.losses()] == ["skipped"], "open windows are as they were saved"


def test_records_outlive_blocks_and_commits() -> None:
    case = Case()
    for _ in range(5):
        case.go_on(SELDOM, 1, 1)
        case.go_on(SELDOM, 1, 1)
        case.crash()
    case.go_on(SELDOM, 2)
    before = case.losses()
    assert len(before) == 5
    compact(case.output, blocks_min=2)
    apply_retention(case.output, keep=0)
    for _ in range(2):
        collect(case.output, grace_us=0)
    case.output.fold()
    drop_commits(case.output, keep_commits=0, keep_us=0, every=1)
    case.output = Log.open(case.output.storage, case.clock)
    assert case.losses() == before


def loss(number: int) -> Loss:
    return Loss(0, number, number + 1, 2, 0, 5, number, "skipped")


def test_a_record_is_continued_in_a_new_file_when_it_is_full() -> None:
    storage, losses = MemoryStorage(), None
    many = 2 * loss_record.LOSSES_MAX + 3
    for number in range(many):
        losses = loss_record.add(storage, f"attempt{number}", losses, [loss(number)])
    assert losses is not None
    assert (losses.count, losses.tuples, losses.windows) == (many, many, 2 * many)
    assert [*loss_record.on_record(storage, losses).losses] == [loss(number) for number in reversed(range(many))]
    assert max(len(storage.read(f.key)) for f in storage.list("losses")) < 200 * loss_record.LOSSES_MAX
    assert json.loads(storage.read(losses.record))["before"] == f"losses/attempt{2 * loss_record.LOSSES_MAX - 1}.json"


def test_a_record_that_is_rotten_or_gone_is_named() -> None:
    storage = MemoryStorage()
    losses = loss_record.add(storage, "attempt", None, [loss(1)])
    storage.put(losses.record, flipped(storage.read(losses.record), 100))
    assert loss_record.on_record(storage, losses).unreadable == "losses/attempt.json"
    gone = loss_record.on_record(storage, replace(losses, record="losses/other.json"))
    assert gone.unreadable == "losses/other.json"
    assert "what the operator has lost" in gone.why


@pytest.mark.parametrize("damage", ["gone", "rotten"])
def test_an_operator_whose_loss_record_cannot_be_read_goes_on_and_losses_shows_the_hole(damage: str) -> None:
    case = Case()
    for _ in range(2):
        case.go_on(SELDOM, 1, 1)
        case.go_on(SELDOM, 1, 1)
        case.crash()
    case.go_on(SELDOM, 2)
    before = case.losses()
    lost = case.output.state.standings[0].losses
    assert lost is not None
    whole = case.output.storage.read(lost.record)
    if damage == "gone":
        case.output.storage.delete(lost.record)
    else:
        case.output.storage.put(lost.record, flipped(whole, 100))
    hole = {"from": None, "until": None, "tuples": lost.tuples, "windows": lost.windows, "reason": "not on record"}
    assert case.losses() == [hole], "what the sums still know"
    case.go_on(SELDOM, 2)
    case.crash()
    case.go_on(SELDOM, 3)
    (newest,) = case.losses()[1:]
    assert (case.losses()[0], newest["reason"]) == (hole, "skipped")
    (problem,) = verify(case.output).problems
    assert (problem.file, problem.partition) == (lost.record, 0), "the file that is to be restored"
    case.output.storage.put(lost.record, whole)
    assert case.losses() == [*before, newest], "a record that comes back closes the hole"
    assert verify(case.output).is_good


def operator_with_losses(many: int) -> Case:
    case = Case()
    for _ in range(many):
        case.go_on(none(), 1)
        case.crash()
    case.go_on(none(), 2)
    return case


def test_records_of_losses_that_no_standing_leads_to_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_record, "LOSSES_MAX", 2)
    case = operator_with_losses(5)
    output, before = case.output, case.losses()
    loss_record.add(output.storage, "crashed", None, [loss(1)])
    live = set(loss_record.records(output.storage, output.state.standings[0].losses))
    every = {listed.key for listed in output.storage.list("losses")}
    assert len(live) == 3, "two of them are full"
    case.clock.advance(1)
    report = verify(output)
    assert report.unreferenced is not None
    assert every - live <= set(report.unreferenced.names)
    assert set(collect(output, grace_us=0)) >= every - live
    assert {listed.key for listed in output.storage.list("losses")} == live
    assert case.losses() == before
    assert verify(output).is_good


def test_no_record_of_losses_is_collected_while_one_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_record, "LOSSES_MAX", 1)
    case = operator_with_losses(3)
    storage, newest = case.output.storage, case.output.state.standings[0].losses
    assert newest is not None
    whole, before = storage.read(newest.record), case.losses()
    storage.put(newest.record, flipped(whole, 100))
    case.clock.advance(1)
    assert not any(key.startswith("losses/") for key in collect(case.output, grace_us=0))
    storage.put(newest.record, whole)
    assert case.losses() == before


def test_a_step_whose_record_of_losses_was_collected_is_not_published() -> None:
    case = operator_with_losses(1)
    standing = case.output.state.standings[0]
    base = case.output.state
    slow = loss_record.add(case.output.storage, "slow", standing.losses, [loss(1)])
    case.clock.advance(1)
    collect(Log.open(case.output.storage, case.clock), grace_us=0)
    assert not case.output.storage.exists(slow.record)
    with pytest.raises(CollectedError, match=slow.record):
        case.output.append(Append(standings=[replace(standing, losses=slow)], boundaries=base.boundaries), base=base)


def test_a_record_of_losses_that_is_published_while_the_collector_looks_is_kept() -> None:
    case = operator_with_losses(1)
    standing, collector = case.output.state.standings[0], Log.open(case.output.storage, case.clock)
    slow = loss_record.add(case.output.storage, "slow", standing.losses, [loss(1)])
    case.clock.advance(1)
    publish = collector.publish

    def publish_late(*args: Any, **options: Any) -> Any:
        collector.publish = publish  # type: ignore[method-assign]
        state = case.output.state
        case.output.append(Append(standings=[replace(standing, losses=slow)], boundaries=state.boundaries))
        return publish(*args, **options)

    collector.publish = publish_late  # type: ignore[method-assign]
    collect(collector, grace_us=0)
    assert case.output.storage.exists(slow.record)


def test_a_loss_record_that_the_storage_does_not_give_is_no_hole() -> None:
    storage = MemoryStorage()
    losses = loss_record.add(storage, "attempt", None, [loss(1)])

    def fail(key: str) -> bytes:
        raise StorageError(f"no answer for {key}")

    storage.read = fail  # type: ignore[method-assign]
    with pytest.raises(StorageError, match="no answer"):
        loss_record.add(storage, "another", losses, [loss(2)])


def test_verify_misses_what_is_not_on_record_any_more() -> None:
    case = Case()
    case.go_on(none(), 1)
    case.crash()
    case.go_on(none(), 1)
    assert verify(case.output).is_good
    losses = case.output.state.standings[0].losses
    assert losses is not None
    case.output.storage.delete(losses.record)
    (problem,) = verify(case.output).problems
    assert (problem.file, problem.partition) == (losses.record, 0)


def test_a_stream_that_may_lose_something_is_of_a_format_that_older_versions_refuse() -> None:
    def formats(case: Case) -> list[int]:
        keys = sorted(f.key for f in case.output.storage.list("commits"))
        return [json.loads(case.output.storage.read(key))["format"] for key in keys]

    case = Case()
    case.go_on(SELDOM, 1)
    case.go_on(cec(), 1)
    assert formats(case) == [4, 1]
    case.go_on(none(), 1)
    case.crash()
    case.go_on(cec(), 1)
    assert formats(case) == [4, 1, 1, 4], "what was lost must not be forgotten"


def test_inspect_and_a_warning_say_what_was_lost() -> None:
    case = Case()
    case.go_on(SELDOM, 1, 2)
    case.go_on(SELDOM, 1, 2, 3)
    case.crash()
    done = case.go_on(SELDOM, 1)
    with pytest.warns(StrandlineWarning, match=r"out: partition 0 lost input 2 to 4 \(3\) and 1 open window\. stream"):
        RecoveryWarnings(cec(), "out").of_losses(done)
    found = summary(case.output)
    assert found.operator is not None
    assert found.operator.losses is not None
    shown = Console(width=120)
    with shown.capture() as told:
        shown.print(inspect_parts.operator(found, found.operator, 4))
    assert "3 tuples skipped, 1 window gone in 1 failure" in told.get()


class Mean(sl.Operator):
    """The mean of all tuples so far."""

    output = "id long, at timestamp, mean double"
    time = "at"

    def __init__(self) -> None:
        self.n, self.total = 0, 0.0

    def process(self, tuples: pa.Table) -> pa.Table:
        means = []
        for value in tuples.column("price").to_pylist():
            self.n, self.total = self.n + 1, self.total + value
            means.append(self.total / self.n)
        return pa.table({"id": tuples.column("id"), "at": tuples.column("at"), "mean": means})

    def get_checkpoint(self) -> dict[str, Any]:
        return {"n": self.n, "total": self.total}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        self.n, self.total = state["n"], state["total"]


def test_a_class_goes_on_with_what_it_had_saved() -> None:
    prices = sl.testing.stream("id long, at timestamp, price double", key="id", time="at", lateness="5 s", partitions=1)
    run = sl.testing.run(prices.apply(Mean()).checkpoint(sl.partial("1 hour")))
    for second, price in enumerate([1.0, 3.0, 1000.0]):
        prices.add([(1, f"2026-01-01 00:00:0{second}", price)])
        if second != 0:
            run.step()
    assert run.losses().num_rows == 0
    run.crash()
    prices.add([(1, "2026-01-01 00:00:04", 5.0)])
    assert run.step().column("mean").to_pylist() == [3.0], "without the third"
    (row,) = run.losses().to_pylist()
    assert (row["from"], row["until"], row["reason"]) == (2, 3, "skipped")


@pytest.mark.parametrize("every", ["0 s", "-1 s", "sometimes", 0])
def test_partial_wants_a_duration(every: Any) -> None:
    with pytest.raises(sl.OptionError, match="partial: every"):
        partial(every)


def test_partial_is_the_one_policy_that_saves_all_and_replays_nothing() -> None:
    policy = partial()
    assert repr(policy) == 'partial("10 s")'
    assert (policy.starts_from, policy.replays, policy.mode) == ("whole state", False, "partial")
    assert "stream.losses() says what" in policy._repr_html_()
