"""Waits that Ctrl-C can end without harm.

PySpark waits for the end of a streaming query inside a call to the JVM. An interruption there leaves the connection in
the middle of an answer, and PySpark's own handler then cancels every job over that same connection. So another thread
makes the call, and a user's thread waits for that thread.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from strandline.clock import stopwatch_s
from strandline.spark.query.running import BLINK_S

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def wait_for(wait: Callable[[float], bool], timeout_s: float | None) -> bool:
    """Calls `wait`, for a moment each time, until it returns True, or that many seconds have passed: then False."""
    ends_s = math.inf if timeout_s is None else stopwatch_s() + timeout_s
    try:
        with _plain_interrupt():
            while not wait(min(BLINK_S, max(0.0, ends_s - stopwatch_s()))):
                if stopwatch_s() >= ends_s:
                    return False
            return True
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None


class Waiting:
    """One thread that waits for Spark's query, started at the first call."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.problem: Exception | None = None
        """The error with which it has ended."""

    def wait(self, timeout_s: float | None) -> bool:
        """Returns whether the query has ended before that many seconds have passed."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._wait, name="strandline-waiting", daemon=True)
                self._thread.start()
        return wait_for(self._ended.wait, timeout_s)

    def _wait(self) -> None:
        try:
            self._query.awaitTermination()
        except Exception as problem:
            self.problem = problem
        self._ended.set()


@contextlib.contextmanager
def _plain_interrupt() -> Iterator[None]:
    """Ctrl-C interrupts, and does not also cancel the batches of all queries, as PySpark's handler does."""
    before = signal.getsignal(signal.SIGINT)
    if getattr(before, "__module__", "") != "pyspark.core.context" or not _is_main():
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
