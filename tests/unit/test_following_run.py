"""The run of an operator over streams, without Spark: looks, batches, time, wake-ups, errors, the end."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from strandline.errors import StorageError, StrandlineError
from strandline.log.storage.redaction import redacted_url
from strandline.spark.operator.housekeeping import Housekeeping
from strandline.spark.query import pace
from strandline.spark.query.following_run import FollowingRun
from strandline.spark.query.life import LifeState
from strandline.spark.query.pace import Pace
from strandline.spark.query.publications import PUBLICATIONS
from strandline.spark.query.silence import Silence
from tests.support.machine import patience
from tests.support.plain_context import jvm_context

PLACE: Any = SimpleNamespace(url="memory://results")
TOO_MANY = OSError(24, "Too many open files")


class Inputs:
    """Streams whose tuples are counted; a look takes as long as it is told to, or fails."""

    look_s = 0.0
    tuples = 0
    looks = 0
    problem: Exception | None = None

    def __init__(self) -> None:
        self.logs = [SimpleNamespace(spec=SimpleNamespace(id="an input"))]

    def refresh(self) -> None:
        self.looks += 1
        time.sleep(self.look_s)
        if self.problem is not None:
            raise self.problem


class Job:
    """An operator that takes in all tuples; time passes for it, again and again, if it is told so."""

    running: dict[str, Any] = {}  # noqa: RUF012
    lags: dict[str, Any] = {}  # noqa: RUF012
    problem: Exception | None = None
    time_passes = False
    is_closed = is_cancelled = False

    def __init__(self) -> None:
        self.inputs: Any = Inputs()
        self.housekeeping = Housekeeping(PLACE, None, "off")
        state = SimpleNamespace(writer=None, seq=0)
        self.output = SimpleNamespace(state=state, spec=SimpleNamespace(id="results"))
        self.batches: list[dict[str, Any]] = []
        self.taken_s: list[float] = []
        self.taken = 0
        self.may_end = threading.Event()
        self.may_end.set()

    def standing(self) -> dict[str, Any]:
        return {}

    def look(self) -> Any:
        self.inputs.refresh()
        return object() if self.time_passes or self.inputs.tuples != self.taken else None

    def cancellable(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def catch_up(self, writer: Any, go_on: Any, tell: Any, tick: Any = None, *, no_more: bool = False) -> None:
        self.taken_s.append(time.monotonic())
        assert self.may_end.wait(patience(30))
        if self.problem is not None:
            raise self.problem
        if self.is_cancelled:
            raise RuntimeError("the job was cancelled")
        tuples, self.taken = self.inputs.tuples - self.taken, self.inputs.tuples
        if tuples and go_on():
            self.batches.append({"batch": writer.batch, "tuples": tuples, "no_more": no_more})
            tell({"input_tuples": tuples})
            self.housekeeping.after_batch(self.output, 0)

    def cancel(self) -> None:
        self.is_cancelled = True
        self.may_end.set()

    def close(self) -> None:
        self.is_closed = True


class Events:
    """What listeners are told."""

    run = "a run"

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.recent: deque[Any] = deque()

    def started(self) -> None:
        self.told.append("started")

    def progressed(self, report: Any) -> None:
        self.told.append(report["input_tuples"])

    def ended(self, failure: Exception | None) -> None:
        self.told.append(failure)


class Spark:
    """A session, which can fail to answer so many times, or have stopped."""

    failures = 0
    has_stopped = False

    @property
    def sparkContext(self) -> Any:
        return SimpleNamespace(_jsc=jvm_context(self._has_stopped))

    def _has_stopped(self) -> bool:
        if self.failures:
            self.failures -= 1
            raise TOO_MANY
        return self.has_stopped


class Source:
    """The query of a source, which may have failed."""

    failure: Exception | None = None
    is_stopped = is_finished = False
    is_active, urls, progress = True, ("memory://source",), MappingProxyType({"batch": 7})

    def exception(self) -> Exception | None:
        return self.failure

    def process_all_available(self) -> None:
        pass

    def finish(self) -> None:
        self.is_finished = True

    def stop(self) -> None:
        self.is_stopped = True


class Setting:
    """An operator at work, without Spark."""

    def __init__(
        self, every_s: float = 0.0, *, sources: int = 0, follows: bool = True, is_hurried: bool = False
    ) -> None:
        self.job, self.spark, self.sources, self.events = Job(), Spark(), [Source() for _ in range(sources)], Events()
        made: Any = (PLACE, self.job, self.events, Pace(every_s, is_hurried=is_hurried))
        others: Any = {"spark": self.spark, "sources": self.sources}
        self.run = FollowingRun(*made, follows=follows, **others)

    @property
    def inputs(self) -> Any:
        return self.job.inputs

    def begin(self) -> "Setting":
        before = set(threading.enumerate())
        self.run.start()
        self.threads = set(threading.enumerate()) - before
        return self

    @property
    def is_over(self) -> bool:
        return self.run.life.has_ended and not any(thread.is_alive() for thread in self.threads)


@pytest.fixture
def make() -> Iterator[Callable[..., Setting]]:
    made: list[Setting] = []

    def setting(*arguments: Any, **options: Any) -> Setting:
        made.append(Setting(*arguments, **options))
        return made[-1]

    yield setting
    for one in made:
        one.job.may_end.set()
        one.run.stop(1.0)


def soon(holds: Callable[[], bool], seconds: float = 3.0) -> bool:
    until = time.monotonic() + patience(seconds)
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.01)
    return holds()


# ---------------------------------------------------------------------- looks and batches


def test_one_thread_looks_takes_in_tuples_and_takes_in_time(make: Any) -> None:
    setting = make().begin()
    assert len(setting.threads) == 1
    setting.inputs.tuples += 3
    assert soon(lambda: len(setting.job.batches) == 1)
    setting.inputs.tuples += 4
    assert soon(lambda: len(setting.job.batches) == 2)
    setting.job.time_passes, before = True, len(setting.job.taken_s)
    assert soon(lambda: len(setting.job.taken_s) >= before + 2)
    assert [(b["batch"], b["tuples"]) for b in setting.job.batches] == [(0, 3), (1, 4)]
    assert setting.run.report == {"batch": 1, "input_tuples": 4}
    assert setting.events.told == ["started", 3, 4]


def test_what_was_there_is_taken_in_at_once_whatever_the_interval(make: Any) -> None:
    setting = make(3600.0)
    setting.inputs.tuples = 5
    setting.begin()
    assert soon(lambda: len(setting.job.batches) == 1)
    assert setting.job.batches[0]["no_more"] is False


def test_available_now_takes_in_what_was_known_at_the_start_and_ends(make: Any) -> None:
    setting = make(follows=False)
    setting.inputs.tuples = 5
    setting.begin()
    assert setting.run.wait(patience(5))
    assert setting.job.batches == [{"batch": 0, "tuples": 5, "no_more": True}]
    assert setting.inputs.looks == 0
    assert setting.run.life.state is LifeState.FINISHED


def test_a_batch_is_shown_while_it_is_under_way(make: Any) -> None:
    setting = make()
    setting.job.may_end.clear()
    setting.begin()
    assert soon(lambda: setting.run.running.get("batch") == 0)
    assert setting.run.status == {
        "message": "Processing new data",
        "isDataAvailable": True,
        "isTriggerActive": True,
    }
    setting.job.may_end.set()
    assert soon(lambda: not setting.run.running)
    assert setting.run.status["message"] == "Waiting for data to arrive"
    setting.run.stop(patience(5))
    assert setting.run.status["message"] == "Stopped"


def test_a_look_that_fails_once_is_made_again(make: Any) -> None:
    setting = make().begin()
    assert soon(lambda: len(setting.job.taken_s) == 1)
    look, problems = setting.job.look, [StorageError("a request was lost")]

    def failing() -> Any:
        if problems:
            raise problems.pop()
        return look()

    setting.job.look = failing
    setting.inputs.tuples = 3
    assert soon(lambda: len(setting.job.batches) == 1)
    assert setting.run.exception() is None


def test_a_look_that_fails_twice_ends_the_run(make: Any) -> None:
    setting = make().begin()
    setting.inputs.problem = StorageError("this input cannot be read")
    assert soon(lambda: setting.is_over)
    assert setting.run.exception() is setting.inputs.problem


def test_time_is_taken_in_however_long_a_look_takes(make: Any) -> None:
    setting = make()
    setting.inputs.look_s, setting.job.time_passes = 0.4, True
    setting.begin()
    assert soon(lambda: len(setting.job.taken_s) >= 4, 10.0)
    assert setting.inputs.looks <= len(setting.job.taken_s) + 1, "one look is enough for a batch"


def test_with_a_long_interval_inputs_are_looked_at_no_more_often(make: Any) -> None:
    setting = make(3600.0).begin()
    setting.inputs.tuples += 1
    time.sleep(1.5)
    assert setting.inputs.looks <= 1, "the clock may just be there"


def test_all_that_is_available_is_taken_in_on_request_whatever_the_interval(make: Any) -> None:
    setting = make(3600.0).begin()
    for tuples in (2, 3):
        setting.inputs.tuples += tuples
        setting.run.process_all_available()
        assert setting.job.taken == setting.inputs.tuples
    assert [b["tuples"] for b in setting.job.batches] == [2, 3]


# ---------------------------------------------------------------------- wake-ups


@pytest.fixture
def written_here() -> Iterator[None]:
    PUBLICATIONS.begin_writing("an input")
    yield
    PUBLICATIONS.end_writing("an input")


def test_a_publication_in_this_program_is_taken_in_at_once_without_polling(
    make: Any, written_here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "_SELDOM_S", 3600.0)  # polling alone would take an hour
    setting = make()
    setting.begin()
    assert soon(lambda: len(setting.job.taken_s) == 1)
    assert soon(lambda: setting.run._due_s > time.monotonic() + 1800), "the next poll is planned"
    looks = setting.inputs.looks
    for _ in range(5):
        setting.inputs.tuples += 1
        before = len(setting.job.batches)
        PUBLICATIONS.published("an input")
        assert soon(lambda before=before: len(setting.job.batches) > before)  # type: ignore[misc]
    assert setting.inputs.looks - looks <= 5 * 2, "a look or two a publication"


def test_a_boundary_that_is_published_in_this_program_is_taken_in_at_once(
    make: Any, written_here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "_SELDOM_S", 3600.0)
    setting = make().begin()
    assert soon(lambda: setting.run._due_s > time.monotonic() + 1800), "the next poll is planned"
    assert len(setting.job.taken_s) == 1
    setting.job.time_passes = True
    PUBLICATIONS.published("an input")
    assert soon(lambda: len(setting.job.taken_s) >= 2)


def test_a_publication_does_not_hurry_an_operator_with_an_interval(make: Any, written_here: None) -> None:
    setting = make(3600.0).begin()
    assert soon(lambda: len(setting.job.taken_s) == 1)
    setting.inputs.tuples += 1
    PUBLICATIONS.published("an input")
    time.sleep(0.3)
    assert setting.inputs.looks <= 1
    assert setting.job.batches == []


def publish(setting: Setting) -> None:
    setting.inputs.tuples += 1
    PUBLICATIONS.published("an input")


def test_an_operator_behind_its_sources_takes_in_a_publication_at_once_whatever_their_interval(
    make: Any, written_here: None
) -> None:
    setting = make(3600.0, is_hurried=True).begin()
    assert soon(lambda: len(setting.job.taken_s) == 1)
    for taken in (1, 2, 3):
        publish(setting)
        assert soon(lambda taken=taken: setting.job.taken == taken)  # type: ignore[misc]
    assert setting.inputs.looks <= 3 * 2


@pytest.mark.parametrize("batch", [1, 2])
def test_a_publication_during_a_batch_is_taken_in_after_it_whatever_the_interval(
    make: Any, written_here: None, batch: int
) -> None:
    setting = make(3600.0, is_hurried=True)
    take_in = setting.job.catch_up

    def then_publish(*arguments: Any, **options: Any) -> None:
        take_in(*arguments, **options)
        if len(setting.job.taken_s) == batch:
            publish(setting)

    setting.job.catch_up = then_publish
    setting.begin()
    if batch == 2:
        assert soon(lambda: setting.run._due_s > 0)
        publish(setting)
    assert soon(lambda: setting.job.taken == batch)


def test_an_operator_wakes_those_that_follow_it(make: Any) -> None:
    woken = threading.Event()
    PUBLICATIONS.follow(woken.set, lambda: ["results"])
    try:
        setting = make().begin()
        assert soon(lambda: PUBLICATIONS.writes_all(["results"]))
        assert not woken.is_set()
        setting.inputs.tuples += 1
        assert woken.wait(patience(5))
    finally:
        PUBLICATIONS.unfollow(woken.set)
    setting.run.stop(patience(5))
    assert not PUBLICATIONS.writes_all(["results"])


# ---------------------------------------------------------------------- errors


def test_an_error_ends_the_run_and_is_told(make: Any) -> None:
    setting = make(sources=1).begin()
    setting.job.problem = RuntimeError("Traceback\nstrandline.errors.NoSpaceError: it is full\n  where: there\n")
    setting.inputs.tuples += 1
    assert soon(lambda: setting.is_over)
    failure = setting.run.exception()
    assert type(failure).__name__ == "NoSpaceError"
    assert (failure.what, failure.where) == ("it is full", "there")
    assert setting.run.life.state is LifeState.FAILED
    assert setting.events.told[-1] is failure
    assert setting.job.is_closed
    assert setting.sources[0].is_stopped
    setting.run.process_all_available()  # nobody waits for a run that has ended


def test_an_error_of_somebody_elses_is_passed_on_as_it_is(make: Any) -> None:
    setting = make()
    setting.job.problem = ZeroDivisionError("theirs")
    setting.begin()
    assert soon(lambda: setting.is_over)
    assert setting.run.exception() is setting.job.problem


def test_a_spark_that_does_not_answer_is_asked_again(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.spark.query.following_run._SPARK_EVERY_S", 0.05)
    setting = make()
    setting.spark.failures = 2
    setting.begin()
    assert soon(lambda: setting.spark.failures == 0, 5.0)
    setting.inputs.tuples += 1
    assert soon(lambda: len(setting.job.batches) == 1)
    assert setting.run.exception() is None


def test_a_spark_that_does_not_answer_for_long_ends_the_run_which_says_why(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.spark.query.following_run._SPARK_EVERY_S", 0.1)
    setting = make(sources=1)
    setting.spark.failures = 1_000_000
    setting.run._silence = Silence(PLACE.url, patience_s=0.5)
    setting.begin()
    assert soon(lambda: setting.is_over)
    failure = setting.run.exception()
    assert isinstance(failure, StrandlineError)
    assert "Too many open files" in failure.what
    assert failure.where == PLACE.url
    assert setting.sources[0].is_stopped
    assert 1_000_000 - setting.spark.failures < 10, "no busy loop over a Spark that does not answer"


def test_a_session_that_is_stopped_ends_the_run(make: Any) -> None:
    setting = make().begin()
    setting.spark.has_stopped = True
    assert soon(lambda: setting.is_over)
    assert setting.run.exception() is None


@pytest.mark.parametrize("every_s", [0.0, 3600.0])
def test_a_source_that_fails_ends_the_operator_whatever_its_interval(make: Any, every_s: float) -> None:
    setting = make(every_s, sources=1).begin()
    setting.sources[0].failure = StorageError("the disk is gone")
    assert soon(lambda: setting.is_over)
    assert setting.run.exception() is setting.sources[0].failure


# ---------------------------------------------------------------------- the end


@pytest.mark.parametrize("every_s", [0.0, 3600.0])
def test_a_run_that_is_stopped_ends_well_with_its_sources_and_its_thread(make: Any, every_s: float) -> None:
    setting = make(every_s, sources=1).begin()
    setting.run.stop(patience(5))
    assert setting.run.life.state is LifeState.FINISHED
    assert soon(lambda: setting.is_over)
    assert setting.sources[0].is_stopped
    assert setting.job.is_closed
    assert not setting.sources[0].is_finished
    assert setting.events.told == ["started", None]
    setting.run.stop(patience(5))


def test_stopping_waits_for_the_batch_under_way(make: Any) -> None:
    setting = make()
    setting.inputs.tuples = 1
    setting.job.may_end.clear()
    setting.begin()
    assert soon(lambda: len(setting.job.taken_s) == 1)
    threading.Timer(0.2, setting.job.may_end.set).start()
    setting.run.stop(patience(20))
    assert setting.run.life.state is LifeState.FINISHED
    assert not setting.job.is_cancelled


def test_a_batch_that_takes_longer_than_the_patience_is_cancelled_and_is_no_failure(make: Any) -> None:
    setting = make()
    setting.job.may_end.clear()
    setting.begin()
    assert soon(lambda: len(setting.job.taken_s) == 1)
    setting.run.stop(0.1)
    assert setting.job.is_cancelled
    assert setting.run.wait(patience(5))
    assert setting.run.life.state is LifeState.FINISHED


def test_the_report_names_its_sources_by_their_paths(make: Any) -> None:
    setting = make(sources=2)
    setting.sources[1].urls = ("s3://user:secret@store/b",)
    assert setting.run.report["sources"] == [
        {"path": "memory://source", "batch": 7},
        {"path": redacted_url("s3://user:secret@store/b"), "batch": 7},
    ]


@pytest.mark.parametrize("has_ended", [False, True])
def test_finishing_finishes_the_sources_and_takes_that_in(make: Any, has_ended: bool) -> None:
    setting = make(sources=1).begin()
    if has_ended:
        setting.run.stop(patience(5))

    def grow() -> None:
        setting.sources[0].is_finished = True
        setting.inputs.tuples += 7

    setting.sources[0].finish = grow
    setting.job.inputs.look_s = 0.0
    setting.run.finish()
    assert setting.sources[0].is_finished
    if not has_ended:
        assert setting.job.batches[-1]["tuples"] == 7
    assert setting.run.exception() is None
    assert setting.run.life.state is LifeState.FINISHED


def test_an_operator_over_streams_of_others_is_not_finished(make: Any) -> None:
    setting = make().begin()
    with pytest.raises(StrandlineError, match="does not work for an operator over a stream"):
        setting.run.finish()
    assert setting.run.is_active


def test_silence_is_borne_for_a_while_only_and_counted_anew_after_an_answer() -> None:
    answers: list[Any] = [TOO_MANY, 1, TOO_MANY, TOO_MANY]

    def call() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    silence = Silence("memory://results", patience_s=0.05)
    assert silence.ask(call, otherwise=7) == 7
    assert silence._since_s is not None
    time.sleep(0.06)
    assert silence.ask(call, otherwise=7) == 1
    assert silence._since_s is None
    assert silence.ask(call, otherwise=7) == 7, "the first time since"
    time.sleep(0.06)
    with pytest.raises(StrandlineError, match="Too many open files"):
        silence.ask(call, otherwise=7)
