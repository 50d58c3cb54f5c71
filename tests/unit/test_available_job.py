"""The driver's side of an operator with a bound, and its tasks, without a JVM: tasks are called, not sent."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.errors import CorruptBlockError, InputWentBackError, StorageError, StreamMismatchError
from strandline.inputs.serialised_union import SerialisedUnion
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import block_slice
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.log.stream.manifest import Writer
from strandline.running.promise import Promise
from strandline.running.state.live_operators import LIVE
from strandline.spark.operator import operator_task
from strandline.spark.operator.operator_inputs import OperatorInputs
from strandline.spark.session.place import Place
from tests.support.available_case import BOUND_US, Case, Numbered, break_off, mend, move_away, move_back
from tests.support.inputs_over import inputs_over
from tests.support.items import append_items, item_spec


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    made = Case(tmp_path, monkeypatch)
    for number in range(2):
        made.write(number, 0, 15)
    assert made.tick()["state"] == "STABLE"
    assert made.told() == ["stable"]
    return made


def test_a_bound_runs_out_by_itself_and_an_input_that_is_back_corrects_what_was_said(case: Case) -> None:
    case.write(0, 15, 35)
    assert case.tick()["state"] == "STABLE"
    seq = case.job.output.state.seq
    assert case.tick(0.8)["state"] == "STABLE"
    assert case.job.output.state.seq == seq, "nothing has happened, and it was published"
    report = case.tick(0.2)
    assert (report["state"], report["missing"], report["tentative"]) == ("UP_FAILURE", ["south"], 2)
    assert report["tentative_results"] == 2
    assert case.told() == ["stable", "tentative", "tentative"]
    seq = case.job.output.state.seq
    for _ in range(20):
        case.tick()
    assert case.job.output.state.seq == seq, "nothing new has come, and it was published"
    case.write(1, 15, 35)
    report = case.tick()
    assert (report["state"], report["missing"], report["tentative"]) == ("STABLE", [], 0)
    assert case.told() == ["stable", "tentative", "tentative", "undo", "stable", "stable", "rec_done"]
    assert case.job.look() is None


def test_an_input_whose_commits_cannot_be_read_is_missing(case: Case) -> None:
    break_off(case.folders[1])
    case.write(0, 15, 35)
    case.tick()
    assert case.tick(1.0)["missing"] == ["south"]
    assert case.tick()["tentative"] == 2
    mend(case.folders[1])
    case.write(1, 15, 35)
    assert case.tick(1.1)["state"] == "STABLE"


def test_an_input_whose_blocks_cannot_be_read_is_missing_and_is_tried_again(case: Case) -> None:
    for number in (0, 1):
        case.write(number, 15, 35)
    blocks = case.folders[1] / case.inputs[1].commit(case.inputs[1].state.seq - 1).blocks[0].file.split("/")[0]
    break_off(blocks)
    reports = len(case.reports)
    case.tick()
    assert len(case.reports) == reports, "a task could not read it: nothing is published, and nobody stops"
    for _ in range(14):
        report = case.tick()
    assert (report["state"], report["missing"], report["tentative"]) == ("UP_FAILURE", ["south"], 2)
    mend(blocks)
    for _ in range(12):
        report = case.tick()
    assert (report["state"], report["tentative"]) == ("STABLE", 0)
    assert case.told().count("stable") == 3


def test_an_input_that_is_gone_from_its_place_is_missing_and_nothing_is_left_in_its_place(case: Case) -> None:
    move_away(case.folders[1])
    case.write(0, 15, 35)
    case.tick()
    case.tick(6.0)  # so long that the operator would say again what it needs
    report = case.tick()
    assert (report["missing"], report["tentative"]) == (["south"], 2)
    move_back(case.folders[1])
    case.write(1, 15, 35)
    assert case.tick(1.1)["state"] == "STABLE"
    assert case.told().count("stable") == 3


def test_an_input_that_is_gone_when_its_tuples_are_wanted_is_missing_and_comes_back(case: Case) -> None:
    for number in (0, 1):
        case.write(number, 15, 35)
    assert case.job.look() is not None
    move_away(case.folders[1])
    reports = len(case.reports)
    case.tick()
    assert len(case.reports) == reports, "a task did not find it: nothing is published, and nobody stops"
    for _ in range(24):
        report = case.tick()
    assert (report["state"], report["missing"], report["tentative"]) == ("UP_FAILURE", ["south"], 2)
    seq = case.job.output.state.seq
    for _ in range(24):
        case.tick()
    assert case.job.output.state.seq == seq, "nothing has happened, and it was published"
    move_back(case.folders[1])
    for _ in range(12):
        report = case.tick()
    assert (report["state"], report["tentative"]) == ("STABLE", 0)
    assert case.told().count("stable") == 3


@pytest.mark.parametrize("is_another_worker", [False, True])
def test_a_fork_goes_on_without_tuples_of_an_input_that_is_gone(case: Case, is_another_worker: bool) -> None:
    append_items(case.inputs[1], {0: [(1, t, t) for t in range(15, 25)]})  # complete up to 24, and one tuple more
    case.write(0, 15, 35)
    case.tick()
    move_away(case.folders[1])
    block_slice._known.clear()
    if is_another_worker:
        operator_task._OPENED.clear()
    for _ in range(14):
        report = case.tick()
    assert (report["state"], report["missing"], report["tentative"]) == ("UP_FAILURE", ["south"], 1)
    assert not any(fork.problem for fork in case.job.output.state.outage.forks)
    move_back(case.folders[1])
    case.write(1, 25, 35)
    for _ in range(12):
        report = case.tick()
    assert (report["state"], report["tentative"]) == ("STABLE", 0)


@pytest.mark.parametrize(("lose", "find"), [(break_off, mend), (move_away, move_back)])
@pytest.mark.parametrize("is_failing", [False, True])
def test_a_driver_starts_without_an_input_that_cannot_be_read_and_takes_it_in_when_it_can(
    case: Case, lose: Callable[[Path], None], find: Callable[[Path], None], is_failing: bool
) -> None:
    case.write(0, 15, 25)
    if is_failing:
        case.tick()
        assert case.tick(1.0)["state"] == "UP_FAILURE"
    lose(case.folders[1])
    case.job = case.started(Promise(BOUND_US))
    case.write(0, 25, 35)
    for _ in range(14):
        report = case.tick()
    assert (report["state"], report["missing"], report["tentative"]) == ("UP_FAILURE", ["south"], 2)
    assert report["waiting"] >= 0
    find(case.folders[1])
    case.write(1, 15, 35)
    for _ in range(12):
        report = case.tick()
    assert (report["state"], report["tentative"]) == ("STABLE", 0)
    assert case.told().count("stable") == 3


@pytest.mark.parametrize("is_another", [False, True])
def test_an_input_that_is_another_when_it_can_be_read_again_ends_the_query(case: Case, is_another: bool) -> None:
    """One that was put back to its beginning, or another stream altogether."""
    move_away(case.folders[1])
    case.job = case.started(Promise(BOUND_US))
    case.tick()
    spec = case.inputs[1].spec
    Log.create(LocalStorage(case.folders[1]), replace(spec, id="another") if is_another else spec)
    with pytest.raises(StreamMismatchError if is_another else InputWentBackError):
        case.tick(1.1)


def test_without_a_bound_an_input_that_is_gone_ends_the_query_and_nothing_is_left_out(case: Case) -> None:
    case.job = case.started(None)
    for number in (0, 1):
        case.write(number, 15, 35)
    case.job.inputs.refresh()
    move_away(case.folders[1])
    with pytest.raises(StorageError, match="not at this path any more"):
        case.job.catch_up(Writer("query", "run", 1), lambda: True, case.reports.append)
    assert case.told() == ["stable"]


def test_a_block_of_an_input_that_is_lost_for_itself_ends_the_query(case: Case) -> None:
    for number in (0, 1):
        case.write(number, 15, 35)
    block = case.inputs[1].commit(case.inputs[1].state.seq - 1).blocks[0]
    (case.folders[1] / block.file).unlink()
    with pytest.raises(CorruptBlockError, match="a published block is gone"):
        case.tick()


def test_a_stream_that_lies_below_an_input_is_not_taken_for_it(tmp_path: Path) -> None:
    names = ("a", "a/b", "a/b/results")
    logs = [Log.create(LocalStorage(tmp_path / name), item_spec(1, name=name)) for name in names]
    places = [Place(str(tmp_path / name)) for name in names]
    inputs = OperatorInputs(places[:2], inputs_over(logs[:2]), bears_failures=True)
    inputs.bear(StorageError("broken", stream=places[1].url))
    assert inputs.unreadable() == {1}
    with pytest.raises(StorageError, match="broken"):
        inputs.bear(StorageError("broken", stream=places[2].url))
    for where in (f"{places[1].url}/commits/1.json", str(tmp_path / "state"), ""):
        with pytest.raises(StorageError, match="broken"):
            inputs.bear(StorageError("broken", where=where))  # a text decides nothing
    assert inputs.unreadable() == {1}


def test_an_output_that_cannot_be_written_ends_the_query(case: Case, tmp_path: Path) -> None:
    for number in (0, 1):
        case.write(number, 15, 35)
    break_off(tmp_path / "results")
    with pytest.raises(StorageError):
        case.tick()


def test_a_driver_goes_on_where_another_one_has_died_in_the_middle_of_a_failure(case: Case) -> None:
    case.write(0, 15, 35)
    case.tick()
    case.tick(1.0)
    case.job = case.started(Promise(BOUND_US))
    standing = case.job.standing()
    assert (standing["state"], standing["missing"], standing["tentative"]) == ("UP_FAILURE", ["south"], 2)
    case.write(0, 35, 45)
    assert case.tick()["tentative"] == 3, "what the one before was waiting for counts as waited for"
    case.write(1, 15, 45)
    assert case.tick()["state"] == "STABLE"
    assert case.told().count("stable") == 4


def test_how_it_is_is_known_before_anything_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standing = Case(tmp_path, monkeypatch).job.standing()
    known = {name: standing[name] for name in ("state", "missing", "tentative", "input_tuples")}
    assert known == {"state": "STABLE", "missing": [], "tentative": 0, "input_tuples": 0}


def test_a_job_without_a_bound_first_undoes_what_is_tentative(case: Case) -> None:
    case.write(0, 15, 35)
    case.tick()
    case.tick(1.0)
    case.job = case.started(None)
    case.job.catch_up(Writer("query", "run", 1), lambda: True, case.reports.append)
    assert case.told()[-1] == "undo"
    case.write(1, 15, 35)
    case.job.catch_up(Writer("query", "run", 1), lambda: True, case.reports.append)
    assert case.told().count("stable") == 3


def test_a_job_without_a_bound_looks_into_its_inputs_only_after_they_have_commits(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[LogState] = []
    following = SerialisedUnion.next

    def counting(self: SerialisedUnion, output: LogState, tuples_max: int) -> Any:
        looks.append(output)
        return following(self, output, tuples_max)

    monkeypatch.setattr(SerialisedUnion, "next", counting)
    case.job = case.started(None)
    assert [case.job.look() for _ in range(3)] == [None] * 3
    assert len(looks) == 1
    case.write(0, 15, 25)
    assert [case.job.look() for _ in range(3)] == [None] * 3  # they wait for the other input
    assert len(looks) == 2
    case.write(1, 15, 25)
    assert case.job.look() is not None
    assert case.job.look() is not None, "a tick that was not run is found again"
    case.job.catch_up(Writer("query", "run", 1), lambda: True, case.reports.append, case.job.look())
    assert case.told() == ["stable", "stable"]
    assert case.job.look() is None


@pytest.mark.parametrize("reconcile", ["redo", "undo"])
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_fork_takes_the_object_of_a_class_and_the_stable_one_comes_back_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reconcile: Any, is_lost: bool
) -> None:
    def tick(seconds: float = 0.1) -> dict[str, Any]:
        if is_lost:  # the worker was killed
            LIVE._kept.clear()
        return case.tick(seconds)

    case = Case(tmp_path, monkeypatch, lambda *streams: sl.union(*streams).apply(Numbered()))
    case.job = case.started(Promise(BOUND_US, reconcile=reconcile))
    for number in range(2):
        case.write(number, 0, 15)
    assert tick()["results"] == 30
    case.write(0, 15, 20)
    tick()
    assert tick(1.0)["tentative"] == 5
    case.write(0, 20, 25)
    assert tick()["tentative"] == 10
    case.write(1, 15, 18)
    assert tick()["state"] == "STABILIZATION"
    case.write(1, 18, 25)
    report = tick()
    assert (report["state"], report["tentative"]) == ("STABLE", 0)
    story = list(zip(case.told(), case.shown("n"), case.shown("total"), strict=True))
    stable = [(n, total) for kind, n, total in story if kind == "stable"]
    assert [n for n, _ in stable] == list(range(1, 51)), "no object has seen a guess"
    calm, total = [], 0
    for n in range(1, 51):
        total += n * ((n - 1) // 2)
        calm.append(total)
    assert [total for _, total in stable] == calm
    guesses = [n for kind, n, _ in story if kind == "tentative"]
    assert guesses[:10] == list(range(31, 41)), "and the fork goes on from the object as it was"
