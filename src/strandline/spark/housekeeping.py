"""What a writer does for its stream now and then: rarely enough to cost little."""

from __future__ import annotations

import contextlib

from strandline.errors import ConflictError, StorageError
from strandline.log import index, retention
from strandline.log.log import Log

_COLLECT_EVERY = 16 * index.FOLD_EVERY
_GRACE_US = 24 * 3_600_000_000
"""Longer than any query should take that has planned to read a file."""


def look_after(log: Log, since: int, keep: int | None) -> None:
    """Drops what is past retention, deletes what nothing refers to, if enough was committed after `since`."""
    seq = log.state.seq  # by more than one after `since` if others have committed, too
    with contextlib.suppress(ConflictError, StorageError):  # what does not work now is done the next time
        if seq // index.FOLD_EVERY > since // index.FOLD_EVERY and keep is not None:
            retention.apply_retention(log, keep)
        if seq // _COLLECT_EVERY > since // _COLLECT_EVERY:
            retention.collect(log, grace_us=_GRACE_US)
