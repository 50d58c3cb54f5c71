"""Stages marked `.replicated()` in the copies of a program: which copy runs and writes what, and who reads it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import strandline as sl
from strandline.errors import OptionError, StorageError
from strandline.spark.pipeline.network import Network
from strandline.spark.session.copies import require_writer
from strandline.spark.session.place import Place
from strandline.supervision import COPY_VARIABLE, this_copy
from tests.support.replicated_case import Replicated, catch_up, total

ITEMS = "id long, at timestamp, price double"


@pytest.fixture
def copy(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda text: monkeypatch.setenv(COPY_VARIABLE, text)


def counted(input_: Any) -> Any:
    return input_.window(sl.time_window("1 min")).aggregate(n=sl.count_all(), price=sl.max("id"))


def stages(folder: Path) -> tuple[sl.Stage, sl.Stage, sl.Stage]:
    """A stage, one with replicas over it, and one over that."""
    feed = sl.testing.stream(ITEMS, key="id", time="at", lateness="5 s")
    first = counted(feed).into(str(folder / "first"))
    twice = counted(first).into(str(folder / "twice")).replicated()
    return first, twice, counted(twice).into(str(folder / "last"))


def names(urls: Any) -> list[str]:
    return [url.rpartition("/")[2] for url in urls]


@pytest.mark.parametrize("text", ["", "1/1"])
def test_without_copies_a_stage_stays_as_it_is(tmp_path: Path, copy: Any, text: str) -> None:
    copy(text)
    stage = stages(tmp_path)[0]
    assert stage.replicated() is stage


@pytest.mark.parametrize("number", [1, 2, 3])
def test_each_copy_writes_a_stream_of_its_own_and_reads_all(tmp_path: Path, copy: Any, number: int) -> None:
    copy(f"{number}/3")
    _, twice, last = stages(tmp_path)
    assert names(Network.of([twice]).elements) == ["first", f"twice-{number}"]
    assert names(Network.of([last]).reads[str(tmp_path / "last")]) == ["twice-1", "twice-2", "twice-3"]
    assert twice.replicated() is twice


def test_the_first_copy_runs_all_and_the_others_what_is_marked(tmp_path: Path, copy: Any) -> None:
    for number, runs in [(1, ["first", "twice-1", "last"]), (2, ["twice-2"])]:
        copy(f"{number}/2")
        network = Network.of([stages(tmp_path)[2]]).of_copy(this_copy())
        assert names(network.elements) == runs
        assert network.written_for(str(tmp_path / "twice")) == str(tmp_path / f"twice-{number}")
        assert network.written_for(str(tmp_path / "first")) == str(tmp_path / "first")
    assert names(network.others) == names(network.awaited) == ["first"]


def test_no_copy_waits_for_the_end_of_a_replica_of_its_own_output(tmp_path: Path, copy: Any) -> None:
    copy("1/2")
    network = Network.of([stages(tmp_path)[2]])
    assert "twice-2" in names(network.others)
    assert "twice-2" not in names(network.awaited)


def test_a_copy_without_anything_to_run_says_so(tmp_path: Path, copy: Any) -> None:
    copy("2/2")
    with pytest.raises(OptionError, match="copy 2 of 2 of the program, and no element of the pipeline has replicas"):
        Network.of([stages(tmp_path)[0]]).of_copy(this_copy())


def test_the_share_of_a_bound_is_the_same_in_all_copies(tmp_path: Path, copy: Any) -> None:
    for number in (1, 2):
        copy(f"{number}/2")
        flow = sl.pipeline(stages(tmp_path)[2]).availability(within="9 s")
        promise = flow._bounded[str(tmp_path / f"twice-{number}")].promise
        assert promise is not None
        assert promise.bound_us == 3_000_000


def test_only_the_first_copy_may_write_what_is_not_marked(tmp_path: Path, copy: Any) -> None:
    spark: Any = None
    copy("2/2")
    with pytest.raises(OptionError, match="this is copy 2 of 2 of the program, and only copy 1 writes this stream"):
        stages(tmp_path)[0].start(spark)
    copy("1/2")
    require_writer(Place(str(tmp_path / "first")))


def test_an_operator_that_loses_tuples_can_have_no_replicas(tmp_path: Path) -> None:
    feed = sl.testing.stream(ITEMS, key="id", time="at", lateness="5 s")
    lossy = counted(feed).checkpoint(sl.none()).into(str(tmp_path / "lossy"))
    with pytest.raises(OptionError, match="results of the copies would"):
        lossy.replicated()


@pytest.mark.parametrize("text", ["0/2", "3/2", "two", "1/", "/2"])
def test_a_number_that_is_none_of_a_copy_is_refused(copy: Any, text: str) -> None:
    copy(text)
    with pytest.raises(OptionError, match="is not of the form 1/2"):
        this_copy()


# ---------------------------------------------------------------------- at work


def twice_in(made: Replicated, copy: Any, number: int) -> Any:
    copy(f"{number}/2")
    return total(sl.stream(str(made.folder / "input"))).into(str(made.folder / "twice")).replicated()


def take_in(made: Replicated, stage: Any) -> None:
    catch_up(made.job_of(stage))


def test_what_reads_a_replicated_stage_goes_on_with_the_replica_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: Any
) -> None:
    made = Replicated(tmp_path, monkeypatch)
    made.write(0, 20)
    other = twice_in(made, copy, 2)
    own = twice_in(made, copy, 1)
    last = total(own).into(str(tmp_path / "last"))
    with pytest.raises(StorageError, match="none of the 2 replicas can be read"):
        made.job_of(last)
    take_in(made, own)
    take_in(made, last)  # the other copy has not begun
    take_in(made, other)
    shutil.rmtree(tmp_path / "twice-1")
    made.write(20, 40)
    take_in(made, other)
    take_in(made, total(twice_in(made, copy, 1)).into(str(tmp_path / "last")))
    calm = total(sl.stream(str(tmp_path / "twice-2"))).into(str(tmp_path / "calm"))
    take_in(made, calm)
    assert made.results("last") == made.results("calm")
    assert len(made.results("last")) == 2 * 40


def test_replicas_over_replicas_are_replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: Any) -> None:
    made = Replicated(tmp_path, monkeypatch)
    made.write(0, 20)
    for number in (1, 2):
        first = twice_in(made, copy, number)
        take_in(made, first)
        take_in(made, total(first).into(str(tmp_path / "behind")).replicated())
    both = sl.replicas(str(tmp_path / "behind-1"), str(tmp_path / "behind-2"))
    assert both.to_arrow().num_rows == 2 * 20
