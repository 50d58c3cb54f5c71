"""The queries of this program that run, and their end if the program ends before they do."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - its hook has to be there before ours, see `began`
import contextlib
import os
import signal
import sys
import threading
from typing import Protocol


class Running(Protocol):
    """A query, as far as its end is concerned."""

    @property
    def is_active(self) -> bool:
        """True while it runs."""

    @property
    def urls(self) -> tuple[str, ...]:
        """Where the streams are that it writes."""

    def stop(self) -> None:
        """Stops it after the batch under way."""


BLINK_S = 0.5
"""The main thread waits no longer at a time: Python may miss a Ctrl-C that comes just before a wait, until it ends."""

_queries: dict[int, tuple[Running, str | None]] = {}
"""With the names of those of which Spark knows nothing."""
_process: int | None = None
"""The process that has the exit hook: a fork of it has no queries."""


def began(query: Running, name: str | None = None) -> None:
    """Registers a query, which is stopped, in order and quietly, if the program ends while it runs.

    `name` is for queries of which Spark knows nothing.
    """
    global _process
    if _process != os.getpid():
        _process = os.getpid()
        _queries.clear()
        # Not `atexit`, which comes after thread pools are closed: batches under way, which use some, could not end.
        # The same hook serves `concurrent.futures`, and the one that was registered last comes first.
        threading._register_atexit(_end)  # type: ignore[attr-defined]
    for number, (known, _) in list(_queries.items()):
        if not _is_active(known):
            _queries.pop(number, None)
    _queries[id(query)] = query, name


def ended(query: Running) -> None:
    """Removes a query that has ended."""
    _queries.pop(id(query), None)


def writes(url: str) -> bool:
    """Returns whether a query of this program writes the stream there."""
    return any_left() and any(url in query.urls and _is_active(query) for query, _ in list(_queries.values()))


def has_name(name: str) -> bool:
    """Returns whether an operator over streams of this program runs under that name: Spark knows nothing of it."""
    return any_left() and any(known == name and _is_active(query) for query, known in list(_queries.values()))


def any_left() -> bool:
    """Returns whether the exit hook will find a query to stop, as far as is known here."""
    return _process == os.getpid() and bool(_queries)


def _end() -> None:
    """Stops what still runs, the newest first, and says so in one line; an interruption ends the wait."""
    if not any_left():
        return
    with contextlib.suppress(ValueError):  # not in the main thread
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark's own would cancel the batch under way
    # In a thread of its own: an interruption may have left this one's connection to the JVM in the middle of an answer.
    stopping = threading.Thread(target=_stop_all, name="strandline-exit", daemon=True)
    with contextlib.suppress(KeyboardInterrupt):
        stopping.start()
        while stopping.is_alive():
            stopping.join(BLINK_S)
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        _remind_python_of_the_interruption()


def _remind_python_of_the_interruption() -> None:
    """Lets the process end as interrupted ones do (-SIGINT, which a shell's loop looks for), and not with 1.

    Python notes that when an interruption comes out of text that it evaluates, and forgets it with the next text, which
    any named tuple or dataclass has that is made while the batch under way ends.
    """
    with contextlib.suppress(KeyboardInterrupt):
        exec("raise KeyboardInterrupt")


def _stop_all() -> None:
    left = [query for query, _ in reversed(list(_queries.values())) if _is_active(query)]
    if not left:
        return
    which = f"the query of {left[0].urls[0]}" if len(left) == 1 else f"{len(left)} queries"
    print(f"strandline: the program ends, stopping {which} after the batch under way", file=sys.stderr, flush=True)
    for query in left:
        with contextlib.suppress(Exception):  # the program ends; what was published stays published
            query.stop()


def _is_active(query: Running) -> bool:
    try:
        return query.is_active
    except Exception:
        return False  # its Spark is gone
