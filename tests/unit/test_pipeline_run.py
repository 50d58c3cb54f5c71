"""The run of a pipeline without Spark: which elements begin, stop and finish when one of them fails."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import strandline as sl
from strandline.errors import OptionError, SchemaError, StorageError
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.running.promise import Promise
from strandline.spark.entry.entry import Entry
from strandline.spark.pipeline.network import Network
from strandline.spark.pipeline.pipeline_run import PipelineRun
from strandline.spark.query.query import Query
from strandline.spark.query.restart import Restart
from strandline.spark.query.restarting_run import started
from strandline.spark.session.place import Place
from tests.support.element_tries import Element, OneTry
from tests.support.items import item_spec
from tests.support.machine import patience
from tests.unit.test_network import counted, feed, names, stages


@pytest.fixture(autouse=True)
def told() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield found


class Tries:
    """The elements of a pipeline, by name: each is at work until the test ends it, or ends at once."""

    def __init__(self, made: Mapping[str, sl.Stage], *, end_at_once: bool = False) -> None:
        self.network = Network.of(list(made.values()))
        self.at_work: dict[str, OneTry] = {}
        self.refusals: dict[str, Exception] = {}
        self._end_at_once = end_at_once

    def begin(self, url: str) -> Query:
        (name,) = names([url])
        problem = self.refusals.pop(f"start {name}", None)
        if problem is not None:
            raise problem
        one = self.at_work[name] = OneTry(0)
        if self._end_at_once:
            one.end(self.refusals.pop(name, None))
        return Query(one)

    def run(self, *, one_by_one: bool = False) -> PipelineRun:
        run = PipelineRun(self.network, self.begin, frozenset())
        run.start(one_by_one=one_by_one)
        return run


def source(name: str) -> Entry:
    return Entry(None, Place(f"memory://pipeline-run/{name}"), feed()._input_spec)  # type: ignore[arg-type]


def failed(run: PipelineRun) -> list[str]:
    return names(run.progress["failed"])


def test_an_element_that_cannot_begin_is_named_and_those_that_do_not_need_it_run(tmp_path: Path) -> None:
    case = Tries(stages(tmp_path, {"a": [], "b": ["a"], "c": [], "d": ["c"]}), end_at_once=True)
    case.refusals["start a"] = SchemaError("cannot begin")
    run = case.run(one_by_one=True)
    with pytest.raises(SchemaError):
        run.await_termination(patience(30))
    run._wait_for_the_end(patience(30))
    assert failed(run) == ["a"]
    assert sorted(case.at_work) == ["c", "d"]


def test_an_element_that_fails_keeps_only_those_behind_it_from_beginning(
    tmp_path: Path, told: list[warnings.WarningMessage]
) -> None:
    case = Tries(stages(tmp_path, {"a": [], "b": ["a"], "c": []}), end_at_once=True)
    case.refusals["a"] = SchemaError("wrong")
    run = case.run(one_by_one=True)
    run._wait_for_the_end(patience(30))
    assert failed(run) == ["a"]
    assert sorted(case.at_work) == ["a", "c"]
    assert "cannot begin: wrong" in str(told[0].message)


def test_an_element_that_cannot_be_stopped_is_not_taken_for_the_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Tries(stages(tmp_path, {"a": [], "b": ["a"], "c": []}))
    run = case.run()

    def cannot_stop(_: float | None) -> None:
        raise RuntimeError("no answer of the JVM")

    monkeypatch.setattr(case.at_work["b"], "stop", cannot_stop)
    case.at_work["a"].end(SchemaError("wrong"))
    with pytest.raises(SchemaError):
        run.await_termination(patience(30))
    assert failed(run) == ["a"]
    case.at_work["c"].end(StorageError("gone"))  # the others are still looked after
    case.at_work["b"].end()
    run._wait_for_the_end(patience(30))
    assert failed(run) == ["a", "c"]


def test_a_pipeline_of_which_an_element_has_ended_is_not_finished_in_part() -> None:
    case = Tries({"ten": counted(source("one")).into("memory://pipeline-run/ten")})
    run = case.run()
    run.stop()
    with pytest.raises(OptionError, match=r"is not at work[^§]*start the pipeline again"):
        run.finish()
    assert not any(one.has_finished for one in case.at_work.values())


def test_a_pipeline_of_which_a_source_is_down_is_not_finished_in_part(told: list[warnings.WarningMessage]) -> None:
    sources = {name: Element() for name in ("left", "right")}
    both = counted(sl.union(*map(source, sources))).into("memory://pipeline-run/both")

    def begin(url: str) -> Query:
        (name,) = names([url])
        if name in sources:
            return started(Place(url), sources[name].begin, Restart(3600.0, bears_all=True))
        return Query(OneTry(0))

    run = PipelineRun(Network.of([both]), begin, frozenset({"memory://pipeline-run/both"}))
    run.start(one_by_one=False)
    sources["right"].tries[0].end(StorageError("no such disk"))
    _until(lambda: bool(told))
    assert "1 down" in repr(run)
    with pytest.raises(OptionError, match="waits for its next try"):
        run.finish()
    assert not sources["left"].tries[0].has_finished
    run.stop()


def test_a_pipeline_over_a_stream_that_others_have_not_finished_is_not_finished(tmp_path: Path) -> None:
    Log.create(LocalStorage(tmp_path / "items"), item_spec())
    over = sl.stream(str(tmp_path / "items")).window(sl.count_window(3)).aggregate(n=sl.count_all())
    network = Network.of([over.into(str(tmp_path / "foreign"))])
    with pytest.raises(OptionError, match=r"reads a stream of another program"):
        network.require_finished_by_others()


def test_a_finished_source_is_only_read(tmp_path: Path) -> None:
    one = source("done")
    network = Network.of([counted(one).into(str(tmp_path / "ten"))])
    left = network.without({one._input_place.url})
    assert names(left.elements) == ["ten"]
    assert names(left.others) == ["done"]
    run = PipelineRun(left, lambda _: Query(OneTry(0)), frozenset())
    with pytest.raises(OptionError, match=r"stream is finished[^§]*pipeline-run/done"):
        run[one._input_place.url]
    with pytest.raises(OptionError, match=r"no element of this pipeline[^§]*ten"):
        run["elsewhere"]


@pytest.mark.parametrize("inner", ["x/y", "x/blocks/p00000"])
def test_an_output_inside_of_another_ones_folder_is_refused(tmp_path: Path, inner: str) -> None:
    outer, other = counted(feed()).into(str(tmp_path / "x")), counted(feed()).into(str(tmp_path / inner))
    for elements in ((outer, other), (other, outer)):
        with pytest.raises(OptionError, match="folder of another one's stream"):
            sl.pipeline(*elements)
    sl.pipeline(outer, counted(feed()).into(str(tmp_path / "xy")))


def test_a_list_of_elements_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="a list of 1") as caught:
        sl.pipeline([counted(feed()).into(str(tmp_path / "x"))])
    assert len(caught.value.what) < 80


def test_a_share_of_a_bound_is_refused_with_the_bound_that_is_long_enough() -> None:
    with pytest.raises(OptionError, match=r"2 operators in a row share .* of 3 s [^§]*a bound of 20 s"):
        Promise.of("3 s").require_longer_than(5.0, "streams/a", 2)


def _until(holds: Callable[[], bool]) -> None:
    for _ in range(round(patience(30) / 0.01)):
        if holds():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never happened")
