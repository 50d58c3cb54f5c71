"""Waiting for the end of Spark's query in a way that Ctrl-C can end without harm.

PySpark waits inside a call to the JVM. An interruption there leaves the connection in the middle of an answer, and
PySpark's own handler then cancels every job over that same connection. So another thread makes the call, and whoever
waits waits for that thread.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from strandline.clock import stopwatch_s
from strandline.spark.query.running import BLINK_S

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Waiting:
    """One thread that waits for Spark's query, started when somebody asks for the first time."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.problem: Exception | None = None
        """What Spark has said of the end."""

    def wait(self, timeout_s: float | None) -> bool:
        """Whether the query has ended before that many seconds have passed."""
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._wait, name="strandline-waiting", daemon=True)
                self._thread.start()
        try:
            with _plain_interrupt():
                return self._wait_in_blinks(timeout_s)
        except KeyboardInterrupt:
            raise KeyboardInterrupt from None

    def _wait_in_blinks(self, timeout_s: float | None) -> bool:
        ends_s = math.inf if timeout_s is None else stopwatch_s() + timeout_s
        while not self._ended.wait(min(BLINK_S, max(0.0, ends_s - stopwatch_s()))):
            if stopwatch_s() >= ends_s:
                return False
        return True

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
