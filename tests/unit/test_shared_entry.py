"""Operators that share an entry point's query, without Spark: who may end it, and who hears of an end."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.spark.query import Query
from strandline.spark.shared_entry import EntryRun


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
    run.handler.join(operator)
    return run.share(operator)


def test_a_handle_that_was_stopped_finishes_the_stream_for_the_others(run: EntryRun) -> None:
    stays, goes = joined(run, Operator("a")), joined(run, Operator("b"))
    goes.stop()
    assert stays.is_active
    goes.finish()
    assert run.handler.is_finished  # type: ignore[attr-defined]
    assert not run.spark_query.isActive
    assert stays.await_termination(5)


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
    assert stays.await_termination(5)
