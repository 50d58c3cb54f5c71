"""Waits that Ctrl-C can end without harm.

A wait inside a call to the JVM must not be interrupted: that leaves the connection in the middle of an answer, and
PySpark's own handler then cancels every job over that same connection. So threads of ours make such calls, and a user's
thread waits for these.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator

from strandline.clock import stopwatch_s
from strandline.spark.query.running import BLINK_S


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


@contextlib.contextmanager
def _plain_interrupt() -> Iterator[None]:
    """Lets Ctrl-C interrupt without cancelling the batches of all queries, as PySpark's handler does."""
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
