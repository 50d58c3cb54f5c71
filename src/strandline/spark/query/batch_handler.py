"""What Spark calls with every batch: one at a time, failures in words, an end that waits for the batch under way."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.errors import StrandlineError
from strandline.log.stream.log_errors import unfinished
from strandline.spark.query.element_run import cannot_finish
from strandline.spark.query.error_in_text import meaning
from strandline.spark.query.silence import Silence
from strandline.spark.query.ticker import Ticker
from strandline.spark.session.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

# Spark tells an interruption from a failure by this text, searched for with a regular expression that overflows the
# stack on a traceback of ordinary length; so what we raise is short.
_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling a batch.\n: java.lang.InterruptedException"


class BatchHandler(ABC):
    """A `foreachBatch` function with a beginning and an end."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.progress: Mapping[str, Any] = {}
        self.failure: Exception | None = None
        self._spark_query: StreamingQuery | None = None
        self._query = ""
        self._run = ""
        self._started = threading.Event()
        self._at_work = threading.Lock()
        self._stopping = False
        self._ticker: Ticker | None = None
        self._silence = Silence(place.url)
        self._finisher: threading.Thread | None = None
        self._is_done = False
        """Whether all is published, as far as is known: a batch that comes now is the proof that it is not."""
        self._has_more = False
        self._now: tuple[int, float] | None = None

    @abstractmethod
    def handle(self, df: DataFrame, batch: int) -> None:
        """One batch. Raises, and publishes nothing, if anything is not as it should be."""

    def runs_in(self, spark_query: StreamingQuery) -> None:
        """Says which query this is; Spark may call with the first batch before it has told anybody."""
        self._spark_query = spark_query
        self._query, self._run = str(spark_query.id), str(spark_query.runId)
        self._started.set()
        if (pause_s := self.tick_every_s) is not None:
            self._ticker = Ticker("strandline-ticker", pause_s, self._tick)
            self._ticker.start()

    @property
    def tick_every_s(self) -> float | Callable[[], float] | None:
        """How often `idle` is called, or what says how long until the next time; None: never."""
        return None

    def idle(self) -> None:  # noqa: B027, most have nothing to do then
        """Called now and then while no batch is under way."""

    def complete(self, *, when_done: bool) -> None:
        """Publishes that nothing will follow; `when_done`: only if nothing is left that Spark has begun."""
        self.require_can_complete()

    def require_can_complete(self) -> None:
        """Raises unless this query decides when its stream is finished."""
        raise cannot_finish(self.place)

    @property
    def urls(self) -> tuple[str, ...]:
        """Where the streams are that are written."""
        return (self.place.url,)

    @property
    def report(self) -> Mapping[str, Any]:
        """What the last batch did."""
        return self.progress

    @property
    def running(self) -> Mapping[str, Any]:
        """The batch under way: its number, seconds so far; empty if none is."""
        now = self._now
        return {} if now is None else {"batch": now[0], "seconds": round(stopwatch_s() - now[1], 3)}

    @property
    def spark_progress(self) -> Iterable[Any] | None:
        """What Spark's listeners were told, if that is not what Spark's own query has told them."""
        return None

    @property
    def is_stopping(self) -> bool:
        """Whether no further batch will begin."""
        return self._stopping

    @property
    def is_busy(self) -> bool:
        """Whether there is work left that Spark does not know of."""
        return self._finisher is not None and self._finisher.is_alive()

    def settle(self, timeout_s: float | None) -> bool:
        """Waits for such work, once Spark's query has ended; False if it takes longer."""
        if self._finisher is not None:
            self._finisher.join(timeout_s)
        return not (self._finisher is not None and self._finisher.is_alive())

    def take_in_all(self) -> None:  # noqa: B027, most have nothing to do then
        """Returns when the work is done that is left once Spark has none."""

    def halt(self, timeout_s: float | None) -> bool:
        """Returns when the batch under way is published (True), or when that has taken too long; no other begins."""
        self._stopping = True
        if self._ticker is not None:
            self._ticker.stop()
        is_free = self._at_work.acquire(timeout=-1 if timeout_s is None else timeout_s)
        if is_free:
            self._at_work.release()
        return is_free

    def finish_stream(self, again: Callable[[], StreamingQuery] | None = None) -> None:
        """Completes the stream in a thread of its own: now, or when Spark's query has ended well by itself.

        Then `again` starts it once more, for a proof: one that somebody has stopped between two batches ends well, too.
        """
        self._finisher = threading.Thread(target=self._finish, args=(again,), name="strandline-end", daemon=True)
        self._finisher.start()

    def _finish(self, again: Callable[[], StreamingQuery] | None) -> None:
        query = self._spark_query
        try:
            if again is not None and query is not None:
                if not self._ends_by_itself(query):
                    return
                self._is_done = True
                if not self._ends_by_itself(again()):
                    return
        except Exception:
            # Whoever waits for the query hears of it; the stream goes on where it stands.
            if self._has_more and not self._stopping:
                self.failure = self.failure or unfinished(self.place.url)
            return
        try:
            self.complete(when_done=again is not None)
        except Exception as problem:
            self.failure = self.failure or problem

    def _ends_by_itself(self, query: StreamingQuery) -> bool:
        """Waits for the end of Spark's query; False if `halt` has brought it about. Raises what has stopped it."""
        query.awaitTermination()
        return not self._stopping

    def __call__(self, df: DataFrame, batch: int) -> None:
        """For Spark."""
        self._started.wait()
        with self._at_work:
            if self._is_done:
                self._has_more = True
                raise InterruptedError(_INTERRUPTED)
            if not self._stopping:
                self._now = batch, stopwatch_s()
                try:
                    with self._in_words():
                        self.handle(df, batch)
                finally:
                    self._now = None
                return
        self._wait_for_the_end()

    def _tick(self) -> bool:
        """One tick; False if there is to be no other. What goes wrong ends the query."""
        try:
            if self._stopping or self._is_over():
                return False
            if self._at_work.acquire(blocking=False):
                try:
                    if not self._stopping:
                        with self._in_words():
                            self.idle()
                finally:
                    self._at_work.release()
            return True
        except Exception as problem:
            if not self._stopping:
                self.failure = self.failure or problem
        self.end()
        return False

    def _is_over(self) -> bool:
        """Whether Spark's query has ended; raises if Spark has not said for long."""
        query = self._spark_query
        return query is None or not self._silence.ask(lambda: query.isActive, otherwise=True)

    def end(self) -> None:
        """Ends the query once it is idle: a failure is not to go unnoticed for want of input."""
        self._stopping = True
        with self._at_work:
            query = self._spark_query
        with contextlib.suppress(Exception):  # whoever stopped it, or Spark, was faster
            if query is not None and query.isActive:
                query.stop()

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
            self.failure = found
            raise found.with_traceback(None) from None  # Spark puts all of it into its log, twice

    def _wait_for_the_end(self) -> None:
        while self._spark_query is not None and self._spark_query.isActive:
            SYSTEM_CLOCK.sleep(0.005)
        raise InterruptedError(_INTERRUPTED)


def _was_interrupted(problem: BaseException) -> bool:
    text = str(problem)
    return "InterruptedException" in text or "InterruptedIOException" in text or "ClosedByInterrupt" in text
