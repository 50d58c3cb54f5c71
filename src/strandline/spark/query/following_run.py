"""The run of an operator over streams that exist: it looks at them, and takes in what is new."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.clock import stopwatch_s
from strandline.errors import OptionError
from strandline.failpoint import failpoint
from strandline.log.storage.redaction import redacted_url
from strandline.log.stream.manifest import Writer
from strandline.running.tick import Tick
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.query.element_run import ElementRun
from strandline.spark.query.error_in_text import meaning, translated
from strandline.spark.query.listener_events import ListenerEvents
from strandline.spark.query.operator_run import OperatorRun
from strandline.spark.query.pace import Pace
from strandline.spark.query.publications import PUBLICATIONS
from strandline.spark.query.query import Query, stop_all
from strandline.spark.query.silence import Silence
from strandline.spark.session.place import Place
from strandline.spark.session.preconditions import has_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECK_EVERY_S = 0.25
"""So often sources are asked whether they have failed, whatever the trigger's interval."""
_SPARK_EVERY_S = 1.0


class FollowingRun(OperatorRun, ElementRun):
    """An operator over streams: it takes in their tuples and, if it `follows`, those that will come."""

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
        sources: Sequence[Query] = (),
    ) -> None:
        super().__init__(place, job, events, name)
        self._pace = pace
        self._spark = spark
        self._follows = follows
        self._sources = sources
        """The queries that persist the DataFrames among the inputs: they started before it, and end with it."""
        self._finishes = self._is_finished = False
        self._due_s = self._checked_s = self._spark_checked_s = 0.0
        self._silence = Silence(place.url)
        self._batch = 0
        self._has_told = self._has_come = False
        """True if the batch under way has published something; True if tuples have come since the last look."""
        if self._progress:
            last = job.output.state.writer
            self._progress = {"batch": -1 if last is None else last.batch, **self._progress}

    @property
    def report(self) -> Mapping[str, Any]:
        """The figures of the last batch, how far each of several inputs is, the last batches of its own sources."""
        sources = [{"path": redacted_url(query.urls[0]), **query.progress} for query in self._sources]
        return {**self._progress, **self._job.lags, **({"sources": sources} if sources else {})}

    @property
    def running(self) -> Mapping[str, Any]:
        """The batch under way, and the steps in it."""
        began_s = self._began_s
        batch = {} if began_s is None else {"batch": self._batch, "seconds": round(stopwatch_s() - began_s, 3)}
        return {**batch, **self._job.running}

    def finish(self) -> None:
        """Ends the run, finishes the streams of its sources, and takes that in.

        Raises if an input is no source of its own: others decide when that stream is finished.
        """
        if len(self._sources) < len(set(self._inputs())):
            raise OptionError(
                "finish() does not work for an operator over a stream: it finishes when its input is finished",
                where=self.place.url,
                todo="finish the input in the program that writes it: the operator then closes its windows and "
                "finishes its results",
            )
        self._finishes = True
        self.stop(None)
        if not self._is_finished and self.life.failure is None:  # it had ended before
            thread = threading.Thread(target=self._finish_late, name="strandline-end", daemon=True)
            thread.start()
            thread.join()

    def process_all_available(self) -> None:
        """Lets its sources, then the operator, take in everything that there is now."""
        for query in self._sources:
            if query.is_active:
                query.process_all_available()
        with self._requests:
            self._asked += 1
            self._bell.set()
            self._is_answered(self._asked, None)

    # ------------------------------------------------------------------ its thread

    def _work(self) -> None:
        if self._follows and self._pace.heeds_publications:  # also those during the first batch
            PUBLICATIONS.follow(self._bell.set, self._inputs)
        self._pace.begins()
        self._run_batch(no_more=not self._follows)
        if self._follows:
            self._follow()
        if self._finishes:
            self._finish()

    def _close(self) -> None:
        PUBLICATIONS.unfollow(self._bell.set)
        try:
            stop_all(self._sources)
        finally:
            super()._close()

    def _follow(self) -> None:
        """Looks at the inputs, again and again, until the run stops."""
        self._plan(is_soon=True)
        while self.life.goes_on:
            pause_s = max(0.0, min(self._due_s - stopwatch_s(), _CHECK_EVERY_S if self._sources else _SPARK_EVERY_S))
            is_woken = self._bell.wait(pause_s)
            self._bell.clear()
            self._check()
            if self.life.goes_on and (is_woken or stopwatch_s() >= self._due_s):
                self._turn()

    def _inputs(self) -> list[str]:
        return [log.spec.id for log in self._job.inputs.logs]

    def _turn(self) -> None:
        """Looks, and takes in what is new: for `process_all_available`, until a look finds nothing."""
        asked, self._has_come = self._asked, False
        self._pace.begins()
        found = tick = self._look()
        while tick is not None:
            self._run_batch(tick)
            tick = self._look() if asked > self._answered and self.life.goes_on else None
        self._pace.saw(is_new=self._has_come)
        self._plan(is_soon=found is not None)
        self._answer(asked)

    def _plan(self, *, is_soon: bool) -> None:
        """Decides when the next look is due. `is_soon`: after a batch, during which something may have come."""
        self._due_s = stopwatch_s()
        if self._pace.has_interval or not is_soon:
            self._due_s += self._pace.pause_s(is_woken=PUBLICATIONS.writes_all(self._inputs()))

    def _look(self) -> Tick | None:
        """Returns what is to be done now. A look that fails is made once more: perhaps a single request has failed."""
        try:
            return self._job.look()
        except Exception:
            return self._job.look()

    def _run_batch(self, tick: Tick | None = None, *, no_more: bool = False) -> None:
        """Runs one batch, from the tick that a look has found, or else from a look."""
        self._has_told = False
        with self._shown():
            writer = Writer(self.id, self.run_id, self._batch)
            self._job.catch_up(writer, self._may_go_on, self._tell, tick, no_more=no_more)
        self._batch += self._has_told
        failpoint("before-spark-commit")

    def _may_go_on(self) -> bool:
        return self.life.goes_on or (self._finishes and not self._is_cancelled)

    def _tell(self, report: Mapping[str, Any]) -> None:
        self._has_told = True
        self._has_come |= report["input_tuples"] > 0
        super()._tell({"batch": self._batch, **report})

    def _check(self) -> None:
        """Raises what has stopped a source, and if Spark has not answered for long; stops when Spark has stopped."""
        now_s = stopwatch_s()
        if self._sources and now_s - self._checked_s >= _CHECK_EVERY_S:
            self._checked_s = now_s
            for query in self._sources:
                if (problem := query.exception()) is not None:
                    raise meaning(problem, query.urls[0])
        if now_s - self._spark_checked_s >= _SPARK_EVERY_S:
            self._spark_checked_s = now_s
            if self._silence.ask(lambda: has_stopped(self._spark), otherwise=False):
                self.life.stop()

    # ------------------------------------------------------------------ its streams' end

    def _finish(self) -> None:
        for query in self._sources:
            query.finish()
        self._run_batch()
        self._is_finished = True

    def _finish_late(self) -> None:
        with contextlib.suppress(Exception), translated(self.place.url), self._job.cancellable():
            self._finish()
