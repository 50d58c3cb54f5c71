"""Backups of a stream, and streams from backups.

A backup is a copy of the stream's files with `backup.json` beside them, which says up to which commit it is finished.
That file is replaced when a run has copied everything, and only then files go that the stream no longer has. So a run
may be killed at any point: `restore` takes the last finished state, and the next run goes on.

A folder that is being restored has `restore.json` until all is there, and gets stream.json last: until then it is no
stream, and the same command goes on with it, with a newer state if the backup has one by then.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from strandline.clock import SYSTEM_CLOCK, Clock
from strandline.errors import (
    ConflictError,
    KeyMissingError,
    NotAStreamError,
    OptionError,
    StrandlineError,
    StreamMismatchError,
    StreamNotFoundError,
)
from strandline.log.storage.storage import Storage, first_key
from strandline.log.stream import spec
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import FORMAT, read_sealed, seal
from strandline.log.upkeep.finished_backup import FinishedBackup
from strandline.log.upkeep.stream_copy import Progress, StreamCopy, live_blocks, results, unseen

BACKUP_KEY = "backup.json"


@dataclass(frozen=True, slots=True)
class Copied:
    """The outcome of one run, and the contents of the copy."""

    stream: str
    commit: int
    """The newest commit in the copy; -1 if the stream has none."""
    tuples: int
    """Results: neither footprints nor the side log."""
    files: int
    """Files that this run copied."""
    size_bytes: int
    deleted: int
    """Files that this run deleted from the backup, because the stream no longer has them."""
    damaged: tuple[str, ...]
    """Blocks that the source has lost or that are rotten there: the copy does not have them either."""


def backup(source: Storage, target: Storage, progress: Progress = unseen, clock: Clock = SYSTEM_CLOCK) -> Copied:
    """Copies what is new in the stream to its backup; consistent while writers, compaction and retention work.

    Raises if the target holds something else than a backup of this stream, or has what the stream has lost since.
    """
    _require_apart(source, target)
    stream = Log.unread(source).spec.id
    mark = _marker(target, BACKUP_KEY)
    if mark is None:
        _require_empty(target, "a new backup needs an empty place")
        mark = {"format": FORMAT, "stream": stream, "commit": None, "milestone": -1, "copied_us": None}
        target.put(BACKUP_KEY, seal(mark))
    if mark["stream"] != stream:
        raise StreamMismatchError(
            f"the target holds a backup of another stream, {mark['stream']}",
            stream=target.url,
            todo="name the backup of this stream, or an empty place",
        )
    copy = StreamCopy(source, target, -1 if mark["commit"] is None else mark["commit"], progress)
    copy.run()
    copy.complete()
    number = copy.milestone.number if copy.milestone else -1
    done = {**mark, "commit": copy.log.state.seq, "milestone": number, "copied_us": clock.now_us()}
    done.pop("checksum", None)
    _require_newest(target, copy.log.state.seq)
    target.put(BACKUP_KEY, seal(done))
    copy.close_first_commit()
    return _copied(copy, copy.prune())


def restore(source: Storage, target: Storage, progress: Progress = unseen) -> Copied:
    """Makes a stream at an empty place from the last finished state of a backup.

    Raises if the target is not empty. A target that an interrupted call has begun is gone on with.
    """
    _require_apart(source, target)
    mark = _marker(source, BACKUP_KEY)
    if mark is None:
        is_empty = first_key(source) is None
        raise (StreamNotFoundError if is_empty else NotAStreamError)(
            f"there is no backup here (no {BACKUP_KEY})",
            stream=source.url,
            todo="name a folder that `strandline backup` has made; a stream that was copied by hand is used as it is",
        )
    if mark["commit"] is None:
        raise NotAStreamError(
            "the first run of this backup was not finished",
            stream=source.url,
            todo="run `strandline backup` again; it goes on where it stopped",
        )
    begun = _marker(target, spec.RESTORE_KEY)
    if begun is None:
        _require_empty(target, "a stream is restored to an empty place")
        target.put(spec.RESTORE_KEY, seal({"format": FORMAT, "stream": mark["stream"]}))
    elif begun["stream"] != mark["stream"]:
        raise StreamMismatchError(
            "another stream was being restored here",
            stream=target.url,
            todo="delete the folder, or name an empty place",
        )
    elif target.exists(spec.KEY):  # all is there, and a writer may be at work
        target.delete(spec.RESTORE_KEY)
        return _restored(Log.open(target))
    copy = _copy_of_backup(source, target, mark, progress)
    copy.prune()
    copy.close_first_commit()
    copy.complete()
    target.delete(spec.RESTORE_KEY)
    return _copied(copy, 0)


def _copy_of_backup(source: Storage, target: Storage, mark: dict[str, Any], progress: Progress) -> StreamCopy:
    """Copies the newest finished state of a backup; begins again if a run of the backup has finished meanwhile.

    Such a run deletes what the state before it needed.
    """
    while True:
        copy = StreamCopy(FinishedBackup(source, mark["commit"], mark["milestone"]), target, progress=progress)
        before = mark
        try:
            copy.run()
        except StrandlineError:
            mark = _marker(source, BACKUP_KEY) or mark
            if mark == before:
                raise
        else:
            mark = _marker(source, BACKUP_KEY) or mark
            if mark == before:
                return copy


def _restored(log: Log) -> Copied:
    """Returns what a target holds that an interrupted restore had finished."""
    blocks = list(live_blocks(log))
    damaged = tuple(block.file for block in blocks if not log.storage.exists(block.file))
    return Copied(log.spec.id, log.state.seq, results(log, blocks), 0, 0, 0, damaged)


def _copied(copy: StreamCopy, deleted: int) -> Copied:
    damaged = tuple(copy.damaged)
    return Copied(copy.log.spec.id, copy.log.state.seq, copy.tuples, copy.files, copy.size_bytes, deleted, damaged)


def _marker(storage: Storage, key: str) -> dict[str, Any] | None:
    with contextlib.suppress(KeyMissingError):
        return read_sealed(storage, key)
    return None


def _require_empty(target: Storage, why: str) -> None:
    if target.exists(spec.KEY):
        raise OptionError("the target is a stream", stream=target.url, todo=f"{why}; check the order of the two paths")
    if (other := first_key(target)) is not None:
        raise OptionError(f"the target is not empty: it has {other}", stream=target.url, todo=why)


def _require_newest(target: Storage, commit: int) -> None:
    """Raises if another run has finished with a newer state: it may have deleted what this one has copied."""
    now = _marker(target, BACKUP_KEY)
    if now is not None and now["commit"] is not None and now["commit"] > commit:
        raise ConflictError(
            f"another run of this backup has finished meanwhile, with commit {now['commit']}; this one has {commit}",
            stream=target.url,
            todo="do nothing: the newer backup counts. Run one backup at a time",
        )


def _require_apart(source: Storage, target: Storage) -> None:
    one, other = (_place(storage) for storage in (source, target))
    if one.startswith(other) or other.startswith(one):
        raise OptionError(
            "the stream and its copy must not lie in one another", stream=target.url, todo="choose another path"
        )


def _place(storage: Storage) -> str:
    """Returns where a storage lies, links followed."""
    path = storage.local_path(spec.KEY)
    return f"{storage.url.rstrip('/')}/" if path is None else f"{path.parent.resolve()}/"
