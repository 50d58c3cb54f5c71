"""What Spark calls when an operator may have something to do.

Over a stream, Spark's query is only a clock with a good reason to tick: the operator takes in whatever the input holds,
from where its own manifests say it stands. Fused with an entry point, the same happens after each batch is published,
while Spark is at the next one already.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from strandline.clock import stopwatch_s
from strandline.failpoint import failpoint
from strandline.log.stream.manifest import Writer
from strandline.spark.entry.batch_writer import BatchWriter
from strandline.spark.entry.spark_checkpoint import FOLDER
from strandline.spark.operator.lookout import Lookout
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.query.batch_handler import BatchHandler
from strandline.spark.query.following import FollowingOperator
from strandline.spark.query.listener_events import QueryNumbers
from strandline.spark.query.silence import Silence
from strandline.spark.query.sources import Sources
from strandline.spark.session.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from strandline.spark.operator.ticks import Ticks

_OLD_US = 24 * 3_600_000_000
_ASK_EVERY_S = 0.15
"""At most so often Spark is asked whether all goes on, and it is computed whether time has passed."""
_ASK_AFTER_S = 1.0
"""A failure, or an end, is noticed by then, whatever the trigger's interval."""
_NOBODY = Writer("", "", -1)


class OperatorBatches(BatchHandler):
    """An operator over a stream that exists: over what it holds now and, if it `follows`, what will come."""

    def __init__(
        self,
        place: Place,
        job: OperatorJob,
        ticks: Ticks,
        every_s: float = 0.0,
        *,
        follows: bool = True,
        sources: Sources | None = None,
    ) -> None:
        super().__init__(place)
        self._sources = sources or Sources()
        self._job = job
        self._follows = follows
        self._lookout = Lookout(job.inputs, ticks, every_s)
        self._untold = Silence(place.url)  # when Spark is told of new tuples
        self._unheard = Silence(place.url)  # when it is asked how the sources are
        self._looks = False
        self._asked_s = self._idled_s = 0.0
        last = job.output.state.writer
        self._batch = -1 if last is None else last.batch
        self._numbers = QueryNumbers()
        self._taken = 0
        if standing := job.standing():
            self._tell(standing)

    @property
    def tick_every_s(self) -> Callable[[], float] | None:
        """Until the next look at the input, or until Spark is asked how it is; never, if it is not to follow."""
        return self._pause_s if self._follows else None

    def _pause_s(self) -> float:
        is_heard = self._silence.is_broken and self._untold.is_broken and self._unheard.is_broken
        left_s = self._lookout.pause_s() if is_heard else _ASK_AFTER_S
        self._looks = left_s <= _ASK_AFTER_S
        return min(left_s, _ASK_AFTER_S)

    def idle(self) -> None:
        """If a look is due: lets Spark know of new tuples. Without any, takes in that time has passed, or the end.

        Both by one look: on a slow store, neither keeps the other from its turn.
        """
        if self._looks and not self._tell_spark() and stopwatch_s() - self._idled_s >= _ASK_EVERY_S:
            self._idled_s = stopwatch_s()
            self._take_in_time()

    def look(self) -> None:
        """Lets Spark know of all tuples that the input has now; raises if it cannot be told."""
        with self._at_work:
            self._lookout.look()

    def _tell_spark(self) -> bool:
        """The same; whether there were any. If Spark cannot be told, the next look tells, and raises after a minute."""
        return self._untold.ask(self._lookout.look, otherwise=True)

    def _take_in_time(self) -> None:
        """Takes in that time has passed, or that the input is finished, as the last look has found it."""
        if self._job.time_has_passed():
            with self._job.cancellable():
                self._job.catch_up(Writer(self._query, self._run, self._batch), lambda: not self._stopping, self._tell)

    def take_in_all(self) -> None:
        """Takes in all that is published by now, also what Spark knows nothing of."""
        self._sources.take_in_all()
        with self._at_work, self._in_words():
            if not self._stopping:
                self._job.inputs.refresh()
                self._take_in_time()

    def require_can_complete(self) -> None:
        """Raises unless all of its inputs are sources of its own: they decide when their streams are finished."""
        if len(self._sources) < len(self._job.inputs.logs):
            super().require_can_complete()

    def complete(self, *, when_done: bool) -> None:
        """Finishes the streams of its sources, and takes that in."""
        super().complete(when_done=when_done)
        self._sources.finish()
        self._job.catch_up(self._job.output.state.writer or _NOBODY, lambda: True, self._tell)

    def halt(self, timeout_s: float | None) -> bool:
        """Returns when the batch under way is published; what runs beside Spark's batches is stopped if it must."""
        is_done = super().halt(timeout_s)
        if not is_done:
            self._job.cancel()
        return is_done

    def handle(self, df: DataFrame, batch: int) -> None:
        """Takes in what the input has. The DataFrame itself is never read."""
        self._batch = batch
        self._taken = 0
        writer = Writer(self._query, self._run, batch)
        self._job.catch_up(writer, lambda: not self._stopping, self._tell, no_more=not self._follows)
        self._numbers.put(self._spark_query, df.sparkSession._jvm, self._taken, self.progress)
        if self._follows:
            self._tell_spark()  # what came meanwhile need not wait for the next look
        failpoint("before-spark-commit")

    @property
    def running(self) -> Mapping[str, Any]:
        """The batch under way, and the steps in it."""
        return {**super().running, **self._job.running}

    @property
    def report(self) -> Mapping[str, Any]:
        """What the last batch did, how far each of several inputs is, what the last batches of its own sources did."""
        reports = self._sources.reports
        return {**self.progress, **self._job.lags, **({"sources": reports} if reports else {})}

    def _tick(self) -> bool:
        """Also ends the sources when the operator has ended."""
        goes_on = super()._tick()
        if not goes_on:
            self._sources.stop()
        return goes_on

    def _is_over(self) -> bool:
        """Also raises what has stopped a source. Looks may come more often than Spark is asked."""
        if stopwatch_s() - self._asked_s < _ASK_EVERY_S:
            return False
        self._asked_s = stopwatch_s()
        if (problem := self._unheard.ask(lambda: self._sources.failure, otherwise=None)) is not None:
            raise problem
        return super()._is_over()

    def _tell(self, report: Mapping[str, Any]) -> None:
        self._taken += report["input_tuples"]
        self.progress = {"batch": self._batch, **report}

    def settle(self, timeout_s: float | None) -> bool:
        """Ends what is done for the stream beside the batches, for which nobody has to wait, and its own sources."""
        is_done = super().settle(timeout_s)
        if self._ticker is not None:
            self._ticker.stop()
        self._job.close()
        self._sources.stop()
        return is_done


class FusedBatches(BatchWriter):
    """An entry point, with operators that follow it, each at most one batch behind.

    What Spark commits is that the input is published. The operators need nothing else: should one be stopped before it
    has taken that in, it will find it in the stream.
    """

    operators: list[FollowingOperator]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.operators = []

    @property
    def tick_every_s(self) -> float | None:
        """As often as there is a heartbeat; without one, as an operator needs that is to save its state in time."""
        every_s = super().tick_every_s
        if every_s is None and any(operator.is_at_risk for operator in self.operators):
            return _ASK_AFTER_S
        return every_s

    @property
    def input_housekeeping(self) -> Mapping[str, Any]:
        """What was done for this stream, by the name it has beside what was done for an operator's."""
        return {f"input_{name}": done for name, done in self._housekeeping.report.items()}

    @property
    def last_writer(self) -> Writer:
        """Who published last; whoever takes that in, notes it."""
        return self._log.state.writer or _NOBODY

    def join(self, operator: FollowingOperator) -> None:
        """From now on the operator follows, from wherever it stands."""
        self.operators.append(operator)
        operator.hand_over(self.last_writer)

    def idle(self) -> None:
        """A heartbeat, which the operators take in; none while one is at work. Then what must be saved."""
        operators = list(self.operators)
        if not any(operator.is_busy for operator in operators) and self._beat():
            for operator in operators:
                operator.notice_time(self.last_writer)
        for operator in operators:
            operator.save_in_time(self.last_writer)

    def complete(self, *, when_done: bool) -> None:
        """Finishes the stream, and lets the operators take that in."""
        super().complete(when_done=when_done)
        if self.failure is not None:
            raise self.failure
        for operator in list(self.operators):
            operator.take_in_the_end(self.last_writer)

    def handle(self, df: DataFrame, batch: int) -> None:
        """Publishes the batch, then lets operators take in what is published: never the rows that came again."""
        self._publish(df, batch)
        for operator in list(self.operators):
            operator.hand_over(Writer(self._query, self._run, batch))
        failpoint("before-spark-commit")


def ticking_checkpoint(place: Place, stream: Place) -> Place:
    """Returns a new folder for what Spark notes of this run of the stream's operator; deletes those of old runs.

    Nothing in them is needed again. Operators may be given one place: each deletes its own folders, for a run of
    another that has been quiet for long looks like an old one.
    """
    storage, own = place.storage(), hashlib.sha256(stream.url.encode()).hexdigest()[:12]
    folders: dict[str, Any] = {}
    for listed in storage.list(FOLDER):
        run = listed.key.split("/")[1]
        if run.startswith(f"{own}-") or place.url == stream.url:
            folders.setdefault(run, []).append(listed)
    newest = max((file.modified_us for files in folders.values() for file in files), default=0)
    for files in folders.values():
        if max(file.modified_us for file in files) < newest - _OLD_US:
            for file in files:
                storage.delete(file.key)
    return place.below(f"{FOLDER}/{own}-{uuid.uuid4().hex}")
