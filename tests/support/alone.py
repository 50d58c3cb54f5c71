"""Gives a test that runs a second time the machine for itself: the other test processes wait meanwhile.

Every test enters a room, of which a file is the door. Many tests can be in the room at a time, or one that is alone in
it. A second file, the gate, keeps the others from entering again and again while one waits for the room to be empty.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Room:
    """Locks of the test processes that share a folder."""

    def __init__(self, folder: Path) -> None:
        self._gate = os.open(folder / "gate", os.O_RDWR | os.O_CREAT, 0o600)
        self._door = os.open(folder / "door", os.O_RDWR | os.O_CREAT, 0o600)

    def enter(self, *, alone: bool) -> None:
        """Waits until the test may run: with others, or alone."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._door, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def leave(self) -> None:
        """Lets others in; does nothing if this process is not in the room."""
        fcntl.flock(self._door, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the files, which gives back all locks."""
        os.close(self._gate)
        os.close(self._door)
