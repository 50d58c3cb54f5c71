"""The run of an operator over streams: a thread of the driver that takes in what these publish."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.clock import stopwatch_s
from strandline.failpoint import failpoint
from strandline.log.stream.manifest import Writer
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.query.element_run import ElementRun, cannot_finish
from strandline.spark.query.error_in_text import translated
from strandline.spark.query.life import Life
from strandline.spark.query.listener_events import ListenerEvents
from strandline.spark.query.pace import Pace
from strandline.spark.query.publications import PUBLICATIONS
from strandline.spark.query.silence import Silence
from strandline.spark.query.sources import Sources
from strandline.spark.query.waiting import wait_for
from strandline.spark.session.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIME_EVERY_S = 0.15
"""At most so often it is computed whether time has passed, unless a publication says that it has."""
_CHECK_EVERY_S = 0.25
"""So often sources are asked whether they have failed, whatever the trigger's interval."""
_SPARK_EVERY_S = 1.0


class OperatorRun(ElementRun):
    """An operator over streams that exist: it takes in their tuples and, if it `follows`, those that will come."""

    def __init__(
        self,
        place: Place,
        job: OperatorJob,
        events: ListenerEvents,
        pace: Pace,
        *,
        spark: SparkSession,
        name: str | None = None,
        follows: bool = True,
        sources: Sources | None = None,
    ) -> None:
        self.place = place
        self.life = Life()
        self._job = job
        self._events = events
        self._pace = pace
        self._spark = spark
        self._name = name
        self._follows = follows
        self._sources = sources or Sources()
        self._stream = job.output.spec.id
        self._run = events.run
        self._bell = threading.Event()
        """Ends the wait for the next look: a publication, a request or the end has come."""
        self._requests = threading.Condition()
        self._asked = self._answered = 0
        """How many times `process_all_available` was asked for, and the last of these that is done."""
        self._is_cancelled = self._finishes = self._is_finished = False
        self._due_s = 0.0
        self._timed_s = self._checked_s = self._spark_checked_s = 0.0
        self._silence = {name: Silence(place.url) for name in ("sources", "spark")}
        self._batch = 0
        self._has_told = False
        self._now: float | None = None
        last = job.output.state.writer
        standing = job.standing()
        self._progress = {"batch": -1 if last is None else last.batch, **standing} if standing else {}

    def start(self) -> None:
        """Lets the thread begin."""
        from pyspark import InheritableThread

        self._events.started()
        # A daemon: a program that ends without stopping its query must not be kept alive by it.
        InheritableThread(self._drive, name="strandline-operator", daemon=True).start()

    # ------------------------------------------------------------------ as its query shows it

    @property
    def id(self) -> str:
        """The id of the operator's stream."""
        return self._stream

    @property
    def run_id(self) -> str:
        """A new one for each start."""
        return self._run

    @property
    def name(self) -> str | None:
        """The name given to `start`."""
        return self._name

    @property
    def report(self) -> Mapping[str, Any]:
        """The figures of the last batch, how far each of several inputs is, the last batches of its own sources."""
        reports = self._sources.reports
        return {**self._progress, **self._job.lags, **({"sources": reports} if reports else {})}

    @property
    def running(self) -> Mapping[str, Any]:
        """The batch under way, and the steps in it."""
        began_s, steps = self._now, self._job.running
        batch = {} if began_s is None else {"batch": self._batch, "seconds": round(stopwatch_s() - began_s, 3)}
        return {**batch, **steps}

    @property
    def status(self) -> dict[str, Any]:
        """As Spark says it."""
        is_busy = self._now is not None
        message = "Processing new data" if is_busy else "Waiting for data to arrive"
        return {
            "message": message if self.is_active else "Stopped",
            "isDataAvailable": is_busy,
            "isTriggerActive": is_busy,
        }

    @property
    def recent_progress(self) -> Sequence[Any]:
        """The last progress reports that Spark's listeners got, oldest first."""
        return list(self._events.recent)

    @property
    def is_active(self) -> bool:
        """Whether the run has not ended."""
        return not self.life.has_ended

    def exception(self) -> Exception | None:
        """Returns the error that has ended the run."""
        return self.life.failure

    def explain(self, *, extended: bool) -> None:
        """Says that Spark has no plan for it."""
        print(f"Strandline works on {self.place.url} itself: its steps are jobs without a plan of Spark's")

    def wait(self, timeout_s: float | None) -> bool:
        """Waits for the end of the run."""
        return wait_for(self.life.wait, timeout_s)

    def stop(self, patience_s: float | None) -> None:
        """Ends the run after the batch under way; cancels that one if it takes longer."""
        self.life.stop()
        self._bell.set()
        if not self.life.wait(patience_s):
            self._is_cancelled = True
            self._job.cancel()
            self.life.wait(patience_s)

    def finish(self) -> None:
        """Ends the run, finishes the streams of its sources, and takes that in.

        Raises if an input is no source of its own: others decide when that stream is finished.
        """
        if len(self._sources) < len(self._job.inputs.logs):
            raise cannot_finish(self.place)
        self._finishes = True
        self.stop(None)
        if not self._is_finished and self.life.failure is None:  # it had ended before
            thread = threading.Thread(target=self._finish_late, name="strandline-end", daemon=True)
            thread.start()
            thread.join()

    def process_all_available(self) -> None:
        """Lets its sources, then the operator, take in everything that there is now."""
        self._sources.take_in_all()
        with self._requests:
            self._asked += 1
            mine = self._asked
            self._bell.set()
            self._requests.wait_for(lambda: self._answered >= mine or self.life.has_ended)

    # ------------------------------------------------------------------ its thread

    def _drive(self) -> None:
        with contextlib.ExitStack() as ending:  # backwards
            ending.callback(self._end)
            ending.callback(self._events_ended)
            ending.callback(self._sources.stop)
            ending.callback(self._job.close)
            try:
                with translated(self.place.url), self._job.cancellable():
                    self._work()
            except Exception as problem:
                if not self._is_cancelled:  # else the caller of `stop` did not wait for this batch
                    self.life.fail(problem)

    def _end(self) -> None:
        self.life.end()
        with self._requests:
            self._requests.notify_all()

    def _events_ended(self) -> None:
        self._events.ended(self.life.failure)

    def _work(self) -> None:
        PUBLICATIONS.begin_writing(self._stream)
        try:
            self.life.begin()
            self._pace.begins()
            self._take_in(no_more=not self._follows)
            if self._follows:
                self._follow()
            if self._finishes:
                self._finish()
        finally:
            PUBLICATIONS.end_writing(self._stream)

    def _follow(self) -> None:
        """Looks at the inputs, again and again, until the run stops."""
        if not self._pace.has_interval:
            PUBLICATIONS.follow(self._bell.set, self._inputs)
        self._plan(is_soon=True)
        try:
            while self.life.goes_on:
                is_woken = self._wait()
                self._check()
                if self.life.goes_on and (is_woken or stopwatch_s() >= self._due_s):
                    self._turn(is_woken=is_woken)
        finally:
            PUBLICATIONS.unfollow(self._bell.set)

    def _wait(self) -> bool:
        """Waits for the next look, or the next check; returns whether somebody has rung the bell."""
        pause_s = max(0.0, min(self._due_s - stopwatch_s(), _CHECK_EVERY_S if len(self._sources) else _SPARK_EVERY_S))
        is_woken = self._bell.wait(pause_s)
        self._bell.clear()
        return is_woken

    def _inputs(self) -> list[str]:
        return [log.spec.id for log in self._job.inputs.logs]

    def _turn(self, *, is_woken: bool) -> None:
        """Looks once, and takes in what is new; what `process_all_available` waits for, wholly."""
        asked = self._asked
        self._pace.begins()
        is_new = self._has_grown()
        self._pace.saw(is_new=is_new)
        if is_new:
            self._take_in()
        if asked > self._answered:
            if is_new:
                self._job.inputs.refresh()
            self._take_in_time()
        elif not is_new and (is_woken or stopwatch_s() - self._timed_s >= _TIME_EVERY_S):
            self._take_in_time()
        self._plan(is_soon=is_new)
        with self._requests:
            self._answered = asked
            self._requests.notify_all()

    def _plan(self, *, is_soon: bool) -> None:
        """Decides when the next look is due. `is_soon`: after a batch, during which something may have come."""
        self._due_s = stopwatch_s()
        if self._pace.has_interval or not is_soon:
            self._due_s += self._pace.pause_s(is_woken=PUBLICATIONS.writes_all(self._inputs()))

    def _has_grown(self) -> bool:
        """Returns whether inputs have new tuples. If a look fails, the batch will meet the error, and raise it."""
        try:
            if not self._job.inputs.have_grown():
                return False
        except Exception:
            return True
        self._job.inputs.are_seen()
        return True

    def _take_in_time(self) -> None:
        """Takes in that time has passed, or that the input is finished, as the last look has found it."""
        self._timed_s = stopwatch_s()
        if self._job.time_has_passed():
            self._take_in()

    def _take_in(self, *, no_more: bool = False) -> None:
        writer = Writer(self._stream, self._run, self._batch)
        self._has_told = False
        self._now = stopwatch_s()
        try:
            self._job.catch_up(writer, self._may_go_on, self._tell, no_more=no_more)
        finally:
            self._now = None
        self._batch += self._has_told
        failpoint("before-spark-commit")

    def _may_go_on(self) -> bool:
        return self.life.goes_on or (self._finishes and not self._is_cancelled)

    def _tell(self, report: Mapping[str, Any]) -> None:
        self._has_told = True
        self._progress = {"batch": self._batch, **report}
        PUBLICATIONS.published(self._stream)
        self._events.progressed(report)

    def _check(self) -> None:
        """Raises what has stopped a source, and if Spark has not answered for long; stops when Spark has stopped."""
        now_s = stopwatch_s()
        if len(self._sources) and now_s - self._checked_s >= _CHECK_EVERY_S:
            self._checked_s = now_s
            if (problem := self._silence["sources"].ask(lambda: self._sources.failure, otherwise=None)) is not None:
                raise problem
        if now_s - self._spark_checked_s >= _SPARK_EVERY_S:
            self._spark_checked_s = now_s
            if self._silence["spark"].ask(self._spark_has_stopped, otherwise=False):
                self.life.stop()

    def _spark_has_stopped(self) -> bool:
        context: Any = self._spark.sparkContext
        return context._jsc is None or bool(context._jsc.sc().isStopped())

    # ------------------------------------------------------------------ its streams' end

    def _finish(self) -> None:
        self._sources.finish()
        self._take_in()
        self._is_finished = True

    def _finish_late(self) -> None:
        with contextlib.suppress(Exception), translated(self.place.url), self._job.cancellable():
            self._finish()
