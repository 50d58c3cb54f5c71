"""The housekeeping of a writer for its stream, beside its batches: rare enough to cost little.

The writer applies retention between two batches. A thread of the driver, with a handle of its own, joins small blocks,
and deletes old commits and files without references. Batches never wait for the thread, and its failures stop nothing.
It may die at any point, as any compactor and collector may.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from strandline.clock import stopwatch_s
from strandline.errors import ConflictError, DroppedError, OptionError, StrandlineError
from strandline.log.index import index
from strandline.log.stream.log import Log
from strandline.log.upkeep import consumer_registry, dropping, retention
from strandline.log.upkeep.grace import GRACE_US
from strandline.log.upkeep.levels import Levels
from strandline.spark.query.publications import PUBLICATIONS
from strandline.spark.session.place import Place
from strandline.units import CONSUMED, Retention

_COLLECT_EVERY = 16 * index.FOLD_EVERY
_DELETES_MAX = 4 * _COLLECT_EVERY
"""The number of commits deleted at a time: more than come in between, few enough that a writer can stop soon."""
_REST = 3.0
"""The rest of the thread after compaction, in multiples of its work: so it uses a quarter of a core at most."""
_PATIENCE_S = 10.0


def checked_choice(compaction: str) -> str:
    """Returns the option `compaction=`; raises `OptionError` if it is neither "auto" nor "off"."""
    if compaction not in ("auto", "off"):
        raise OptionError(f"compaction={compaction!r} is unknown", todo='use "auto" or "off"')
    return compaction


class Housekeeping:
    """Looks after the stream of one writer."""

    def __init__(self, place: Place, keep: Retention | None, compaction: str) -> None:
        self._place = place
        self._keep = keep
        self._compacts = checked_choice(compaction) == "auto"
        self._levels: Levels | None = None
        self._log: Log | None = None
        self._thread: threading.Thread | None = None
        self._collect_is_due = False
        self._stopping = threading.Event()
        self._report: dict[str, Any] = {}
        """The report of the thread, which alone changes it; a failure stays until one whole pass has none."""
        self._has_failed = False
        self._retention_failure = ""
        self._kept_for: Mapping[str, Any] = {}

    @property
    def report(self) -> Mapping[str, Any]:
        """The work done since the writer started, for its progress; empty if there was none."""
        failure = {"failure": self._retention_failure} if self._retention_failure else {}
        report = {**self._report, **self._kept_for, **failure}
        return {"housekeeping": report} if report else {}

    def after_batch(self, log: Log, since: int) -> None:
        """Wakes the runs that follow the stream; drops tuples past retention, and lets the thread work, now and then.

        That is when there are enough commits after `since`.
        """
        PUBLICATIONS.published(log.spec.id)
        commits = since + 1, log.state.seq + 1  # more than one apart if other writers have committed, too
        if not _is_due(commits, index.FOLD_EVERY):
            return
        if self._keep is not None:
            self._retain(log, self._keep)
        self._collect_is_due |= _is_due(commits, _COLLECT_EVERY)
        if self._compacts or self._collect_is_due:
            self._begin()

    def _retain(self, log: Log, keep: Retention) -> None:
        self._retention_failure = ""
        try:
            retention.apply_retention(log, keep)
            if keep == CONSUMED:
                held_by = [c.title for c in consumer_registry.slowest(log)]
                self._kept_for = {"consumers": len(log.state.consumers), "kept_for": held_by}
        except Exception as problem:  # the batch is published, and retention is retried the next time
            self._retention_failure = _told(problem)

    def stop(self) -> None:
        """Ends the thread after its current piece of work; waits for its end, but not for long."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)

    def _begin(self) -> None:
        if self._stopping.is_set() or (self._thread is not None and self._thread.is_alive()):
            return
        # A daemon: the end of the program does not wait for the thread.
        self._thread = threading.Thread(target=self._work, name="strandline-housekeeping", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        self._has_failed = False
        while not self._stopping.is_set():
            # Check again after each piece of compaction, which may never come to an end on a busy stream.
            if self._collect_is_due:
                self._collect_is_due = False
                self._try(self._collect)
            if not (self._compacts and self._try(self._compact)):
                break
        if not self._has_failed and not self._stopping.is_set():
            self._report = {name: value for name, value in self._report.items() if name != "failure"}

    def _try(self, work: Callable[[Log], bool]) -> bool:
        """Runs `work` and returns its result; False if it fails: the batches go on, and the next pass retries it."""
        try:
            if self._log is None:
                self._log = self._place.open()
            return work(self._log)
        except Exception as problem:
            if isinstance(problem, DroppedError):
                self._log = self._levels = None  # this handle stood still for too long
            if told := _told(problem):
                self._failed(told)
            return False

    def _collect(self, log: Log) -> bool:
        dropped = dropping.drop_commits(log, deletes_max=_DELETES_MAX)
        if dropped.commits:
            self._add(commits_dropped=dropped.commits)
        is_listed = dropped.milestone is not None  # listing the commits is rare, because there may be many
        if deleted := retention.collect(log, grace_us=GRACE_US, commits=is_listed):
            self._add(files_deleted=len(deleted))
        return True

    def _compact(self, log: Log) -> bool:
        """Compacts one piece, and rests after it; returns whether there may be another piece."""
        self._levels = levels = self._levels or Levels(log)
        began_s = stopwatch_s()
        done = levels.step()
        if levels.failure is not None:
            self._failed(_told(levels.failure))
        if not done.blocks_after:
            return False
        took_s = stopwatch_s() - began_s
        self._add(
            blocks_before=done.blocks_before,
            blocks_after=done.blocks_after,
            tuples=done.tuples,
            bytes=done.bytes_after,
            seconds=took_s,
        )
        self._stopping.wait(_REST * took_s)
        return True

    def _add(self, **amounts: float) -> None:
        self._report = {**self._report, **{name: self._report.get(name, 0) + more for name, more in amounts.items()}}

    def _failed(self, told: str) -> None:
        self._has_failed = True
        self._report = {**self._report, "failure": told}


def _told(problem: Exception) -> str:
    """Returns the text of a failure for the report; empty if another process was faster, which is no failure."""
    if isinstance(problem, ConflictError) and not isinstance(problem, DroppedError):
        return ""
    if isinstance(problem, StrandlineError):
        return f"{problem.what} ({problem.where})" if problem.where else problem.what
    return f"{type(problem).__name__}: {problem}"


def _is_due(commits: tuple[int, int], every: int) -> bool:
    before, after = commits
    return before // every < after // every
