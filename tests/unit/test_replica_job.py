"""An operator over replicas, its driver's side and its tasks, without a JVM: tasks are called, not sent."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.errors import OptionError, StorageError, StreamMismatchError
from strandline.inputs.replicas.replica_input import Replicated as ReplicatedInput
from strandline.log.operator_state.upstream import origins_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.upkeep import consumer_registry
from strandline.running.state.live_operators import LIVE
from strandline.running.state.state_folders import default_folder
from tests.support.available_case import break_off
from tests.support.replicated_case import Replicated, Running, catch_up, total


@pytest.fixture
def replicated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replicated:
    made = Replicated(tmp_path, monkeypatch)
    made.write(0, 20)
    for name in ("one", "other"):
        made.replica(name)
    return made


def lost_for_good(made: Replicated) -> None:
    shutil.rmtree(made.folder / "one")


def out_of_reach(made: Replicated) -> None:
    break_off(made.folder / "one")


@pytest.mark.parametrize("lose", [lost_for_good, out_of_reach])
def test_an_operator_over_replicas_alone_goes_on_with_the_other(
    replicated: Replicated, lose: Callable[[Replicated], None]
) -> None:
    job = replicated.job(total(replicated.replicas()), "behind")
    assert catch_up(job)
    assert consumers(replicated, "one") == consumers(replicated, "other") != []
    lose(replicated)
    replicated.write(20, 40)
    replicated.replica("other")
    time.sleep(0.03)  # so long one that stands still is believed
    job.inputs.refresh()
    assert job.inputs.places[0].url.endswith("/other")
    assert job.look() is not None
    assert catch_up(job)
    assert job.look() is None
    again = replicated.job(total(replicated.replicas()), "behind")  # as another program
    replicated.write(40, 60)
    replicated.replica("other")
    catch_up(again)
    calm = replicated.job(total(sl.stream(str(replicated.folder / "other"))), "calm")
    catch_up(calm)
    assert replicated.results("behind") == replicated.results("calm")
    assert len(replicated.results("behind")) == 2 * 60


def consumers(made: Replicated, name: str) -> list[str]:
    return [c.name for c in consumer_registry.consumers(Log.open(LocalStorage(made.folder / name)))]


@pytest.mark.parametrize("lose", [break_off, shutil.rmtree, lambda path: shutil.rmtree(path / "blocks")])
def test_a_replica_that_is_lost_in_the_middle_of_a_step_is_left_for_another(
    replicated: Replicated, monkeypatch: pytest.MonkeyPatch, lose: Callable[[Path], None]
) -> None:
    job = replicated.job(total(replicated.replicas()), "behind")
    first = Path(job.inputs.logs[0].storage.url)
    steps, blocks = [], ReplicatedInput.blocks

    def lost_now(input_: Any, slice_: Any, partition: int) -> Any:
        found = blocks(input_, slice_, partition)
        if not steps:
            lose(first)  # the driver has seen its blocks, no task has
        steps.append(slice_)
        return found

    monkeypatch.setattr(ReplicatedInput, "blocks", lost_now)
    assert catch_up(job)
    assert len(steps) == 4
    assert job.inputs.places[0].url != str(first)
    catch_up(replicated.job(total(sl.stream(job.inputs.places[0].url)), "calm"))
    assert replicated.results("behind") == replicated.results("calm") != []


def test_a_stream_that_has_begun_anew_in_the_middle_of_a_recovery_is_left_for_another(
    replicated: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = replicated.job(total(replicated.replicas()).checkpoint(sl.instant("1 h")), "behind")
    for first_time in (20, 40):
        assert catch_up(before)
        replicated.write(first_time, first_time + 20)
        for name in ("one", "other"):
            replicated.replica(name)
    assert all(s.replay for s in before.output.state.standings)
    job = replicated.job(total(replicated.replicas()).checkpoint(sl.instant("1 h")), "behind")
    first, blocks = Path(job.inputs.logs[0].storage.url), ReplicatedInput.blocks

    def begun_anew(input_: Any, slice_: Any, partition: int) -> Any:
        found = blocks(input_, slice_, partition)
        if job.inputs.places[0].url == str(first) and partition == 1:
            shutil.rmtree(first)
            replicated.job(sl.stream(str(replicated.folder / "input")).apply(Running()), first.name)
        return found

    for partition in range(2):  # what the first job has left in this process
        LIVE.drop(str(default_folder(job.output.spec.id, partition)))
    monkeypatch.setattr(ReplicatedInput, "blocks", begun_anew)
    assert catch_up(job)[-1]["recovered"]
    assert job.inputs.places[0].url != str(first)
    replicated.replica(first.name)
    catch_up(replicated.job(total(sl.stream(str(first))), "calm"))
    assert replicated.results("behind") == replicated.results("calm")


def test_an_operator_waits_while_no_replica_has_what_it_has_taken_in(replicated: Replicated) -> None:
    replicated.write(20, 40)
    replicated.replica("one")
    job = replicated.job(total(replicated.replicas()), "behind")
    assert job.inputs.places[0].url.endswith("/one")
    assert catch_up(job)
    break_off(replicated.folder / "one")
    job.inputs.refresh()
    assert job.inputs.absent  # the other has less
    assert job.look() is None
    assert catch_up(job) == []
    assert job.lags["waits_for"].startswith("none of the 2 replicas can be read: replica 1: ")
    with pytest.raises(StorageError, match="none of the 2 replicas can be read"):
        replicated.job(total(replicated.replicas()), "behind")
    replicated.replica("other")
    job.inputs.refresh()
    assert not job.inputs.absent
    assert job.inputs.input.waiting(job.output.state.standings) == 0
    assert job.lags == {}


@pytest.mark.long
def test_replicas_stand_beside_streams_in_unions_and_joins(replicated: Replicated) -> None:
    beside = sl.stream(str(replicated.folder / "beside"))
    joined = replicated.replicas().join(beside, within=3)
    job = replicated.job(joined, "behind")
    catch_up(job)
    group, other = origins_of(job.output.spec.upstream)
    assert [path.rpartition("/")[2] for path in group.replicas] == ["one", "other"]
    assert other.replicas == ()
    assert job.output.spec.format == 5
    (mark, plain) = job.output.state.standings[0].marks.inputs
    assert mark.replica is not None
    assert plain.replica is None
    calm = replicated.job(sl.stream(str(replicated.folder / "one")).join(beside, within=3), "calm")
    catch_up(calm)
    assert replicated.results("behind") == replicated.results("calm") != []


def test_an_output_is_good_for_these_replicas_only(replicated: Replicated) -> None:
    catch_up(replicated.job(total(replicated.replicas()), "behind"))
    with pytest.raises(StreamMismatchError, match="its input is"):
        replicated.job(total(sl.stream(str(replicated.folder / "one"))), "behind")
    with pytest.raises(OptionError, match="into the stream that it reads"):
        replicated.job(total(replicated.replicas()), "other")


def test_what_cannot_be_is_refused(replicated: Replicated) -> None:
    found = replicated.replicas()
    with pytest.raises(OptionError, match="are the same stream"):
        sl.union(found, replicated.replicas())
    for name in ("few", "others"):
        over = sl.stream(str(replicated.folder / "input")).window(sl.count_window(2)).aggregate(n=sl.count_all())
        replicated.job(over, name)
    counted = sl.replicas(str(replicated.folder / "few"), str(replicated.folder / "others"))
    with pytest.raises(OptionError, match="holds results of count windows"):
        total(counted)
