"""Elements that start again after an error: which errors, after which pauses, and what their user sees."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import (
    CorruptBlockError,
    DroppedError,
    NoSpaceError,
    OptionError,
    SchemaError,
    SecondWriterError,
    SparkSilentError,
    StorageError,
    UnsafeFolderError,
)
from strandline.spark.query import spark_log
from strandline.spark.query.error_in_text import failure_in, in_short
from strandline.spark.query.query import Query
from strandline.spark.query.restart import BEHIND_A_BOUND, Restart
from strandline.spark.query.restarting_run import started
from tests.support.element_tries import PLACE, Element
from tests.support.machine import patience

SOON = Restart(0.01)


@pytest.fixture
def element() -> Element:
    return Element()


@pytest.mark.filterwarnings("ignore::strandline.errors.StrandlineWarning")
@pytest.mark.parametrize("problem", [StorageError("no answer"), NoSpaceError("full"), DroppedError("gone")])
def test_an_element_starts_again_after_an_error_that_may_pass(element: Element, problem: Exception) -> None:
    query = started(PLACE, element.begin, SOON)
    element.tries[0].end(problem)
    element.wait_for_try(1)
    element.tries[1].end(problem)
    last = element.wait_for_try(2)
    assert query.is_active
    assert query.exception() is None
    last.end()
    assert query.await_termination(patience(30))
    assert query.progress == {"commit": 7, "restarts": 2}


@pytest.mark.parametrize(
    "problem",
    [SchemaError("wrong"), SecondWriterError("two"), CorruptBlockError("rotten"), UnsafeFolderError("a link")],
)
def test_an_element_ends_with_an_error_that_cannot_pass(element: Element, problem: Exception) -> None:
    query = started(PLACE, element.begin, SOON)
    element.tries[0].end(problem)
    with pytest.raises(type(problem)):
        query.await_termination(patience(30))
    assert len(element.tries) == 1
    assert not query.is_active


@pytest.mark.filterwarnings("ignore::strandline.errors.StrandlineWarning")
def test_an_error_that_is_not_known_is_borne_a_few_times_in_a_row(element: Element) -> None:
    query = started(PLACE, element.begin, SOON)
    for number in range(9):
        if number == 3:
            element.wait_for_try(number).commit += 1  # it got further: these three do not count any more
        element.wait_for_try(number).end(ZeroDivisionError("a user's function"))
    with pytest.raises(ZeroDivisionError):
        query.await_termination(patience(30))
    assert len(element.tries) == 9


@pytest.mark.filterwarnings("ignore::strandline.errors.StrandlineWarning")
def test_an_error_that_is_not_known_is_borne_after_a_long_outage(element: Element) -> None:
    query = started(PLACE, element.begin, SOON)
    for number in range(7):
        element.wait_for_try(number).end(StorageError("no answer"))
    for number in range(7, 13):
        assert query.is_active
        element.wait_for_try(number).end(ZeroDivisionError("a user's function"))
    with pytest.raises(ZeroDivisionError):
        query.await_termination(patience(30))
    assert len(element.tries) == 13


@pytest.mark.filterwarnings("ignore::strandline.errors.StrandlineWarning")
def test_a_start_that_fails_is_one_more_try(element: Element) -> None:
    query = started(PLACE, element.begin, SOON)
    element.refusals = [StorageError("still gone"), StorageError("still gone")]
    element.tries[0].end(StorageError("gone"))
    element.wait_for_try(1)
    assert element.refusals == []
    element.refusals = [SchemaError("another one's stream")]
    element.tries[1].end(StorageError("gone"))
    with pytest.raises(SchemaError):
        query.await_termination(patience(30))


def test_the_first_start_raises_what_goes_wrong() -> None:
    def fails() -> Query:
        raise StorageError("no such disk")

    with pytest.raises(StorageError):
        started(PLACE, fails, SOON)


def test_while_it_is_down_progress_says_what_failed_and_a_stop_ends_the_pause(
    element: Element, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_log, "_current", None)  # an error names the log that an earlier test may have begun
    query = started(PLACE, element.begin, Restart(3600.0))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        element.tries[0].end(StorageError("no answer"))
        _until(lambda: bool(told))
    assert "starts again in 1 s, try 1: no answer" in str(told[0].message)
    assert query.progress["next_try_s"] == 1.0
    assert query.progress["failed"] == "no answer"
    assert query.progress["tries"] == 1
    assert query.is_active
    with pytest.raises(OptionError, match="waits for its next try"):
        query.finish()
    query.stop()
    assert not query.is_active
    assert query.exception() is None


def test_a_stop_and_a_finish_reach_the_try_at_work(element: Element) -> None:
    query = started(PLACE, element.begin, SOON)
    query.finish()
    assert element.tries[0].has_finished
    assert not query.is_active
    other = Element()
    query = started(PLACE, other.begin, SOON)
    query.stop()
    assert len(other.tries) == 1
    assert not query.is_active


@pytest.mark.filterwarnings("ignore::strandline.errors.StrandlineWarning")
def test_a_stop_while_the_next_try_begins_stops_that_try(element: Element) -> None:
    may_begin = threading.Event()
    begins = threading.Event()

    def begin() -> Query:
        if element.tries:
            begins.set()
            may_begin.wait(patience(30))
        return element.begin()

    query = started(PLACE, begin, SOON)
    element.tries[0].end(StorageError("gone"))
    assert begins.wait(patience(30))
    stopping = threading.Thread(target=query.stop, daemon=True)
    stopping.start()
    stopping.join(0.05)  # a stop that has not got so far finds the new try: fewer cases, the same end
    may_begin.set()
    assert element.wait_for_try(1).over.wait(patience(10)), "the new try goes on, and nothing will ever stop it"
    stopping.join(patience(30))
    assert not query.is_active
    assert query.exception() is None


@pytest.mark.filterwarnings("ignore::strandline.errors.StrandlineWarning")
def test_a_finish_that_is_refused_changes_nothing(element: Element, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OptionError("others finish this stream")

    query = started(PLACE, element.begin, SOON)
    monkeypatch.setattr(element.tries[0], "finish", refuse)
    with pytest.raises(OptionError):
        query.finish()
    element.tries[0].end(StorageError("gone"))
    element.wait_for_try(1).end(SchemaError("wrong"))
    with pytest.raises(SchemaError):
        query.await_termination(patience(30))


@pytest.mark.parametrize("way", ["stop", "finish"])
def test_the_error_of_the_last_batch_is_not_lost(element: Element, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """The batch under way fails while the element ends."""
    query = started(PLACE, element.begin, SOON)
    last = element.tries[0]
    monkeypatch.setattr(last, way, lambda *_: last.end(StorageError("gone")))
    with contextlib.suppress(StorageError):
        getattr(query, way)()
    assert isinstance(query.exception(), StorageError)
    assert len(element.tries) == 1


@pytest.mark.filterwarnings("ignore::strandline.errors.StrandlineWarning")
def test_a_finish_that_fails_when_the_element_has_ended_raises(
    element: Element, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = started(PLACE, element.begin, SOON)

    def fails() -> None:
        element.tries[0].over.set()  # it had ended well; the store refuses the last commit
        raise StorageError("no space left", where="in")

    monkeypatch.setattr(element.tries[0], "finish", fails)
    with pytest.raises(StorageError, match="no space left"):
        query.finish()
    assert query.exception() is None


@pytest.mark.filterwarnings("ignore::strandline.errors.StrandlineWarning")
def test_an_element_that_was_stopped_while_it_was_down_does_not_say_that_it_will_try_again(element: Element) -> None:
    query = started(PLACE, element.begin, Restart(3600.0))
    element.tries[0].end(StorageError("gone", where="in"))
    _until(lambda: "failed" in query.progress)
    query.stop()
    assert not {"failed", "next_try_s"} & set(query.progress)
    with pytest.raises(StorageError, match="gone"):
        query.finish()  # it cannot be done, and there is no next try to wait for


def test_waiting_for_all_tuples_goes_on_through_a_restart(element: Element, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()
    query = started(PLACE, element.begin, Restart(0.2))
    first = element.tries[0]

    def fails() -> None:
        asked.set()
        first.end(StorageError("gone"))

    monkeypatch.setattr(first, "process_all_available", fails)
    query.process_all_available()
    assert asked.is_set()
    assert query.progress["restarts"] == 1
    element.tries[1].end(SchemaError("wrong"))
    with pytest.raises(SchemaError):
        query.process_all_available()


@pytest.mark.filterwarnings("ignore::strandline.errors.StrandlineWarning")
def test_a_start_that_fails_after_a_stop_says_nothing(element: Element) -> None:
    def begin() -> Query:
        if element.tries:
            stopping.start()
            _until(lambda: query._run._stops)  # type: ignore[attr-defined]
            raise SchemaError("wrong")
        return element.begin()

    query = started(PLACE, begin, SOON)
    stopping = threading.Thread(target=query.stop, daemon=True)
    element.tries[0].end(StorageError("gone"))
    assert query.await_termination(patience(30))
    assert query.exception() is None


def test_a_defect_of_the_thread_that_looks_after_an_element_is_its_error(element: Element) -> None:
    query = started(PLACE, element.begin, SOON)
    element.tries[0].commit = property()  # type: ignore[assignment]
    del element.tries[0].__dict__["commit"]
    element.tries[0].end()
    with pytest.raises(AttributeError):
        query.await_termination(patience(30))


def test_an_element_that_is_down_says_so(element: Element) -> None:
    query = started(PLACE, element.begin, Restart(3600.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        element.tries[0].end(StorageError("no answer"))
        _until(lambda: "down" in repr(query))
    assert "starts again in 1 s (try 1)" in repr(query)
    query.stop()


def test_an_error_of_spark_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_log, "_current", None)
    stack = "\n".join(f"\tat org.apache.spark.Some.thing(Some.scala:{n})" for n in range(200))
    text = (
        "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [FAILED_READ_FILE.NO_HINT] Encountered "
        f"error while reading file file:///a/b.parquet. SQLSTATE: KD001\n=== Streaming Query ===\n{stack}\n"
        f"Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE] Encountered error\n{stack}\n"
        f"Caused by: java.lang.RuntimeException: file:/a/b.parquet is not a Parquet file. Expected\n{stack}"
    )
    told = in_short(RuntimeError(text))
    assert told.startswith("java.lang.RuntimeException: file:/a/b.parquet is not a Parquet file.")
    assert "\n" not in told
    assert len(told) < 400
    assert in_short(StorageError("no answer", where="a")) == str(StorageError("no answer", where="a"))
    assert in_short(ZeroDivisionError("division by zero")) == "ZeroDivisionError: division by zero"
    monkeypatch.setattr(spark_log, "_current", Path("/logs/spark.log"))
    assert in_short(KeyError("k")) == "KeyError: 'k' (Spark's log: /logs/spark.log)"


_PROXY = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An "
    "error occurred in the user provided function in foreach batch sink. Reason: An exception was raised by the Python "
    'Proxy. Return Message: Traceback (most recent call last):\n  File "/p/py4j/clientserver.py", line 644, in _call\n'
    "    return_value = getattr(self.pool[obj_id], method)(*params)\n                   ^^^^^^^^^^^^^^^^^^^^^^\n"
)
_FROM_A_WORKER = (
    f"{_PROXY}pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:\n"
    'Traceback (most recent call last):\n  File "/p/program.py", line 6, in f\n'
    '    raise RuntimeError("kafka of b is gone")\n'
    "RuntimeError: kafka of b is gone\nsecond line\n SQLSTATE: 39000 SQLSTATE: XXKST\n"
    "=== Streaming Query ===\nIdentifier: [id = 1]"
)
_OF_A_DATA_SOURCE = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed "
    'when Python streaming data source perform latestOffset: Traceback (most recent call last):\n  File "/p/x.py"\n'
    "OSError: api of the shop is down\n SQLSTATE: 38000"
)
_PYTHON_IN_A_JVM_CAUSE = (
    "[STREAM_FAILED] Query failed\nCaused by: org.apache.spark.api.python.PythonException: Traceback (most recent call "
    'last):\n  File "/p/x.py", line 3\nOSError: disk of x\n\n\tat org.apache.spark.Some.thing(Some.scala:1)'
)
_JVM_CAUSE_IN_PYTHON = (
    f"{_PROXY}py4j.protocol.Py4JJavaError: An error occurred while calling o12.parquet.\n: org.apache.spark."
    "SparkException: Job aborted\n\tat org.apache.A\nCaused by: java.io.IOException: no route\n\tat java.B"
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (_FROM_A_WORKER, "RuntimeError: kafka of b is gone"),
        (_OF_A_DATA_SOURCE, "OSError: api of the shop is down"),
        (_PYTHON_IN_A_JVM_CAUSE, "OSError: disk of x"),
        (_JVM_CAUSE_IN_PYTHON, "java.io.IOException: no route"),
    ],
    ids=["worker", "data source", "Python in the JVM", "JVM in Python"],
)
def test_the_line_of_an_error_of_spark_is_its_innermost_cause(
    text: str, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_log, "_current", None)
    assert in_short(RuntimeError(text)) == cause


@pytest.mark.filterwarnings("ignore::strandline.errors.StrandlineWarning")
def test_a_spark_that_does_not_answer_in_time_may_answer_later(element: Element) -> None:
    slow = failure_in("Python worker failed to connect back.", "streams/a")
    assert isinstance(slow, SparkSilentError)
    assert SOON.bears(slow, 100)


@pytest.mark.filterwarnings("ignore::strandline.errors.StrandlineWarning")
def test_a_source_behind_a_bound_starts_again_after_every_error(element: Element) -> None:
    query = started(PLACE, element.begin, Restart(0.01, bears_all=True))
    for number in range(8):
        element.wait_for_try(number).end(SchemaError("its schema is broken"))
    element.wait_for_try(8)
    assert query.exception() is None
    query.stop()
    assert BEHIND_A_BOUND.bears(SchemaError("broken"), 1000)


def test_a_source_behind_a_bound_pauses_no_longer_than_its_user_has_said() -> None:
    asked = Restart.behind_a_bound(Restart.of("3 s"))
    assert asked.bears(SchemaError("broken"), 1000)
    assert max(asked.pause_s(tries) for tries in range(1, 20)) == 3.0
    assert Restart.behind_a_bound(None) == BEHIND_A_BOUND


def test_without_the_option_an_element_is_started_once(element: Element) -> None:
    query = started(PLACE, element.begin, Restart.of(None))
    element.tries[0].end(StorageError("gone"))
    with pytest.raises(StorageError):
        query.await_termination(patience(30))
    assert len(element.tries) == 1


@pytest.mark.parametrize("wrong", [10, "soon", "0 s", -1])
def test_a_pause_needs_a_unit_and_a_length(wrong: Any) -> None:
    with pytest.raises(OptionError, match="restart"):
        Restart.of(wrong)


@pytest.mark.parametrize(("wrong", "what"), [("-1s", "is negative"), (0, "is not a duration"), (10, "has no unit")])
def test_a_pause_that_is_refused_is_told_what_to_write(wrong: Any, what: str) -> None:
    with pytest.raises(OptionError, match=what) as refused:
        Restart.of(wrong)
    assert '"0 s"' not in refused.value.todo


def _until(holds: Callable[[], bool]) -> None:
    turn = threading.Event()
    for _ in range(round(patience(30) / 0.01)):
        if holds():
            return
        turn.wait(0.01)
    raise AssertionError("it never happened")
