"""An operator over replicas with a bound, its driver's side and its tasks, without a JVM."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.clock import ManualClock
from strandline.errors import CorruptionError, StorageError
from strandline.inputs.replicas.replica_input import Replicated as ReplicatedInput
from strandline.log.reading.tentative_results import changes
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.spark.operator import operator_inputs, operator_job
from tests.support.available_case import break_off, hung, mend
from tests.support.replicated_case import Replicated, catch_up, total

BOUND_S = 1.0


class Bounded(Replicated):
    """Two replicas and a stream beside them, in a union with a bound, and a clock that stands still."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self.clock = ManualClock(1_000_000)
        for module in (operator_inputs, operator_job):
            monkeypatch.setattr(module, "SYSTEM_CLOCK", self.clock)
        self.write(0, 20)
        for name in ("one", "other"):
            self.replica(name)

    def over(self, first: Any) -> Any:
        return total(sl.union(first, sl.stream(str(self.folder / "beside"))))

    def started(self, over: Callable[[Any], Any] | None = None) -> Any:
        return self.job((over or self.over)(self.replicas()).availability("1 s"), "behind")

    def tick(self, job: Any, seconds: float = 0.1) -> dict[str, Any]:
        self.clock.advance(seconds)
        time.sleep(0.03)  # so long a replica that stands still is believed
        if (found := job.look()) is not None:
            catch_up(job, found)
        return dict(job.standing())

    def told(self, name: str = "behind") -> set[str]:
        log = Log.open(LocalStorage(self.folder / name))
        return {kind for p in range(2) for table in changes(log, p) for kind in table.column("_kind").to_pylist()}

    def check(self, over: Callable[[Any], Any] | None = None) -> None:
        """Results are those of the same operator over one replica."""
        catch_up(self.job((over or self.over)(sl.stream(str(self.folder / "other"))), "calm"))
        assert self.results("behind") == self.results("calm") != []


@pytest.fixture
def bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bounded:
    return Bounded(tmp_path, monkeypatch)


def test_one_replica_that_is_lost_is_no_failure(bounded: Bounded) -> None:
    job = bounded.started()
    assert job._promise is not None
    bounded.tick(job)
    shutil.rmtree(job.inputs.places[0].url)
    bounded.write(20, 40)
    (left,) = (name for name in ("one", "other") if (bounded.folder / name).exists())
    bounded.replica(left)
    standing = bounded.tick(job)
    assert (standing["state"], standing["missing"], standing["waiting"]) == ("STABLE", [], 0)
    bounded.tick(job, 2 * BOUND_S)
    assert bounded.told() == {"stable"}
    catch_up(bounded.job(bounded.over(sl.stream(str(bounded.folder / left))), "calm"))
    assert bounded.results("behind") == bounded.results("calm")


def test_replicas_of_which_none_can_be_read_are_one_missing_input(bounded: Bounded) -> None:
    job = bounded.started()
    bounded.tick(job)
    for name in ("one", "other"):
        break_off(bounded.folder / name)
    bounded.write(20, 40, bounded.beside)
    assert bounded.tick(job)["state"] == "STABLE"
    standing = bounded.tick(job, BOUND_S)
    assert standing["state"] == "UP_FAILURE"
    assert standing["missing"] == [job.inputs.names[0]] != ["beside"]
    assert standing["tentative"] == 2 * 20
    assert job.lags["waits_for"].startswith("none of the 2 replicas can be read")
    for name in ("one", "other"):
        mend(bounded.folder / name)
    bounded.write(20, 40, bounded.input)
    bounded.replica("other")
    bounded.tick(job, BOUND_S)  # with the one that was read before, until it is known to be behind
    assert bounded.tick(job)["state"] == "STABLE"
    assert bounded.told() == {"stable", "tentative", "undo", "rec_done"}
    bounded.check()


def test_who_has_worked_starts_without_a_replica_that_has_what_was_taken_in(bounded: Bounded) -> None:
    def over(first: Any) -> Any:  # its state lies on the machine, where the next process finds it
        beside = sl.stream(str(bounded.folder / "beside"))
        return sl.union(first, beside).window(sl.time_window(10)).aggregate(n=sl.count_all())

    bounded.write(20, 40)
    bounded.replica("one")
    job = bounded.started(over)
    bounded.tick(job)
    assert job.inputs.places[0].url.endswith("/one")
    break_off(bounded.folder / "one")  # the other has less than was taken in
    bounded.write(40, 60, bounded.beside)
    with pytest.raises(StorageError, match="none of the 2 replicas can be read"):
        bounded.job(over(bounded.replicas()), "behind")  # without a bound
    again = bounded.started(over)
    bounded.tick(again)
    standing = bounded.tick(again, BOUND_S)
    assert (standing["state"], standing["tentative"]) == ("UP_FAILURE", 2 * 2)
    bounded.write(40, 60, bounded.input)
    bounded.replica("other")
    assert bounded.tick(again)["state"] == "STABLE"
    bounded.check(over)


def test_a_replica_that_rots_in_the_middle_of_a_tick_is_left_for_another(
    bounded: Bounded, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = bounded.started()
    first, blocks = Path(job.inputs.places[0].url), ReplicatedInput.blocks

    def rotten(input_: Any, slice_: Any, partition: int) -> Any:
        for block in (first / "blocks").rglob("*.parquet"):
            block.write_bytes(b"rotten")
        return blocks(input_, slice_, partition)

    monkeypatch.setattr(ReplicatedInput, "blocks", rotten)
    assert bounded.tick(job)["state"] == "STABLE"
    assert job.inputs.places[0].url != str(first)
    catch_up(bounded.job(bounded.over(sl.stream(job.inputs.places[0].url)), "calm"))
    assert bounded.results("behind") == bounded.results("calm") != []


def test_a_stream_beside_them_that_rots_ends_the_query(bounded: Bounded) -> None:
    job = bounded.started()
    for block in (bounded.folder / "beside" / "blocks").rglob("*.parquet"):
        block.write_bytes(b"rotten")
    with pytest.raises(CorruptionError, match="beside"):
        bounded.tick(job)


def test_an_operator_over_replicas_alone_may_have_a_bound(bounded: Bounded) -> None:
    job = bounded.job(total(bounded.replicas()).availability("1 s"), "behind")
    bounded.tick(job)
    for name in ("one", "other"):
        break_off(bounded.folder / name)
    assert bounded.tick(job, 3 * BOUND_S)["state"] == "STABLE"  # nothing waits
    for name in ("one", "other"):
        mend(bounded.folder / name)
    bounded.write(20, 40)
    bounded.replica("one")
    assert bounded.tick(job)["waiting"] == 0
    assert len(bounded.results("behind")) == 2 * 40


def test_a_replica_whose_store_does_not_answer_is_left_for_another_in_time(bounded: Bounded) -> None:
    job = bounded.started()
    bounded.tick(job)
    first = Path(job.inputs.places[0].url)
    (left,) = {"one", "other"} - {first.name}
    bounded.write(20, 40)
    bounded.replica(left)
    with hung(first / "commits" / f"{job.inputs.logs[0].state.seq + 1:020}.json"):
        standing = bounded.tick(job)
    assert job.inputs.places[0].url.endswith(left)
    assert (standing["state"], standing["missing"], standing["waiting"]) == ("STABLE", [], 0)
    assert bounded.told() == {"stable"}
