"""Cuts: of commits that were dropped, where some of the appends among them ended.

An operator takes in whole commits, because the boundary is known after whole commits. Of dropped ones it needs neither
all nor their blocks (the index has those), only places to stop at that lie close enough for a step of bounded size.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.log.storage.storage import Storage
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.commit import Commit
from strandline.log.stream.json_part import JsonPart
from strandline.log.stream.manifest import read_checked

TUPLES_MAX = 100_000
TUPLES_MAX_PER_PARTITION = 1_000
"""A cut has two numbers for every partition: where there are many, cuts lie further apart."""
_NUMBERS_MAX = 1 << 20

_SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("published_us", pa.int64()),
        ("time_max", pa.int64()),
        ("ends", pa.list_(pa.int64())),
        ("boundaries", pa.list_(pa.int64())),
        ("finished", pa.bool_()),
        ("checksum", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class CutFile(JsonPart):
    """One file of cuts, as a milestone names it."""

    file: str
    checksum: str
    rows: int
    last: int
    """The commit of its last cut."""
    ends: tuple[int, ...]
    """The ends at its last cut."""

    @property
    def is_full(self) -> bool:
        """True if further cuts should go to another file."""
        return self.rows * 2 * len(self.ends) >= _NUMBERS_MAX


def encode(cuts: Sequence[AppendCommit]) -> bytes:
    """Returns the bytes of a file with these cuts."""
    columns = {name: [getattr(m, name) for m in cuts] for name in _SCHEMA.names}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns, schema=_SCHEMA), sink, compression="zstd", store_schema=False)
    return sink.getvalue()


def read(storage: Storage, file: CutFile, stream: str) -> list[AppendCommit]:
    """Returns the cuts of a file, as appends without blocks."""
    todo = "restore the file from a copy"
    data = read_checked(storage, file.file, file.checksum, "the file with the cuts of a milestone", todo)
    table = pq.read_table(pa.BufferReader(data), use_threads=False)
    found = ({**row, "ends": tuple(row["ends"]), "boundaries": tuple(row["boundaries"])} for row in table.to_pylist())
    return [AppendCommit(stream=stream, **row) for row in found]


def chosen(commit: Callable[[int], Commit], seqs: range, before: int, partitions: int) -> Iterator[AppendCommit]:
    """Yields, of the appends among some commits, the last one and as many others as keep few tuples between them.

    `before` is the number of tuples that were there before the first of these commits. Reads about two commits for
    each one chosen, not all of them.
    """
    last = _append(commit, reversed(seqs))
    if last is not None:
        tuples_max = max(TUPLES_MAX, TUPLES_MAX_PER_PARTITION * partitions)
        yield from _split(commit, seqs.start, last, before, tuples_max)


def _split(
    commit: Callable[[int], Commit], first: int, last: AppendCommit, before: int, tuples_max: int
) -> Iterator[AppendCommit]:
    """Cuts among the commits from `first` up to `last`, which is the last of them."""
    if sum(last.ends) - before > tuples_max:
        half = (first + last.seq) // 2
        middle = _append(commit, range(half, first - 1, -1)) if half < last.seq else None
        middle = middle or _append(commit, range(half + 1, last.seq))
        if middle is not None:
            yield from _split(commit, first, middle, before, tuples_max)
            yield from _split(commit, middle.seq + 1, last, sum(middle.ends), tuples_max)
            return
    yield last


def _append(commit: Callable[[int], Commit], seqs: Iterable[int]) -> AppendCommit | None:
    return next((m for seq in seqs if isinstance(m := commit(seq), AppendCommit)), None)
