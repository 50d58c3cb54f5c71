"""Files of a stream that nothing refers to: where they may lie, and which are of use by their names alone.

`collect` deletes them and `verify` counts them, each by its own account of what is referred to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile

from strandline.log.operator_state import loss_record
from strandline.log.operator_state.standing import Standing
from strandline.log.storage.storage import Listed, Storage, is_temporary
from strandline.log.stream import milestone
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.stream.milestone import is_mark
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep import consumer_registry

_FOLDERS = ("blocks", "late", loss_record.FOLDER, "snapshots", milestone.FOLDER, "staging", consumer_registry.FOLDER)

IsLive = Callable[[str], bool]
"""Returns whether something refers to the file with this key."""


def unreferenced(storage: Storage, is_live_in: Callable[[str], IsLive], *, commits: bool = True) -> Iterator[Listed]:
    """Yields the files that are of no use, folder after folder; `is_live_in` is called once for each of them.

    The stream's own folder and that of the commits, which may hold many files, are listed only with `commits`.
    """
    if commits:
        # Temporary files come first in a listing: on a file system no folder is walked for them.
        yield from takewhile(lambda listed: is_temporary(listed.key) and "/" not in listed.key, storage.list(""))
    for top in (*_FOLDERS, "commits") if commits else _FOLDERS:
        folder: str | None = None
        for listed in storage.list(top):
            parent = listed.key.rpartition("/")[0]
            if parent != folder:
                folder, is_live = parent, is_live_in(parent)
            if is_temporary(listed.key) or not (is_mark(listed.key) or is_live(listed.key)):
                yield listed


def is_live_in(
    folder: str,
    log: Log,
    standings: Sequence[Standing],
    blocks: Callable[[int], Iterable[Block]],
    index_files: Callable[[], set[str]],
) -> IsLive:
    """Returns what says whether a file of this folder is of use, by the blocks of a partition and the index's files."""
    if folder == consumer_registry.FOLDER:
        return always
    if folder == loss_record.FOLDER:
        records = loss_record.live_records(log.storage, (s.losses for s in standings))
        return always if records is None else records.__contains__
    if folder in ("snapshots", milestone.FOLDER):
        return index_files().__contains__
    partition = partition_of(folder, log.spec)
    return {b.file for b in (() if partition is None else blocks(partition))}.__contains__


def partition_of(folder: str, spec: StreamSpec) -> int | None:
    """Returns the partition (or late side log) whose blocks lie in this folder; None if it is of none."""
    if folder == spec.folder(spec.late):
        return spec.late
    number = folder.removeprefix("blocks/p")
    partition = int(number) if number.isdecimal() else spec.late
    return partition if partition < spec.late and folder == spec.folder(partition) else None


def always(_key: str) -> bool:
    """Returns True: of a folder whose files are all of use."""
    return True
