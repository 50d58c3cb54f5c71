"""The run of an entry point: Spark's streaming query calls it with every batch, and operators behind it follow.

Spark commits that the input is published. The operators need nothing else: should one be stopped before it has taken
that in, it will find it in the stream. Several users may hold the run; it goes on as long as one of them does.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.errors import OptionError, StrandlineError, StrandlineWarning
from strandline.failpoint import failpoint
from strandline.log.stream.log_errors import unfinished
from strandline.spark.entry.batch_writer import BatchWriter
from strandline.spark.query.error_in_text import meaning
from strandline.spark.query.fused_run import FusedRun
from strandline.spark.query.life import Life
from strandline.spark.query.publications import PUBLICATIONS
from strandline.spark.query.silence import Silence
from strandline.spark.session.place import Place
from strandline.spark.session.preconditions import written_already
from strandline.user_warning import warn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from strandline.spark.entry.entry_handle import EntryHandle
    from strandline.spark.operator.processing_element import QueryOptions

# Spark tells an interruption from a failure by this text, searched for with a regular expression that overflows the
# stack on a traceback of ordinary length; so what we raise is short.
_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling a batch.\n: java.lang.InterruptedException"
_SAVE_EVERY_S = 1.0
_SPARK_EVERY_S = 1
_SILENCE_S = 10.0
_LOOK_S = 0.1
_PATIENCE_S = 60.0


class EntryRun:
    """A `foreachBatch` function with a beginning and an end, its operators, and the handles of those who hold it."""

    spark_query: StreamingQuery

    def __init__(self, writer: BatchWriter, options: QueryOptions) -> None:
        self.writer = writer
        self.place = writer.place
        self.options = options
        self.life = Life()
        self.operators: list[FusedRun] = []
        self.end_is_heard = False
        """True if a user of the run knows that it has ended; until then other users may expect to join it."""
        self._again: Callable[[], StreamingQuery] | None = None
        self._spark_has_stopped: Callable[[], bool] = lambda: False
        self._started = threading.Event()
        self._at_work = threading.Lock()
        self._stopping = threading.Event()
        self._now: tuple[int, float] | None = None
        self._is_proving = self._has_more = False
        """Of a final run: whether all is published, as far as is known; whether a batch that came has refuted that."""
        self._finishes = self._is_finished = False
        self._lock = threading.Lock()
        self._handles: list[EntryHandle] = []
        self._is_closed = False

    @property
    def running(self) -> Mapping[str, Any]:
        """The batch under way: its number, seconds so far; empty if there is none."""
        now = self._now
        return {} if now is None else {"batch": now[0], "seconds": round(stopwatch_s() - now[1], 3)}

    # ------------------------------------------------------------------ its life

    def begin(
        self, spark_query: StreamingQuery, again: Callable[[], StreamingQuery], spark_has_stopped: Callable[[], bool]
    ) -> None:
        """Says which query of Spark's this is; Spark may call with the first batch before. `again` starts it once more.

        A final run does that when the query has ended, for a proof: one that Spark was told to stop between two batches
        ends well, too.
        """
        self.spark_query, self._again, self._spark_has_stopped = spark_query, again, spark_has_stopped
        self.writer.begin(spark_query)
        self.life.begin()
        self._started.set()
        PUBLICATIONS.begin_writing(self.writer.stream)
        # Daemons: a program that ends without stopping its query must not be kept alive by them.
        threading.Thread(target=self._await_the_end, name="strandline-end", daemon=True).start()
        every_s = self.writer.heartbeat_s
        if every_s is None and any(operator.is_at_risk for operator in self.operators):
            every_s = _SAVE_EVERY_S
        if every_s is not None:
            threading.Thread(target=self._beat, args=(every_s,), name="strandline-ticker", daemon=True).start()

    def _await_the_end(self) -> None:
        """Waits for the end of Spark's query, finishes the stream if it is to, and ends the life of this run."""
        with contextlib.ExitStack() as ending:  # backwards
            ending.callback(self.life.end)
            ending.callback(self.writer.close)
            ending.callback(PUBLICATIONS.end_writing, self.writer.stream)
            ending.callback(self._stopping.set)
            try:
                self._await(self.spark_query)
                if self.options.final and self.life.goes_on:
                    self._prove_the_end()
                elif self._finishes:
                    self._finish()
            except Exception as problem:
                self.life.fail(meaning(problem, self.place.url))
                # Nothing of it may go on unseen. In a thread of its own: Spark waits for the batch under way.
                threading.Thread(target=self._end_idle, daemon=True).start()

    def _await(self, query: StreamingQuery) -> None:
        """Waits until the query has ended; raises its error. One without work outlives a Spark that is stopped.

        A call to Spark that fails while the query goes on says nothing of it: the next call may be answered.
        """
        silence, found = Silence(self.place.url, _SILENCE_S), list[Exception]()

        def has_ended() -> bool:
            try:
                is_over = query.awaitTermination(_SPARK_EVERY_S)
            except Exception as problem:
                if not self._spark_has_stopped() and query.isActive:
                    SYSTEM_CLOCK.sleep(_LOOK_S)
                    raise
                found.append(problem)
                return True
            if not is_over and self._spark_has_stopped():
                self.life.stop()
                return True
            return bool(is_over)

        while not silence.ask(has_ended, otherwise=False):
            pass
        if found:
            raise found[0]

    def _prove_the_end(self) -> None:
        """Runs Spark's query once more; if that finds nothing to do, all is there, and the stream is finished."""
        assert self._again is not None
        self._is_proving = True
        try:
            self._await(self._again())
        except Exception:
            if not self.life.goes_on:
                return
            if self._has_more:
                raise unfinished(self.place.url) from None
            raise
        if self.life.goes_on and self.writer.is_all_published():
            self._finish()

    def _finish(self) -> None:
        """Publishes that nothing will follow, and lets the operators take that in."""
        self.life.stop()
        with self._at_work:
            self.writer.finish()
        self._is_finished = True
        for operator in list(self.operators):
            operator.rest(None)
            operator.hand_over(self.writer.last_writer)
            operator.rest(None)

    def stop(self, patience_s: float | None) -> bool:
        """Lets no further batch begin; returns True when the one under way is published, False if it takes longer."""
        self.life.stop()
        self._stopping.set()
        is_free = self._at_work.acquire(timeout=-1 if patience_s is None else patience_s)
        if is_free:
            self._at_work.release()
        return is_free

    def end(self, patience_s: float | None) -> bool:
        """Ends Spark's query; returns False if this run takes longer to end."""
        try:
            self.spark_query.stop()
        except Exception:
            if not self._spark_has_stopped():
                raise
        return self.life.wait(patience_s)

    def finish(self) -> None:
        """Ends Spark's query, which has been stopped, and finishes the stream."""
        self._finishes = True
        self.end(None)
        if self.life.failure is None and not self._is_finished:  # it had ended before
            self._finish()

    # ------------------------------------------------------------------ batches

    def __call__(self, df: DataFrame, batch: int) -> None:
        """Publishes a batch, then lets operators take in what is published: Spark calls this."""
        self._started.wait()
        with self._at_work:
            if self._is_proving:
                self._has_more = True
                raise InterruptedError(_INTERRUPTED)
            if self.life.goes_on:
                self._now = batch, stopwatch_s()
                try:
                    with self._in_words():
                        writer = self.writer.publish(df, batch)
                        for operator in list(self.operators):  # never the rows that came again
                            operator.hand_over(writer)
                        failpoint("before-spark-commit")
                finally:
                    self._now = None
                return
        while self.spark_query.isActive:
            SYSTEM_CLOCK.sleep(0.005)
        raise InterruptedError(_INTERRUPTED)

    @contextlib.contextmanager
    def _in_words(self) -> Iterator[None]:
        """Keeps errors, and raises them as what they mean: Spark hands them on as text."""
        try:
            yield
        except Exception as problem:
            if not isinstance(problem, StrandlineError) and _was_interrupted(problem):
                raise InterruptedError(_INTERRUPTED) from None
            found = meaning(problem, self.place.url)
            if not isinstance(found, StrandlineError):
                raise
            if not self.life.has_ended:  # else Spark was told to stop without waiting for this batch
                self.life.fail(found)
            raise found.with_traceback(None) from None  # Spark puts all of it into its log, twice

    # ------------------------------------------------------------------ while nothing comes

    def _beat(self, every_s: float) -> None:
        """Sends heartbeats, and saves states in time, again and again, while no batch is under way."""
        try:
            while not self._stopping.wait(every_s):
                if self._at_work.acquire(blocking=False):
                    try:
                        if self.life.goes_on:
                            self._idle()
                    finally:
                        self._at_work.release()
        except Exception as problem:
            if self.life.goes_on:
                self.life.fail(meaning(problem, self.place.url))
                self._end_idle()  # a failure is not to go unnoticed for want of input

    def _idle(self) -> None:
        """Sends a heartbeat, which operators take in, if none of them is at work; then saves what must be saved."""
        operators = list(self.operators)
        is_busy = any(operator.is_busy for operator in operators)
        is_new = not is_busy and self.writer.beat(lambda: self.life.goes_on)
        for operator in operators:
            operator.idle(self.writer.last_writer, is_new=is_new)

    # ------------------------------------------------------------------ those who hold it

    @property
    def is_open(self) -> bool:
        """True as long as an operator can join it."""
        return not self._is_closed and self.life.goes_on and bool(self.spark_query.isActive)

    def require_same(self, options: QueryOptions) -> None:
        """Raises `OptionError` if an operator asks for what the query that it joins does not do."""
        own = self.options
        if options.trigger not in (None, own.trigger):
            asked = f"trigger={options.trigger!r}"
        elif options.spark_checkpoint_dir not in (None, own.spark_checkpoint_dir):
            asked = f"spark_checkpoint_dir={options.spark_checkpoint_dir!r}"
        elif options.final and not own.final:
            asked = "final=True"
        else:
            return
        raise OptionError(
            f"{asked}, but the source is being read already, with trigger={own.trigger!r}, "
            f"spark_checkpoint_dir={own.spark_checkpoint_dir!r}, final={own.final}: "
            "operators of one source share its query",
            where=self.place.url,
            todo="pass the same values to all operators of the source, or leave them out; or stop the other operators "
            "first",
        )

    def require_no_other(self, place: Place) -> None:
        """Raises `SecondWriterError` if an operator writes there already."""
        with self._lock:
            operators = [handle.operator for handle in self._handles if handle.operator is not None]
        if any(operator.place.url == place.url for operator in operators):
            raise written_already(place.url, "an operator of this program on the same source")

    def hold(self, handle: EntryHandle) -> EntryHandle:
        """Adds the first handle."""
        with self._lock:
            self._handles.append(handle)
        return self._begin(handle)

    def join(self, handle: EntryHandle) -> EntryHandle | None:
        """Adds one more handle, whose operator follows from now on; returns None if the run is coming to its end."""
        with self._lock:  # the thread that ends it has closed it before, or finds this operator
            if not self.is_open:
                return None
            self._handles.append(handle)
            if (operator := handle.operator) is not None:
                self.operators.append(operator)
                operator.hand_over(self.writer.last_writer)
        return self._begin(handle)

    def _begin(self, handle: EntryHandle) -> EntryHandle:
        if (operator := handle.operator) is not None:
            operator.when_failed = lambda: self._failed(handle)
            operator.begin()
            if operator.life.failure is not None:
                self._failed(handle)
        return handle

    def close(self) -> None:
        """Lets no other join it."""
        with self._lock:
            self._is_closed = True

    def leave(self, handle: EntryHandle) -> bool:
        """Detaches a handle and its operator, and returns False; of the last one closes the run, and returns True."""
        with self._lock:
            if handle not in self._handles:
                return False
            if len(self._handles) == 1:
                self._is_closed = True
                return True
            self._handles.remove(handle)
        if handle.operator is not None:
            self.operators.remove(handle.operator)
        handle.has_left = True
        return False

    def wait_for_the_end(self) -> None:
        """Waits until nothing of it works any more: the next run of the source must not meet it.

        The end of Spark's query is waited for as long as `Query.stop` would.
        """
        self.life.wait(_PATIENCE_S)
        for operator in list(self.operators):
            operator.rest(None)

    def _failed(self, handle: EntryHandle) -> None:
        """Detaches an operator that failed, and warns: no thread may wait for it. The query ends with the last one."""
        problem = handle.exception()
        if self.leave(handle):
            # In a thread of its own: it waits for the batch under way, which may wait for this operator.
            threading.Thread(target=self._end_idle, daemon=True).start()
            return
        with contextlib.suppress(StrandlineWarning):  # made an error, it would end the source
            warn(f"the operator of {handle.place.url} has failed, others on its source go on: {problem}")

    def _end_idle(self) -> None:
        self.stop(None)
        with contextlib.suppress(Exception):  # the user, or Spark, was faster
            self.spark_query.stop()


def _was_interrupted(problem: BaseException) -> bool:
    text = str(problem)
    return "InterruptedException" in text or "InterruptedIOException" in text or "ClosedByInterrupt" in text
