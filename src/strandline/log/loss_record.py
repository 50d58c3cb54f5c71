"""The record of losses: small files beside the commits, each with the newest losses and the name of the file before it.

A standing names the newest. So a loss counts from the commit on that has the first results after it, and a record of an
attempt that was not accepted is a file that nothing leads to. Blocks may be compacted and truncated, commits dropped:
records stay, for they tell what is in no block. A full record is continued in a new file, so that neither a standing
nor the writing of one more loss grows with history.

    losses/<attempt>.json   {"before": "losses/<attempt>.json" or null, "losses": [oldest, ..., newest]}
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.errors import CorruptManifestError, KeyMissingError
from strandline.log.loss import Loss, Losses
from strandline.log.manifest import FORMAT_4, seal, unseal
from strandline.log.storage.storage import Storage, create_once

FOLDER = "losses"
LOSSES_MAX = 64
"""In one file."""


def add(storage: Storage, attempt: str, before: Losses | None, losses: list[Loss]) -> Losses:
    """Writes a record of these losses under the attempt's name; returns what the standing is to say from now on."""
    older, known = (None, []) if before is None else _read(storage, before.record)
    if before is not None and len(known) + len(losses) > LOSSES_MAX:
        older, known = before.record, []
    key = f"{FOLDER}/{attempt}.json"
    body = {"format": FORMAT_4, "before": older, "losses": [loss.to_json() for loss in [*known, *losses]]}
    create_once(storage, key, seal(body))
    count, tuples, windows = (before.count, before.tuples, before.windows) if before else (0, 0, 0)
    return Losses(
        key,
        count + len(losses),
        tuples + sum(loss.tuples for loss in losses),
        windows + sum(loss.windows for loss in losses),
    )


def newest_first(storage: Storage, losses: Losses | None) -> Iterator[Loss]:
    """All losses of a partition, the newest first; `CorruptManifestError` if a record is not what was written."""
    record = losses and losses.record
    while record:
        record, found = _read(storage, record)
        yield from reversed(found)


def _read(storage: Storage, key: str) -> tuple[str | None, list[Loss]]:
    where = f"{storage.url}/{key}"
    try:
        body = unseal(storage.read(key), where)
        return body["before"], [Loss.from_json(loss) for loss in body["losses"]]
    except (KeyMissingError, KeyError, TypeError) as problem:
        raise CorruptManifestError(
            f"the record of what the operator has lost cannot be read: {problem}",
            where=where,
            todo="restore it from a copy of the stream; results and recovery do not depend on it",
        ) from problem
