"""The folders for the states of partitions on this machine: `<root>/<stream>/p<partition>`, of forks `f<partition>`.

The root is STRANDLINE_STATE_DIR, which the user answers for and may share with others, or `state` in the private folder
of this user for temporary files. The folders below the root belong to this user alone.

Without a sweep, the states of deleted streams would stay for ever. So the first task of a new partition on this machine
removes states that no process has touched for a week. As long as no partition is new, nothing grows either.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from pathlib import Path

from strandline.clock import SYSTEM_CLOCK
from strandline.log.stream.spec import checked_id
from strandline.private_folder import private_folder, temporary_folder
from strandline.running.state import state_file
from strandline.running.state.state_cache import BASE

FOLDER_VARIABLE = "STRANDLINE_STATE_DIR"
_UNTOUCHED_S = 7 * 86_400.0
_STREAM = re.compile(r"[0-9a-f-]{32,36}")
_PARTITION = re.compile(r"[pf]\d{5}")
_FILE = re.compile(rf"{BASE}|holder|.*\.(whole|delta|tmp)")


def default_folder(stream: str, partition: int) -> Path:
    """Returns the folder for the state of a partition on this machine.

    Raises UnsafeFolderError if another user made the folder, CorruptManifestError if the id of the stream is no name.
    """
    return _folder(stream, f"p{partition:05d}")


def fork_folder(stream: str, partition: int) -> Path:
    """Returns the folder for the state of a partition's fork, beside that of the stable lineage."""
    return _folder(stream, f"f{partition:05d}")


def _folder(stream: str, name: str) -> Path:
    root = _root()
    folder = root / checked_id(stream, f"the local state of a stream, in {root}") / name
    with contextlib.suppress(OSError):  # a disk that cannot be written costs recoveries, not batches
        private_folder(folder.parent)
        if not folder.exists():
            private_folder(folder)
            _sweep(folder.parent.parent)
    return folder


def _root() -> Path:
    if given := os.environ.get(FOLDER_VARIABLE):
        return Path(given)
    try:
        return temporary_folder() / "state"
    except OSError:
        return Path(os.devnull)  # the machine can keep no state: every use fails, as on a full disk


def _sweep(root: Path) -> None:
    limit_s = SYSTEM_CLOCK.now_us() / 1e6 - _UNTOUCHED_S
    for stream in root.iterdir():
        # A root of the user's own choice may hold anything.
        if _STREAM.fullmatch(stream.name) and not stream.is_symlink() and stream.stat().st_uid == os.geteuid():
            for partition in stream.iterdir():
                if _PARTITION.fullmatch(partition.name) and not partition.is_symlink():
                    with contextlib.suppress(OSError):
                        _remove(partition, limit_s)
            with contextlib.suppress(OSError):
                stream.rmdir()  # if nothing is left in it


def _remove(partition: Path, limit_s: float) -> None:
    """Removes the state of a partition that no process has touched since then or holds."""
    files = [path for path in partition.iterdir() if _FILE.fullmatch(path.name)]
    if any(path.lstat().st_mtime >= limit_s for path in (partition, *files)):
        return
    with contextlib.ExitStack() as stack:
        if (partition / BASE).exists():
            descriptor = state_file.opened(partition / BASE, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in files:
            path.unlink(missing_ok=True)
    partition.rmdir()
