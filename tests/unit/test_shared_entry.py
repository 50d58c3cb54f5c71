"""Operators that share an entry point's query, without Spark: who may end it, and who hears of an end."""

import contextlib
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.errors import OptionError, StrandlineWarning
from strandline.spark.entry.entry import Entry
from strandline.spark.entry.shared_entry import EntryRun
from strandline.spark.operator.processing_element import QueryOptions
from strandline.spark.query.following import FollowingOperator
from strandline.spark.query.query import Query
from tests.support.machine import patience


class SparkQuery:
    """As much of Spark's query as an entry point needs."""

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


class Handler:
    """Writes nothing, and notes what is asked of it."""

    def __init__(self, query: SparkQuery) -> None:
        self.place = SimpleNamespace(url="in")
        self.operators: list[Any] = []
        self.failure: Exception | None = None
        self.is_stopping = self.is_busy = self.is_finished = False
        self._query = query

    def join(self, operator: Any) -> None:
        self.operators.append(operator)

    def halt(self, timeout_s: float | None) -> bool:
        self.is_stopping = True
        return True

    def end(self) -> None:
        self.is_stopping = True
        self._query.stop()

    def finish_stream(self, again: object = None) -> None:
        self.is_busy = True

    def settle(self, timeout_s: float | None) -> bool:
        self.is_finished |= self.is_busy
        self.is_busy = False
        return True


class Operator:
    """Has nothing to do, and fails when told to."""

    when_failed: Callable[[], None]

    def __init__(self, url: str) -> None:
        self.place = SimpleNamespace(url=url)
        self.failure: Exception | None = None
        self.is_busy = self.is_closed = False
        self.events = SimpleNamespace(started=lambda: None)

    def fail(self) -> None:
        self.failure = ValueError("a tuple that it cannot take in")
        self.when_failed()

    def wait(self, timeout_s: float | None) -> bool:
        return True

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def run() -> EntryRun:
    query = SparkQuery()
    return EntryRun(query, Handler(query), trigger=None, final=False)  # type: ignore[arg-type]


def joined(run: EntryRun, operator: Any) -> Query:
    query = run.join(operator)
    assert query is not None
    return query


def test_a_handle_that_was_stopped_finishes_the_stream_for_the_others(run: EntryRun) -> None:
    stays, goes = joined(run, Operator("a")), joined(run, Operator("b"))
    goes.stop()
    assert stays.is_active
    goes.finish()
    assert run.handler.is_finished  # type: ignore[attr-defined]
    assert not run.spark_query.isActive
    assert stays.await_termination(patience(5))


def test_a_handle_whose_operator_has_failed_finishes_nothing_and_stops_nobody(run: EntryRun) -> None:
    stays, poisoned = joined(run, Operator("a")), Operator("b")
    failed = joined(run, poisoned)
    poisoned.fail()
    with pytest.raises(ValueError, match="cannot take in"):
        failed.finish()
    assert stays.is_active
    assert not run.handler.is_stopping
    stays.stop()


def test_an_operator_that_fails_while_the_stream_is_being_finished_leaves_no_query_that_waits(run: EntryRun) -> None:
    stays, poisoned = joined(run, Operator("a")), Operator("b")
    failing = joined(run, poisoned)
    halt = run.handler.halt

    def halt_and_fail(timeout_s: float | None) -> bool:
        poisoned.fail()
        return halt(timeout_s)

    run.handler.halt = halt_and_fail  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="cannot take in"):
        failing.finish()
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
        self._is_let_go.wait(timeout)
        if self._cause is not None:
            raise self._cause
        return not self.isActive


@pytest.mark.parametrize("cause", [None, ValueError("the source is gone")])
def test_a_query_has_ended_when_sparks_manager_has_let_go_of_it(cause: Exception | None) -> None:
    query = EndingQuery(cause)
    run = EntryRun(query, Handler(query), trigger=None, final=False)  # type: ignore[arg-type]
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

    def begin(spark: Any, start: Start, trigger: str | None, *others: Any, final: bool) -> EntryRun:
        assert not run.spark_query.isActive
        assert not run.handler.is_busy
        made.begun.append(trigger)
        query = SparkQuery()
        handler = Handler(query)
        handler.join(Operator("b"))
        return EntryRun(query, handler, trigger=trigger, final=final)  # type: ignore[arg-type]

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
    assert entry.operator not in run.handler.operators


def test_an_operator_does_not_join_a_stream_that_is_being_finished(entry: Any, run: EntryRun) -> None:
    first = joined(run, Operator("a"))
    halt = run.handler.halt

    def halt_and_join(timeout_s: float | None) -> bool:
        assert run.join(entry.operator) is None
        return halt(timeout_s)

    run.handler.halt = halt_and_join  # type: ignore[method-assign]
    first.finish()


def test_an_operator_waits_until_the_last_run_has_finished_the_stream(entry: Any, run: EntryRun) -> None:
    joined(run, Operator("a"))
    run.handler.finish_stream()
    run.spark_query.stop()
    entry.start_with(None, Start()).stop()
    assert run.handler.is_finished  # type: ignore[attr-defined]
    assert entry.begun == [None]


@pytest.mark.parametrize("is_heard", [False, True])
def test_without_a_trigger_it_does_what_the_query_did_that_it_might_have_joined(
    entry: Any, run: EntryRun, is_heard: bool
) -> None:
    run.trigger = "available-now"
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
    """Cannot take in anything."""

    running: dict[str, Any]

    def __init__(self) -> None:
        self.running = {}
        self.is_tidy = False

    def standing(self) -> dict[str, Any]:
        return {}

    def cancellable(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        self.is_tidy = True

    def catch_up(self, *_: object) -> None:
        raise ValueError("a tuple that it cannot take in")


@pytest.mark.parametrize("is_early", [False, True])
def test_an_operators_failure_is_told_though_nobody_waits_for_it(run: EntryRun, is_early: bool) -> None:
    job, told = Job(), []
    events = SimpleNamespace(started=lambda: told.append("started"), ended=lambda problem: told.append(str(problem)))
    stays = joined(run, Operator("a"))
    operator: Any = FollowingOperator(SimpleNamespace(url="b"), job, events)  # type: ignore[arg-type]

    def follow() -> Query:
        if is_early:
            operator.hand_over(None)
            operator.wait(patience(5))
        query = joined(run, operator)
        operator.hand_over(None)
        operator.wait(patience(5))
        return query

    with pytest.warns(StrandlineWarning, match="others.*go on.*cannot take in"):
        failed = follow()
    assert told == ["started", "a tuple that it cannot take in"]
    assert job.is_tidy
    operator.hand_over(None)  # as a batch does that has begun before
    assert isinstance(failed.exception(), ValueError)
    assert stays.is_active
    stays.stop()
