"""Operators that share an entry point's query, without Spark: who may end it, and who hears of an end."""

import contextlib
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.errors import OptionError, SparkSilentError, StrandlineWarning
from strandline.log.stream import manifest
from strandline.spark.entry.entry import Entry
from strandline.spark.entry.entry_handle import EntryHandle
from strandline.spark.entry.entry_run import EntryRun
from strandline.spark.operator.processing_element import QueryOptions
from strandline.spark.query.fused_run import FusedRun
from strandline.spark.query.life import Life, LifeState
from strandline.spark.query.query import Query
from tests.support.machine import patience


class SparkQuery:
    """As much of Spark's query as an entry point needs."""

    id, runId, name = "query", "run", None

    def __init__(self) -> None:
        self._ended = threading.Event()

    @property
    def isActive(self) -> bool:
        return not self._ended.is_set()

    def stop(self) -> None:
        self._ended.set()

    def awaitTermination(self, timeout: float | None = None) -> bool:
        return self._ended.wait(timeout)

    def exception(self) -> None:
        return None


class Writer:
    """Writes nothing, and notes whether the stream was finished."""

    place = SimpleNamespace(url="in")
    stream, heartbeat_s, last_writer = "in", None, None

    def __init__(self) -> None:
        self.is_finished = self.is_closed = False
        self.takes_s = 0.0

    def begin(self, query: SparkQuery) -> None:
        pass

    def finish(self) -> None:
        time.sleep(self.takes_s)
        self.is_finished = True

    def close(self) -> None:
        self.is_closed = True


class Operator:
    """Has nothing to do, and fails when told to."""

    when_failed: Callable[[], None]
    is_busy = is_at_risk = False

    def __init__(self, url: str) -> None:
        self.place = SimpleNamespace(url=url)
        self.life = Life()
        self.is_closed = False

    def fail(self) -> None:
        self.life.fail(ValueError("a tuple that it cannot take in"))
        self.when_failed()

    def begin(self) -> None:
        pass

    def hand_over(self, writer: object) -> None:
        pass

    def rest(self, timeout_s: float | None) -> bool:
        return True

    def stop(self, patience_s: float | None) -> None:
        self.is_closed = True

    def abandon(self, problem: object) -> None:
        self.is_closed = True


def begun(query: Any, *operators: Any, trigger: str | None = None, final: bool = False) -> EntryRun:
    run = EntryRun(Writer(), QueryOptions(trigger, final=final))  # type: ignore[arg-type]
    run.operators.extend(operators)
    run.begin(query, lambda: query, lambda: False)
    return run


@pytest.fixture
def run() -> EntryRun:
    return begun(SparkQuery())


def joined(run: EntryRun, operator: Any) -> Query:
    handle = run.join(EntryHandle(run, operator))
    assert handle is not None
    return Query(handle)


def test_a_handle_that_was_stopped_finishes_the_stream_for_the_others(run: EntryRun) -> None:
    stays, goes = joined(run, Operator("a")), joined(run, Operator("b"))
    goes.stop()
    assert stays.is_active
    goes.finish()
    assert run.writer.is_finished  # type: ignore[attr-defined]
    assert not run.spark_query.isActive
    assert stays.await_termination(patience(5))


def test_a_handle_whose_operator_has_failed_finishes_nothing_and_stops_nobody(run: EntryRun) -> None:
    stays, poisoned = joined(run, Operator("a")), Operator("b")
    failed = joined(run, poisoned)
    poisoned.fail()
    with pytest.raises(ValueError, match="cannot take in"):
        failed.finish()
    assert stays.is_active
    assert run.life.state is LifeState.RUNNING
    stays.stop()


def test_an_operator_that_fails_while_the_stream_is_being_finished_leaves_no_query_that_waits(run: EntryRun) -> None:
    stays, poisoned = joined(run, Operator("a")), Operator("b")
    failing = joined(run, poisoned)
    stop = run.stop

    def stop_and_fail(patience_s: float | None) -> bool:
        poisoned.fail()
        return stop(patience_s)

    run.stop = stop_and_fail  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="cannot take in"):
        failing.finish()
    assert not run.writer.is_finished  # type: ignore[attr-defined]
    assert not run.spark_query.isActive
    assert stays.await_termination(patience(5))


class EndingQuery(SparkQuery):
    """As Spark's: whoever waits for so long at most hears of an end, or of what caused it, before it is complete."""

    def __init__(self, cause: Exception | None) -> None:
        super().__init__()
        self._cause = cause
        self._is_let_go = threading.Event()

    def let_go(self) -> None:
        self._is_let_go.set()

    def awaitTermination(self, timeout: float | None = None) -> bool:
        if not self._is_let_go.wait(timeout):
            return False
        if self._cause is not None:
            raise self._cause
        return not self.isActive


@pytest.mark.parametrize("cause", [None, ValueError("the source is gone")])
def test_a_query_has_ended_when_sparks_manager_has_let_go_of_it(cause: Exception | None) -> None:
    query = EndingQuery(cause)
    run = begun(query)
    handle = joined(run, Operator("a"))
    query.stop()
    assert not handle.await_termination(0.5)
    query.let_go()
    if cause is None:
        assert handle.await_termination(patience(5))
    else:
        with pytest.raises(ValueError, match="source is gone"):
            handle.await_termination(patience(5))


# ---------------------------------------------------------------------- one that joins while the query ends


class Start:
    """What an operator asks for."""

    place = SimpleNamespace(url="b")

    def __init__(self, trigger: str | None = None, *, final: bool = False, spark_checkpoint_dir: str | None = None):
        self.query = QueryOptions(trigger, spark_checkpoint_dir=spark_checkpoint_dir, final=final)


@pytest.fixture
def entry(run: EntryRun, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An entry point that `run` is the last run of; `entry.begun` has the triggers of those that it starts."""
    entry = Entry.__new__(Entry)
    made: Any = entry
    made._starting, made._run, made.begun = threading.Lock(), run, []
    made.operator = Operator("b")

    def begin(spark: Any, start: Start, options: QueryOptions, blocks: str | None) -> EntryRun:
        assert not run.spark_query.isActive
        assert run.life.has_ended
        made.begun.append(options.trigger)
        return begun(SparkQuery(), Operator("b"), trigger=options.trigger, final=options.final)

    monkeypatch.setattr("strandline.spark.entry.entry.require_workers", lambda session: None)
    made._df = SimpleNamespace(sparkSession=None)
    made._require_fit = lambda start: None
    made._following = lambda start: made.operator
    made._start = begin
    return made


def test_an_operator_joins_a_query_that_runs(entry: Any, run: EntryRun) -> None:
    with joined(run, Operator("a")), entry.start_with(None, Start()) as second:
        assert second.is_active
        assert entry.begun == []


def test_an_operator_whose_query_ends_while_it_joins_gets_one_of_its_own(entry: Any, run: EntryRun) -> None:
    first = Operator("a")
    joined(run, first)

    def slow(start: Start) -> Operator:
        first.fail()
        return entry.operator  # type: ignore[no-any-return]

    entry._following = slow
    with entry.start_with(None, Start()) as second:
        assert second.is_active
        assert entry.begun == [None]
        assert entry.operator.is_closed
    assert entry.operator not in run.operators


def test_an_operator_does_not_join_a_stream_that_is_being_finished(entry: Any, run: EntryRun) -> None:
    first = joined(run, Operator("a"))
    stop = run.stop

    def stop_and_join(patience_s: float | None) -> bool:
        assert run.join(EntryHandle(run, entry.operator)) is None
        return stop(patience_s)

    run.stop = stop_and_join  # type: ignore[method-assign]
    first.finish()


def test_an_operator_waits_until_the_last_run_has_finished_the_stream(entry: Any, run: EntryRun) -> None:
    finishing = joined(run, Operator("a"))
    run.writer.takes_s = 0.5  # type: ignore[attr-defined]
    thread = threading.Thread(target=finishing.finish)
    thread.start()
    while run.is_open:
        time.sleep(0.01)
    entry.start_with(None, Start()).stop()
    assert run.writer.is_finished  # type: ignore[attr-defined]
    thread.join()
    assert entry.begun == [None]


@pytest.mark.parametrize("is_heard", [False, True])
def test_without_a_trigger_it_does_what_the_query_did_that_it_might_have_joined(
    entry: Any, run: EntryRun, is_heard: bool
) -> None:
    run.options = QueryOptions("available-now")
    first = joined(run, Operator("a"))
    run.spark_query.stop()
    if is_heard:  # then what starts now is something new
        first.await_termination(patience(5))
    entry.start_with(None, Start()).stop()
    assert entry.begun == [None if is_heard else "available-now"]


def test_one_that_joins_cannot_choose_where_sparks_checkpoint_is(entry: Any, run: EntryRun) -> None:
    with joined(run, Operator("a")), pytest.raises(OptionError, match="spark_checkpoint_dir='elsewhere'"):
        entry.start_with(None, Start(spark_checkpoint_dir="elsewhere"))


# ---------------------------------------------------------------------- a failure is heard


class Job:
    """Takes in what it may, or cannot take in anything."""

    running: dict[str, Any] = {}  # noqa: RUF012
    output = SimpleNamespace(spec=SimpleNamespace(id="b"))

    def __init__(self) -> None:
        self.problem: Exception | None = None
        self.is_tidy = self.is_cancelled = False
        self.may_end = threading.Event()
        self.may_end.set()
        self.batches: list[int] = []

    def standing(self) -> dict[str, Any]:
        return {}

    def cancellable(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        self.is_tidy = True

    def cancel(self) -> None:
        self.is_cancelled = True
        self.may_end.set()

    def catch_up(self, writer: Any, *_: object, **__: object) -> None:
        assert self.may_end.wait(patience(30))
        if self.problem is not None:
            raise self.problem
        if self.is_cancelled:
            raise RuntimeError("the job was cancelled")
        self.batches.append(writer.batch)


def following(job: Job, told: list[str]) -> FusedRun:
    events = SimpleNamespace(
        run="a run", started=lambda: told.append("started"), ended=lambda problem: told.append(str(problem))
    )
    return FusedRun(SimpleNamespace(url="b"), job, events)  # type: ignore[arg-type]


def batch(number: int) -> manifest.Writer:
    return manifest.Writer("a query", "a run", number)


@pytest.mark.parametrize("is_early", [False, True])
def test_an_operators_failure_is_told_though_nobody_waits_for_it(run: EntryRun, is_early: bool) -> None:
    job, told = Job(), []  # type: ignore[var-annotated]
    job.problem = ValueError("a tuple that it cannot take in")
    stays = joined(run, Operator("a"))
    operator = following(job, told)
    run.writer.last_writer = batch(0)  # type: ignore[attr-defined]

    def follow() -> Query:
        if is_early:
            operator.hand_over(batch(0))
            assert operator.wait(patience(5))
        query = joined(run, operator)
        assert operator.wait(patience(5))
        return query

    with pytest.warns(StrandlineWarning, match="others.*go on.*cannot take in"):
        failed = follow()
    assert told == ["started", "a tuple that it cannot take in"]
    assert job.is_tidy
    operator.hand_over(batch(1))  # as a batch does that has begun before
    assert isinstance(failed.exception(), ValueError)
    assert operator.life.state is LifeState.FAILED
    assert stays.is_active
    stays.stop()


def test_an_operator_is_at_most_one_batch_behind_and_takes_in_what_it_was_handed_over_before_it_stops() -> None:
    job = Job()
    operator = following(job, [])
    job.may_end.clear()
    operator.hand_over(batch(0))
    giver = threading.Thread(target=operator.hand_over, args=(batch(1),))
    giver.start()
    giver.join(0.2)
    assert giver.is_alive()
    assert operator.is_busy
    assert not operator.rest(0.01)
    job.may_end.set()
    giver.join(patience(5))
    operator.stop(patience(5))
    assert job.batches == [0, 1]
    assert operator.life.state is LifeState.FINISHED
    assert job.is_tidy
    operator.hand_over(batch(2))
    assert operator.rest(patience(5))
    assert job.batches == [0, 1]


def test_an_operator_that_does_not_come_to_an_end_is_cancelled_and_has_not_failed() -> None:
    job = Job()
    operator = following(job, [])
    job.may_end.clear()
    operator.hand_over(batch(0))
    assert not operator.rest(0.1)
    operator.cancel()
    assert operator.wait(patience(5))
    assert operator.life.state is LifeState.FINISHED
    assert job.batches == []


class SilentOnce(SparkQuery):
    """Fails to answer once, while it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.has_failed = False

    def awaitTermination(self, timeout: float | None = None) -> bool:
        if not self.has_failed:
            self.has_failed = True
            raise OSError(24, "too many open files")
        return super().awaitTermination(timeout)


def test_one_call_to_spark_that_fails_ends_no_entry_point() -> None:
    query = SilentOnce()
    run = begun(query)
    _until(lambda: query.has_failed)
    assert not run.life.wait(0.5)
    assert run.is_open
    query.stop()
    assert run.life.wait(patience(30))
    assert run.life.failure is None


class AlwaysSilent(SparkQuery):
    """Never answers, and goes on."""

    def awaitTermination(self, timeout: float | None = None) -> bool:
        raise OSError(24, "too many open files")


def test_an_entry_point_that_gives_up_leaves_no_query_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.spark.entry.entry_run._SILENCE_S", 0.3)
    query = AlwaysSilent()
    run = begun(query)
    assert run.life.wait(patience(30))
    assert isinstance(run.life.failure, SparkSilentError)
    _until(lambda: not query.isActive)


def _until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + patience(30)
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.01)
