"""What an operator over streams does beside Spark's batches, in one thread: looks, tells Spark, takes in time, ends."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.errors import StorageError, StrandlineError
from strandline.spark.query.operator_batches import OperatorBatches
from strandline.spark.query.silence import Silence
from tests.support.machine import patience

PLACE: Any = SimpleNamespace(url="memory://results")
TOO_MANY = OSError(24, "Too many open files")


class Inputs:
    """Streams whose tuples are counted; a look takes as long as it is told to."""

    look_s = 0.0
    tuples = 0
    looks = 0
    logs = ()

    def __init__(self) -> None:
        self._seen = 0

    def refresh(self) -> None:
        self.looks += 1
        time.sleep(self.look_s)

    def have_grown(self) -> bool:
        self.refresh()
        return self.tuples != self._seen

    def are_seen(self) -> None:
        self._seen = self.tuples


class Job:
    """An operator for which time passes again and again, and is taken in."""

    def __init__(self) -> None:
        self.inputs = Inputs()
        self.output = SimpleNamespace(state=SimpleNamespace(writer=None))
        self.taken_s: list[float] = []

    def standing(self) -> dict[str, Any]:
        return {}

    def time_has_passed(self) -> bool:
        return True

    def cancellable(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def catch_up(self, *_: Any) -> None:
        self.taken_s.append(time.monotonic())

    def close(self) -> None:
        pass


class Spark:
    """A query, and its clock; both can fail to answer so many times."""

    id, runId = "query", "run"

    def __init__(self) -> None:
        self.ticks = 0
        self.tick_failures = 0
        self.failures = 0
        self.is_active = True

    def tick(self) -> None:
        if self.tick_failures:
            self.tick_failures -= 1
            raise TOO_MANY
        self.ticks += 1

    @property
    def isActive(self) -> bool:
        if self.failures:
            self.failures -= 1
            raise TOO_MANY
        return self.is_active

    def stop(self) -> None:
        self.is_active = False


class Sources:
    """Of which one may have failed."""

    failure: Exception | None = None
    is_stopped = False

    def __len__(self) -> int:
        return 1

    def stop(self) -> None:
        self.is_stopped = True


class Setting:
    """An operator at work, without Spark."""

    def __init__(self, every_s: float = 0.0) -> None:
        self.job, self.spark, self.sources = Job(), Spark(), Sources()
        made: Any = (PLACE, self.job, self.spark)
        sources: Any = self.sources
        self.handler = OperatorBatches(*made, every_s, sources=sources)

    def begin(self) -> None:
        before = set(threading.enumerate())
        query: Any = self.spark
        self.handler.runs_in(query)
        self.threads = set(threading.enumerate()) - before

    @property
    def is_over(self) -> bool:
        return not any(thread.is_alive() for thread in self.threads)


@pytest.fixture
def make() -> Iterator[Callable[..., Setting]]:
    made: list[Setting] = []

    def setting(every_s: float = 0.0) -> Setting:
        made.append(Setting(every_s))
        return made[-1]

    yield setting
    for one in made:
        one.handler.halt(1.0)


def soon(holds: Callable[[], bool], seconds: float = 3.0) -> bool:
    until = time.monotonic() + patience(seconds)
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.01)
    return holds()


def test_one_thread_looks_ticks_and_takes_in_time(make: Any) -> None:
    setting = make()
    setting.begin()
    assert len(setting.threads) == 1
    setting.job.inputs.tuples += 1
    assert soon(lambda: setting.spark.ticks == 1)
    assert soon(lambda: len(setting.job.taken_s) >= 2)
    assert setting.spark.ticks == 1


def test_a_tick_that_fails_is_made_up_for(make: Any) -> None:
    setting = make()
    setting.spark.tick_failures = 2
    setting.begin()
    setting.job.inputs.tuples += 1
    assert soon(lambda: setting.spark.ticks == 1, 5.0)
    setting.job.inputs.tuples += 1
    assert soon(lambda: setting.spark.ticks == 2)
    assert setting.handler.failure is None


def test_a_query_that_does_not_say_whether_it_is_active_is_asked_again(make: Any) -> None:
    setting = make()
    setting.spark.failures = 2
    setting.begin()
    assert soon(lambda: setting.spark.failures == 0, 5.0)
    setting.job.inputs.tuples += 1
    assert soon(lambda: setting.spark.ticks == 1)
    assert setting.handler.failure is None


def test_ticks_that_fail_for_long_end_the_query_and_say_why(make: Any) -> None:
    setting = make()
    setting.spark.tick_failures = 1_000_000
    setting.handler._untold = Silence(PLACE.url, patience_s=0.5)
    setting.begin()
    setting.job.inputs.tuples += 1
    assert soon(lambda: setting.is_over)
    assert isinstance(setting.handler.failure, StrandlineError)
    assert "Too many open files" in setting.handler.failure.what
    assert setting.handler.failure.where == PLACE.url
    assert not setting.spark.is_active
    assert setting.sources.is_stopped
    assert 1_000_000 - setting.spark.tick_failures < 10, "no busy loop over a Spark that does not answer"


def test_time_is_taken_in_however_long_a_look_takes(make: Any) -> None:
    setting = make()
    setting.job.inputs.look_s = 0.4
    setting.begin()
    assert soon(lambda: len(setting.job.taken_s) >= 4, 10.0)
    assert setting.job.inputs.looks <= len(setting.job.taken_s) + 2, "one look is enough for both"


@pytest.mark.parametrize("every_s", [0.0, 3600.0])
def test_a_source_that_fails_ends_the_operator_whatever_its_interval(make: Any, every_s: float) -> None:
    setting = make(every_s)
    setting.begin()
    setting.sources.failure = StorageError("the disk is gone")
    assert soon(lambda: setting.is_over)
    assert setting.handler.failure is setting.sources.failure
    assert not setting.spark.is_active


def test_with_a_long_interval_inputs_are_looked_at_no_more_often(make: Any) -> None:
    setting = make(3600.0)
    setting.begin()
    setting.job.inputs.tuples += 1
    time.sleep(1.5)
    assert setting.job.inputs.looks <= 1, "the clock may just be there"


@pytest.mark.parametrize("every_s", [0.0, 3600.0])
def test_sources_are_stopped_when_sparks_query_has_ended(make: Any, every_s: float) -> None:
    setting = make(every_s)
    setting.begin()
    setting.spark.is_active = False
    assert soon(lambda: setting.sources.is_stopped)
    assert soon(lambda: setting.is_over)


@pytest.mark.parametrize("end", ["halt", "settle"])
def test_no_thread_is_left_after_the_end(make: Any, end: str) -> None:
    setting = make(3600.0)
    setting.begin()
    getattr(setting.handler, end)(1.0)
    assert soon(lambda: setting.is_over)


def test_silence_is_borne_for_a_while_only_and_counted_anew_after_an_answer() -> None:
    answers: list[Any] = [TOO_MANY, 1, TOO_MANY, TOO_MANY]

    def call() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    silence = Silence("memory://results", patience_s=0.05)
    assert silence.ask(call, otherwise=7) == 7
    assert not silence.is_broken
    time.sleep(0.06)
    assert silence.ask(call, otherwise=7) == 1
    assert silence.is_broken
    assert silence.ask(call, otherwise=7) == 7, "the first time since"
    time.sleep(0.06)
    with pytest.raises(StrandlineError, match="Too many open files"):
        silence.ask(call, otherwise=7)
