"""Folders that only this user can write to, for files that we trust.

Processes run kernels from the disk, and compiled code follows the states there without further checks. So a user who
can write these files can do all that we can do. Any user can guess the name of a folder below a shared one (`/tmp`)
and make it first. So it is not enough to make the folder: its owner must be this user.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from strandline.errors import UnsafeFolderError

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")


def is_plain_name(text: object) -> bool:
    """Returns whether a value out of a file is one short name: as a part of a path it leads to no other folder."""
    return isinstance(text, str) and _PLAIN_NAME.fullmatch(text) is not None


def private_folder(path: Path, mode: int = 0o700) -> Path:
    """Returns the folder at this path, made if missing: open to this user (0700), or readable by all (0755).

    Raises UnsafeFolderError if something else is in its place or it belongs to another user, OSError if it cannot be
    made. A folder of our own that others could enter is closed.
    """
    with suppress(FileExistsError):
        path.mkdir(mode=mode, parents=True)
    found = path.lstat()  # of a link itself, wherever it leads
    if not stat.S_ISDIR(found.st_mode):
        raise _unsafe(path, "there is a link or a file where Strandline wants a private folder")
    if found.st_uid != os.geteuid():
        raise _unsafe(path, f"the folder belongs to user {found.st_uid}, and this process to user {os.geteuid()}")
    if found.st_mode & 0o077 != mode & 0o077:
        _set_mode(path, mode)
    return path


def temporary_folder() -> Path:
    """Returns this user's private folder in the system's folder for temporary files, the same in every process."""
    return private_folder(Path(tempfile.gettempdir()) / f"strandline-{os.geteuid()}")


def _set_mode(path: Path, mode: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _unsafe(path: Path, what: str) -> UnsafeFolderError:
    return UnsafeFolderError(
        what,
        where=str(path),
        todo="find out which user made it and remove it, or name another folder: STRANDLINE_STATE_DIR for the state of "
        "operators, NUMBA_CACHE_DIR for compiled kernels",
    )
