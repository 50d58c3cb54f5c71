"""What Spark calls with every batch: one at a time, failures in words, an end that waits for the batch under way."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import StrandlineError
from strandline.spark.failure import failure_in
from strandline.spark.place import Place

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

    @abstractmethod
    def handle(self, df: DataFrame, batch: int) -> None:
        """One batch. Raises, and publishes nothing, if anything is not as it should be."""

    def runs_in(self, spark_query: StreamingQuery) -> None:
        """Says which query this is; Spark may call with the first batch before it has told anybody."""
        self._spark_query = spark_query
        self._query, self._run = str(spark_query.id), str(spark_query.runId)
        self._started.set()

    @property
    def report(self) -> Mapping[str, Any]:
        """What the last batch did."""
        return self.progress

    @property
    def is_busy(self) -> bool:
        """Whether there is work left that Spark does not know of."""
        return False

    def settle(self, timeout_s: float | None) -> bool:
        """Waits for such work, once Spark's query has ended; False if it takes longer."""
        return True

    def finish(self, timeout_s: float) -> None:
        """Returns when the batch under way is published, or when that has taken too long; no other begins."""
        self._stopping = True
        if self._at_work.acquire(timeout=timeout_s):
            self._at_work.release()

    def __call__(self, df: DataFrame, batch: int) -> None:
        """For Spark."""
        self._started.wait()
        with self._at_work:
            if not self._stopping:
                with self._in_words():
                    self.handle(df, batch)
                return
        self._wait_for_the_end()

    @contextlib.contextmanager
    def _in_words(self) -> Iterator[None]:
        """Errors as what they mean, and kept: Spark hands them on as text."""
        try:
            yield
        except StrandlineError as problem:
            self.failure = problem
            raise
        except Exception as problem:
            if _was_interrupted(problem):
                raise InterruptedError(_INTERRUPTED) from None
            if (found := failure_in(str(problem), self.place.url)) is None:
                raise
            self.failure = found
            raise found from None

    def _wait_for_the_end(self) -> None:
        while self._spark_query is not None and self._spark_query.isActive:
            SYSTEM_CLOCK.sleep(0.005)
        raise InterruptedError(_INTERRUPTED)


def _was_interrupted(problem: BaseException) -> bool:
    text = str(problem)
    return "InterruptedException" in text or "InterruptedIOException" in text or "ClosedByInterrupt" in text
