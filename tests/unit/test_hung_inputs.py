"""An input whose store neither answers nor fails is missing like any other: the rest of the operator goes on."""

from pathlib import Path
from typing import Any

import pytest

from strandline.errors import StorageError
from strandline.log.audit.stream_audit import verify
from strandline.log.storage.time_limited_storage import TimeLimitedStorage
from strandline.log.storage.timely_calls import TimelyCalls
from strandline.log.stream import block_slice
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import commit_key
from strandline.log.upkeep import consumer_registry
from strandline.running.promise import Promise
from strandline.spark.operator import operator_task
from tests.support.available_case import BOUND_US, PATIENT_S, Case, hung
from tests.support.hanging_storage import HangingStorage, heard
from tests.support.items import append_items, item_spec

SOON_S = 0.05


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that somebody has waited for in vain."""
    found: list[Any] = []
    is_late = TimelyCalls._is_late

    def noted(self: TimelyCalls, call: Any) -> None:
        if call.probe_s is None:  # else nobody waits for the answer
            found.append(call)
        is_late(self, call)

    monkeypatch.setattr(TimelyCalls, "_is_late", noted)
    return found


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    made = Case(tmp_path, monkeypatch)
    for number in range(2):
        made.write(number, 0, 15)
    assert made.tick()["state"] == "STABLE"
    return made


def next_commit(case: Case) -> Path:
    return case.folders[1] / commit_key(case.inputs[1].state.seq + 1)


def settled(case: Case, ticks: int = 14) -> dict[str, Any]:
    for _ in range(ticks):
        report = case.tick()
    return report


def test_an_input_that_hangs_is_missing_and_is_waited_for_once(case: Case, late: list[Any]) -> None:
    case.wait_for(SOON_S)
    with hung(next_commit(case)):
        case.write(0, 15, 35)
        report = settled(case)
        assert (report["state"], report["missing"], report["tentative"]) == ("UP_FAILURE", ["south"], 2)
        case.write(0, 35, 45)
        assert settled(case, 40)["tentative"] == 3
        assert len(late) == 1
        case.wait_for(PATIENT_S)
    heard(case.job.inputs.logs[1].storage)
    case.write(1, 15, 45)
    report = settled(case)
    assert (report["state"], report["missing"], report["tentative"]) == ("STABLE", [], 0)
    assert case.told().count("stable") == 4
    assert len(late) == 1


def test_an_input_whose_blocks_hang_is_missing_and_its_tuples_are_taken_in_when_they_can_be(
    case: Case, late: list[Any]
) -> None:
    for number in (0, 1):
        case.write(number, 15, 35)
    block = case.inputs[1].commit(case.inputs[1].state.seq - 1).blocks[0]
    case.wait_for(SOON_S)
    with hung(case.folders[1] / block.file):
        reports = len(case.reports)
        case.tick()
        assert len(case.reports) == reports, "a task has waited in vain: nothing is published, and nobody stops"
        report = settled(case, 40)
        assert (report["state"], report["missing"], report["tentative"]) == ("UP_FAILURE", ["south"], 2)
        assert len(late) == 1
        case.wait_for(PATIENT_S)
    heard(case.job.inputs.logs[1].storage)
    report = settled(case)
    assert (report["state"], report["tentative"]) == ("STABLE", 0)
    assert case.told().count("stable") == 3


@pytest.mark.parametrize("is_another_worker", [False, True])
def test_a_fork_does_not_wait_for_an_input_that_hangs(case: Case, late: list[Any], is_another_worker: bool) -> None:
    append_items(case.inputs[1], {0: [(1, t, t) for t in range(15, 25)]})  # complete up to 24, and one tuple more
    case.write(0, 15, 35)
    case.tick()
    case.wait_for(SOON_S)
    with hung(next_commit(case)):
        block_slice._known.clear()
        if is_another_worker:
            operator_task._OPENED.clear()
        report = settled(case)
        assert (report["state"], report["missing"]) == ("UP_FAILURE", ["south"])
        assert report["tentative"]
        assert not any(fork.problem for fork in case.job.output.state.outage.forks)
        assert len(late) == 1
        case.wait_for(PATIENT_S)
    heard(case.job.inputs.logs[1].storage)
    case.write(1, 25, 35)
    report = settled(case)
    assert (report["state"], report["tentative"]) == ("STABLE", 0)


def test_a_driver_starts_without_an_input_that_hangs_and_takes_it_in_when_it_answers(
    case: Case, late: list[Any]
) -> None:
    case.limit_s = SOON_S
    with hung(case.folders[1] / "stream.json"):
        case.job = case.started(Promise(BOUND_US))
        case.job.register()
        case.write(0, 15, 35)
        report = settled(case, 40)
        assert (report["state"], report["missing"], report["tentative"]) == ("UP_FAILURE", ["south"], 2)
        assert len(late) == 1
        case.wait_for(PATIENT_S)
    heard(case.job.inputs.logs[1].storage)
    case.write(1, 15, 35)
    report = settled(case, 24)
    assert (report["state"], report["tentative"]) == ("STABLE", 0)
    assert case.told().count("stable") == 3


def test_who_says_what_is_needed_does_not_wait_for_an_input_that_hangs_and_says_it_to_the_others(case: Case) -> None:
    case.wait_for(SOON_S)
    with hung(next_commit(case)):
        case.job.register()
        assert [len([*consumer_registry.consumers(log)]) for log in case.inputs] == [0, 0], "as they were opened"
        for log in case.inputs[:1]:
            log.refresh()
            assert len([*consumer_registry.consumers(log)]) == 1
        case.wait_for(PATIENT_S)
    heard(case.job.inputs.logs[1].storage)
    case.job.register()
    case.inputs[1].refresh()
    assert len([*consumer_registry.consumers(case.inputs[1])]) == 1


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_registration_that_is_made_when_nobody_waits_for_it_any_more_harms_nobody(is_taken: bool) -> None:
    inner = HangingStorage()
    writer = Log.create(inner.elsewhere, item_spec(1))
    log = Log.open(TimeLimitedStorage(inner, PATIENT_S))
    limited: Any = log.storage
    inner.hang("create")
    limited._limit_s = SOON_S
    with pytest.raises(StorageError, match="could not create a key: the store has not answered"):
        consumer_registry.register(log, "operator-a", [0])
    assert inner.waiting.acquire(timeout=PATIENT_S)
    limited._limit_s = PATIENT_S
    if is_taken:
        append_items(writer, {0: [(1, 1, 1)]})
    inner.go_on()
    heard(limited)
    append_items(writer, {0: [(1, 2, 2)]})
    consumer_registry.register(log, "operator-a", [0])
    writer.refresh()
    assert [consumer.name for consumer in consumer_registry.consumers(writer)] == ["operator-a"]
    assert writer.state.seq == 1 + is_taken, "one registration, whether the late one came to be or not"
    assert verify(writer).problems == ()
