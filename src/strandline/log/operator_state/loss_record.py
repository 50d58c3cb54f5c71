"""The record of losses: small files beside the commits, each with the newest losses and the name of the file before it.

A standing names the newest. So a loss counts from the commit on that has the first results after it. A record of an
attempt that was not accepted, or whose losses a newer one repeats, is a file that nothing leads to, and is collected.
Blocks may be compacted and truncated, commits dropped: all other records stay, for they tell what is in no block. A
full record is continued in a new file, so that neither a standing nor the writing of one more loss grows with history.
If a record is gone or rotten, the next loss begins a new file that names it: the operator goes on, and the hole shows
until the file is restored.

    losses/<attempt>.json   {"before": "losses/<attempt>.json" or null, "losses": [oldest, ..., newest]}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.errors import CorruptManifestError, KeyMissingError
from strandline.log.operator_state.loss import Loss, Losses
from strandline.log.storage.storage import Storage, create_once
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import FORMAT_4, read_sealed, seal

FOLDER = "losses"
LOSSES_MAX = 64
"""In one file."""
NOT_ON_RECORD = "not on record"
"""The reason of a row that stands for all losses of a partition whose record is gone or rotten."""

_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("from", pa.int64()),
        ("until", pa.int64()),
        ("tuples", pa.int64()),
        ("windows", pa.int64()),
        ("incomplete", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("commit", pa.int64()),
        ("reason", pa.string()),
        ("time_from", pa.int64()),
        ("time_until", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class OnRecord:
    """The losses of a partition as far as they can be read, and what of them cannot."""

    losses: tuple[Loss, ...]
    """The newest first."""
    count: int = 0
    """Losses that the standing counts and no record has; so are `tuples` and `windows` in them."""
    tuples: int = 0
    windows: int = 0
    unreadable: str = ""
    """The key of the record that is gone or rotten; it and those before it held what is missing."""
    why: str = ""


def add(storage: Storage, attempt: str, before: Losses | None, losses: list[Loss]) -> Losses:
    """Writes a record of these losses under the attempt's name; returns what the standing is to say from now on.

    If the newest record cannot be read, the new one names it and does not repeat its losses.
    """
    older: str | None = None
    known: list[Loss] = []
    if before is not None:
        try:
            older, known = _read(storage, before.record)
            is_full = len(known) + len(losses) > LOSSES_MAX
        except CorruptManifestError:
            is_full = True
        if is_full:
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


def _walk(storage: Storage, losses: Losses | None) -> Iterator[tuple[str, list[Loss] | CorruptManifestError]]:
    """Yields key and losses of each record, the newest first, up to one that cannot be read, with its problem."""
    record = losses and losses.record
    while record:
        key = record
        try:
            record, found = _read(storage, key)
        except CorruptManifestError as problem:
            yield key, problem
            return
        yield key, found


def records(storage: Storage, losses: Losses | None) -> Iterator[str]:
    """Yields the keys of all records of a partition, the newest first, up to one that cannot be read."""
    return (key for key, found in _walk(storage, losses) if isinstance(found, list))


def live_records(storage: Storage, every: Iterable[Losses | None]) -> set[str] | None:
    """Returns the keys of all records of these partitions; None if one cannot be read: it may name any other."""
    keys: set[str] = set()
    for losses in every:
        for key, found in _walk(storage, losses):
            if not isinstance(found, list):
                return None
            keys.add(key)
    return keys


def on_record(storage: Storage, losses: Losses | None) -> OnRecord:
    """Returns all losses of a partition that can be read, and the sums of those that cannot."""
    if losses is None:
        return OnRecord(())
    known: list[Loss] = []
    unreadable = why = ""
    for key, found in _walk(storage, losses):
        if isinstance(found, list):
            known += reversed(found)
        else:
            unreadable, why = key, found.what
    return OnRecord(
        tuple(known),
        losses.count - len(known),
        losses.tuples - sum(loss.tuples for loss in known),
        losses.windows - sum(loss.windows for loss in known),
        unreadable,
        why,
    )


def _read(storage: Storage, key: str) -> tuple[str | None, list[Loss]]:
    try:
        body = read_sealed(storage, key)
        return body["before"], [Loss.from_json(loss) for loss in body["losses"]]
    except (KeyMissingError, KeyError, TypeError) as problem:
        raise CorruptManifestError(
            f"the record of what the operator has lost cannot be read: {problem}",
            where=f"{storage.url}/{key}",
            stream=storage.url,
            todo="restore it from a copy of the stream; results and recovery do not depend on it",
        ) from problem


def loss_table(log: Log) -> pa.Table:
    """Returns every loss, by partition, the oldest first; without rows for a stream that has lost nothing.

    Losses whose record cannot be read are one row at the head of their partition, with their sums and nothing else.
    """
    rows: list[dict[str, Any]] = []
    for partition, standing in enumerate(log.state.standings):
        found = on_record(log.storage, standing.losses)
        if found.count > 0:
            hole = {"partition": partition, "tuples": found.tuples, "windows": found.windows, "reason": NOT_ON_RECORD}
            rows.append(hole)
        for loss in reversed(found.losses):
            rows.append({**loss.to_json(), "from": loss.first, "tuples": loss.tuples, "at": loss.at_us})
    return pa.Table.from_pylist(rows, schema=_SCHEMA)  # leaves out fields that are no columns
