"""The state between two batches: arrays in a file on the machine of the task, outside of any process.

It is a cache and never the truth: a step recovers a missing, stale or torn state from the log. These rules keep it
right, whatever other processes do at the same time:

- An attempt maps the arrays privately and never writes to them. It leaves its changes in a file of its own, of the
  size of the rows that it touched (or the whole state, if the state had to grow).
- The next batch knows from the manifest which attempt was accepted. It redoes that attempt's changes in place, under
  an exclusive lock. Values are absolute; a file whose redoing was cut short says so and is not used again.
- A reader of the arrays holds a shared lock on them. No process waits long for a lock: its holder may be frozen.
  The state is then recovered into a new file, and the frozen one keeps its own, whatever it does when it wakes up.
- Folder and files belong to this user alone (0700 and 0600, owner checked, no links). The cache refuses a folder of
  another user.

`state_file` defines the files and their checks, `state_folders` the folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.operators.operator import StateImage
from strandline.private_folder import is_plain_name, private_folder
from strandline.running.state import state_file
from strandline.running.state.live_operators import LIVE, LiveOperator
from strandline.running.state.state_file import Arrays

BASE = "base"
_PATIENCE_S = 2.0
_KEEP_S = 600.0


class StateCache:
    """The cached state of one partition on this machine."""

    def __init__(self, folder: Path) -> None:
        """Raises UnsafeFolderError if the folder exists and belongs to another user."""
        self._folder = folder
        self._base = folder / BASE
        self._lock: int | None = None
        with contextlib.suppress(OSError):  # a disk that cannot be written costs recoveries, not batches
            private_folder(folder)

    def open(self, attempt: str) -> Arrays | None:
        """Returns the state that this attempt left, as a private view to work on; None if it is not here."""
        self.close()
        try:
            if self._tag() != attempt and not self._redo(attempt):
                return None
            return self._mapped(attempt)
        except (OSError, ValueError, KeyError):
            self.close()
            return None

    def open_over(self, attempt: str, base: StateCache) -> Arrays | None:
        """Returns the state that this attempt left here as changes of a state in `base`; None if either is gone.

        The returned arrays are private views of the state in `base`: close `base` after use.
        """
        try:
            meta, changes = state_file.read_changes(self._file(attempt, "delta"))
            arrays = base.open(meta["parent"])
            if arrays is None:
                return None
            state_file.change(arrays, changes)
        except (OSError, ValueError, KeyError):
            base.close()
            return None
        return arrays

    def take_over(self, base: StateCache, attempt: str) -> bool:
        """Moves the state that this attempt left from another cache to this one; returns False if it is not there.

        Both caches are on one disk, so nothing is copied.
        """
        if base.open(attempt) is None:
            return False
        base.close()
        try:
            private_folder(self._folder)
            os.replace(base._base, self._base)
        except OSError:
            return False
        return True

    def leave(self, attempt: str, parent: str, state: StateImage, *, whole: bool = False) -> int:
        """Leaves the changes that this attempt made, or the whole state; returns how many bytes it wrote.

        A full or broken disk costs the next batch a recovery, not this batch its success.
        """
        try:
            private_folder(self._folder)  # another process may have cleaned up
            if whole or state.changed is None or not parent:
                size = state_file.write_whole(self._file(attempt, "whole"), attempt, state.arrays)
            else:
                size = state_file.write_changes(self._file(attempt, "delta"), attempt, parent, state)
        except OSError:
            return 0
        finally:
            self.close()
        return size

    def take_operator(self, attempt: str) -> LiveOperator | None:
        """Takes the operator that this attempt left in this process; None if there is none."""
        return LIVE.take(str(self._folder), attempt)

    def leave_operator(self, left: LiveOperator) -> None:
        """Leaves an operator in this process, for the next step of its partition."""
        LIVE.leave(str(self._folder), left)

    def close(self) -> None:
        """Unmaps the arrays, and unlocks them."""
        if self._lock is not None:
            # Unlock explicitly: the map has a descriptor of its own, which would hold the lock while the map lives.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = None

    def _file(self, attempt: str, ending: str) -> Path:
        """Returns the path of an attempt's file; raises ValueError if its name, from a manifest, is no file name."""
        if not is_plain_name(attempt):
            raise ValueError(f"{attempt!r} cannot be the name of an attempt")
        return self._folder / f"{attempt}.{ending}"

    # ------------------------------------------------------------------ the base file

    def _tag(self) -> str | None:
        try:
            with _opened(self._base, os.O_RDONLY) as descriptor:
                return str(state_file.read_head(descriptor)["attempt"])
        except (OSError, ValueError, KeyError):
            return None

    def _redo(self, attempt: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._file(attempt, "whole"), self._base)
            self._sweep()
            return True
        changes = self._file(attempt, "delta")
        try:
            meta, arrays = state_file.read_changes(changes)
        except FileNotFoundError:
            return self._tag() == attempt  # another attempt at this batch may just have been faster
        with _opened(self._base, os.O_RDWR) as descriptor, _locked(descriptor, fcntl.LOCK_EX):
            head = state_file.read_head(descriptor)
            if head["attempt"] == attempt:
                return True  # another attempt at this batch was faster
            if head["attempt"] != meta["parent"]:
                return False
            state_file.redo(descriptor, head, attempt, arrays)
        changes.unlink(missing_ok=True)
        self._sweep()
        return True

    def _mapped(self, attempt: str) -> Arrays | None:
        descriptor = self._lock = state_file.opened(self._base, os.O_RDONLY)
        _lock(descriptor, fcntl.LOCK_SH)
        head = state_file.read_head(descriptor)
        if head["attempt"] != attempt:
            self.close()
            return None
        return state_file.mapped(descriptor, head)

    def _sweep(self) -> None:
        """Removes the files of attempts that were never accepted."""
        with contextlib.suppress(OSError):
            limit_s = SYSTEM_CLOCK.now_us() / 1e6 - _KEEP_S
            for path in self._folder.iterdir():
                if path.name != BASE and path.lstat().st_mtime < limit_s:
                    path.unlink(missing_ok=True)


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = state_file.opened(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(descriptor: int, kind: int) -> Iterator[None]:
    _lock(descriptor, kind)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _lock(descriptor: int, kind: int) -> None:
    """Takes the lock; raises OSError if another process holds it for too long."""
    began = stopwatch_s()
    while True:
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if stopwatch_s() - began > _PATIENCE_S:
                raise
            SYSTEM_CLOCK.sleep(0.001)
