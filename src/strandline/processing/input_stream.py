"""One of the streams that are serialised: its blocks that were not read yet, and its tuples that wait for others'."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from strandline.errors import ConflictError, KeyMissingError
from strandline.log import log_errors
from strandline.log.block import Block
from strandline.log.block_slice import read_results
from strandline.log.leaf import Ints
from strandline.log.log import END, Log
from strandline.units import END_OF_TIME


@dataclass(frozen=True, slots=True)
class InputStream:
    """A stream, and what is wanted of it."""

    log: Log
    columns: tuple[str, ...]
    """Which an operator reads."""
    first: int = 0
    """No tuple before this offset is wanted: of a mark, or of the first block that a share knows."""


def blocks_between(log: Log, partition: int, first: int, since: int | None, until: int | None) -> list[Block]:
    """The blocks that hold results from the offset `first` on and may hold a time in [since, until), by offset.

    Raises `TruncatedError` if that offset was dropped.
    """
    log.require_kept(partition, first)
    try:
        found = list(log.blocks(partition, first, END, since, until))
    except ConflictError:  # compacted in this instant
        found = list(log.blocks(partition, first, END, since, until))
    return [block for block in found if block.has_results]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Tuples of one block that wait, by time and offset."""

    first: int
    """The offset of the block: chunks stand in this order, so that equal times are taken in that of offsets."""
    table: pa.Table
    times: Ints

    def before(self, end: int) -> _Chunk:
        return _Chunk(self.first, self.table.slice(0, end), self.times[:end])

    def behind(self, end: int) -> _Chunk:
        return _Chunk(self.first, self.table.slice(end), self.times[end:])


class WaitingTuples:
    """The tuples of one partition of an input with times in [since, until), read block by block, taken by time."""

    def __init__(self, stream: InputStream, partition: int, since: int | None, until: int) -> None:
        self._stream = stream
        self._partition = partition
        self._since = since
        self._until = None if until == END_OF_TIME else until
        self._columns = list(dict.fromkeys([*stream.columns, stream.log.spec.time]))
        self._missing: Block | None = None
        self._find()

    def _find(self) -> None:
        """Looks up the blocks that are to be read; what was read and not taken is read again."""
        found = blocks_between(self._stream.log, self._partition, self._stream.first, self._since, self._until)
        self._unread = sorted(found, key=lambda b: (b.time_min, b.first), reverse=True)
        self._chunks: list[_Chunk] = []
        self._held = 0

    def __len__(self) -> int:
        """How many tuples have been read and not been taken."""
        return self._held

    @property
    def least(self) -> int | None:
        """No tuple that was not read has a time before this one; None if all were read."""
        return self._unread[-1].time_min if self._unread else None

    def read(self) -> None:
        """Reads the block with the least time. Should it be gone, because it was compacted, all are looked up again."""
        block, log = self._unread[-1], self._stream.log
        try:
            table = read_results(log, block, self._columns, self._since, self._until)
        except KeyMissingError as problem:
            if block == self._missing:
                raise log_errors.lost_block(block, log.storage.url) from problem
            self._missing = block
            log.refresh()
            self._find()
            return
        self._unread.pop()
        chunk = self._within(block.first, table)
        if len(chunk.times):
            bisect.insort(self._chunks, chunk, key=lambda c: c.first)
            self._held += len(chunk.times)

    def _within(self, first: int, table: pa.Table) -> _Chunk:
        """The tuples of the times that are wanted, in order."""
        times = table.column(self._stream.log.spec.time).cast(pa.int64()).to_numpy()
        table, times = _sorted(table.select(self._stream.columns), times)
        begin = 0 if self._since is None else int(np.searchsorted(times, self._since))
        end = len(times) if self._until is None else int(np.searchsorted(times, self._until))
        return _Chunk(first, table, times).before(end).behind(begin)

    def count_before(self, time: int) -> int:
        """How many of the tuples that were read have a time before this one."""
        return sum(int(np.searchsorted(chunk.times, time)) for chunk in self._chunks)

    def take(self, horizon: int | None) -> tuple[pa.Table, Ints]:
        """The tuples that were read with a time before the horizon (None: all) in order, and their times."""
        if horizon is None:
            taken, self._chunks = self._chunks, []
        else:
            ends = [int(np.searchsorted(chunk.times, horizon)) for chunk in self._chunks]
            taken = [chunk.before(end) for chunk, end in zip(self._chunks, ends, strict=True) if end]
            left = (chunk.behind(end) for chunk, end in zip(self._chunks, ends, strict=True))
            self._chunks = [chunk for chunk in left if len(chunk.times)]
            self._since = horizon
        self._held -= sum(len(chunk.times) for chunk in taken)
        if not taken:
            schema = self._stream.log.spec.arrow
            return pa.schema([schema.field(name) for name in self._stream.columns]).empty_table(), _NONE
        return _sorted(pa.concat_tables([c.table for c in taken]), np.concatenate([c.times for c in taken]))


_NONE: Ints = np.empty(0, np.int64)


def _sorted(table: pa.Table, times: Ints) -> tuple[pa.Table, Ints]:
    """Both in the order of the times, tuples of one time as they stood; what is in order already is not touched."""
    if len(times) < 2 or bool((times[1:] >= times[:-1]).all()):
        return table, times
    order = np.argsort(times, kind="stable")
    return table.combine_chunks().take(pa.array(order)), times[order]


def total(streams: Sequence[WaitingTuples]) -> int:
    """How many tuples wait in all of them."""
    return sum(len(stream) for stream in streams)
