"""Durable whatever was asked for: what must survive a power loss before that in whose place it stands is deleted."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from strandline.errors import StorageError
from strandline.log.storage import durable_file
from strandline.log.storage.storage import Storage


def make_durable(storage: Storage, keys: Iterable[str]) -> None:
    """Returns when these keys will survive a power loss, also those of other writers and of `durability="os"`.

    Keys that are not there are left out. Stores elsewhere show only what is durable: nothing is done for them.
    """
    anywhere = storage.local_path("x")
    if anywhere is None:
        return
    folders = set()
    try:
        for key in keys:
            path = anywhere.parent / key
            with suppress(FileNotFoundError):
                durable_file.sync_file(str(path))
                folders.add(str(path.parent))
        for folder in sorted(folders):
            durable_file.sync_names_up_to(folder, str(anywhere.parent))
    except OSError as error:
        raise StorageError(
            f"could not make files durable: {error.strerror or error}",
            stream=storage.url,
            todo="mend the disk, then start again; nothing was deleted",
        ) from error
