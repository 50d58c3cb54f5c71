"""One of the streams that are serialised: what was not read of it yet, and its tuples that wait for others'."""

from __future__ import annotations

import bisect
import heapq
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strandline.arrow_rows import in_order
from strandline.control_columns import OFFSET
from strandline.errors import KeyMissingError
from strandline.log.index.leaf import Ints
from strandline.log.operator_state.guesses import Guesses
from strandline.log.stream import log_errors
from strandline.log.stream.block import Block
from strandline.log.stream.block_slice import OpenBlock, RowGroup
from strandline.log.stream.kinds import Kind
from strandline.log.stream.listing import listed
from strandline.log.stream.log import END, Log
from strandline.log.stream.spec import KEY
from strandline.units import END_OF_TIME, latest


@dataclass(frozen=True, slots=True)
class InputStream:
    """A stream, and what is wanted of it."""

    log: Log
    columns: tuple[str, ...]
    """Which an operator reads."""
    first: int = 0
    """No tuple before this offset is wanted: of a mark, or of the first block that a share knows."""
    guesses: Guesses | None = None
    """Tentative tuples that are wanted beside results; of these, only those that were there at the driver's look:
    results that came later correct them, and would count twice."""
    results_from: int = 0
    """Results before this offset are not wanted, whatever their times: the stable lineage has taken them in."""


class Horizon(NamedTuple):
    """A place in the serialised order: the tuples before it were read."""

    time: int
    number: int
    """The input."""
    first: int
    """The offset in the input."""


def blocks_between(log: Log, partition: int, first: int, since: int | None, until: int | None) -> list[Block]:
    """Returns the blocks with results from the offset `first` on that may have a time in [since, until), by offset.

    The end of time is after every tuple, as None is. Raises `TruncatedError` if that offset was dropped.
    """
    log.require_kept(partition, first)
    before = None if until == END_OF_TIME else until
    return [block for block in listed(log, partition, first, END, since, before) if block.has_results]


def guess_blocks(log: Log, partition: int, guesses: Guesses, since: int | None, until: int | None) -> list[Block]:
    """Returns the blocks with tentative tuples that count and may have such a time, by offset.

    The index knows the times of results, and so does a block that has some: these are not judged by their times.
    """
    least = latest(since, guesses.since)
    found = listed(log, partition, guesses.first_at(least), guesses.end)
    return [
        block
        for block in found
        if block.has_guesses
        and (block.has_results or least is None or block.time_max >= least)
        and (block.has_results or until is None or block.time_min < until)
    ]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Tuples of one row group that wait, by time and offset."""

    first: int
    """Not after their offsets: chunks stand in this order, so that equal times are taken in that of offsets."""
    table: pa.Table
    times: Ints
    row_bytes: float

    @property
    def nbytes(self) -> float:
        """About how many bytes they have."""
        return len(self.times) * self.row_bytes

    def before(self, end: int) -> _Chunk:
        return _Chunk(self.first, self.table.slice(0, end), self.times[:end], self.row_bytes)

    def behind(self, end: int) -> _Chunk:
        return _Chunk(self.first, self.table.slice(end), self.times[end:], self.row_bytes)


class WaitingTuples:
    """The tuples of one partition of an input with times in [since, until), read as they are wanted, taken in order."""

    def __init__(self, stream: InputStream, number: int, partition: int, since: int | None, until: int) -> None:
        self._stream = stream
        self._number = number
        self._partition = partition
        self._since = since
        self._since_offset = 0
        """Of the tuples of that time, those before this offset were taken."""
        self._until = None if until == END_OF_TIME else until
        spec = stream.log.spec
        self._columns = list(dict.fromkeys([*stream.columns, spec.time, *([OFFSET] if spec.is_stamped else [])]))
        self._missing: Block | None = None
        self._find()

    def _find(self) -> None:
        """Looks up the blocks that are to be read; what was read and not taken is read again."""
        found = blocks_between(self._stream.log, self._partition, self._stream.first, self._since, self._until)
        self._unread: list[tuple[int, int, Block | RowGroup]] = [(b.time_min, b.first, b) for b in found]
        guesses = self._stream.guesses
        if guesses is not None:
            more = guess_blocks(self._stream.log, self._partition, guesses, self._since, self._until)
            least = _BEFORE_ALL if guesses.since is None else guesses.since
            known = {b.first: b for b in (*found, *more) if b.first < guesses.end}
            guessed = {b.first for b in more if b.has_results}
            self._unread = [
                (min(b.time_min, least) if b.first in guessed else b.time_min, b.first, b) for b in known.values()
            ]
        heapq.heapify(self._unread)
        self._keep([])

    def _keep(self, chunks: list[_Chunk]) -> None:
        """Sets the waiting tuples, and counts them once, because their number is asked for after every block."""
        self._chunks = chunks
        self._count = sum(len(chunk.times) for chunk in chunks)
        self.nbytes = sum(chunk.nbytes for chunk in chunks)
        """About how many bytes they have."""

    def _add(self, chunk: _Chunk) -> None:
        bisect.insort(self._chunks, chunk, key=lambda c: c.first)
        self._count += len(chunk.times)
        self.nbytes += chunk.nbytes

    def __len__(self) -> int:
        """Returns how many tuples have been read and not been taken."""
        return self._count

    @property
    def least(self) -> Horizon | None:
        """No tuple that was not read comes before this place; None if all were read."""
        return Horizon(self._unread[0][0], self._number, self._unread[0][1]) if self._unread else None

    def read(self) -> None:
        """Reads what may come next: a row group of a block, after its footer.

        Should the block be gone, because it was compacted, all are looked up again.
        """
        source, log = self._unread[0][2], self._stream.log
        url = log.storage.url
        block = source if isinstance(source, Block) else source.block
        try:
            if isinstance(source, Block):
                opened = OpenBlock(log, source)
                heapq.heappop(self._unread)
                for group in self._groups(opened):
                    heapq.heappush(self._unread, (group.time_min, group.first, group))
                self._read_group(opened)
                opened.release()
            else:
                self._read_group(source.opened)
        except KeyMissingError as problem:
            if block == self._missing:
                is_there = log.storage.exists(KEY)
                raise (log_errors.lost_block(block, url) if is_there else log_errors.gone(url)) from problem
            self._missing = block
            log.refresh()
            self._find()

    def _groups(self, opened: OpenBlock) -> list[RowGroup]:
        """Returns the row groups of a block that may hold wanted tuples."""
        found = opened.groups(self._since, self._until)
        guesses = self._stream.guesses
        if guesses is None or not opened.block.has_guesses:
            return found
        return found + opened.groups(latest(self._since, guesses.since), self._until, Kind.TENTATIVE)

    def _read_group(self, opened: OpenBlock) -> None:
        """Reads what comes next if it is of this block."""
        group = self._unread[0][2] if self._unread else None
        if not isinstance(group, RowGroup) or group.opened is not opened:
            return
        table = group.read(self._columns)
        first, wanted = group.first, self._stream.results_from
        if group.kind is Kind.RESULT and first < wanted:
            table = table.filter(pa.array(self._offsets(first, table) >= wanted))
            first = wanted
        if self._stream.guesses is not None:
            table = self._that_count(table, self._stream.guesses, group.kind)
        chunk = self._within(first, table)
        heapq.heappop(self._unread)
        if len(chunk.times):
            self._add(chunk)

    def _that_count(self, table: pa.Table, guesses: Guesses, kind: Kind) -> pa.Table:
        """Keeps the tuples that were there when the guesses were seen; of tentative ones, those that counted then."""
        offsets = table.column(OFFSET).to_numpy()
        kept = offsets < guesses.end
        if kind is Kind.TENTATIVE:
            kept &= offsets >= guesses.first
            if guesses.since is not None:
                kept &= table.column(self._stream.log.spec.time).cast(pa.int64()).to_numpy() >= guesses.since
        return table if kept.all() else table.filter(pa.array(kept))

    def _offsets(self, first: int, table: pa.Table) -> Ints:
        offsets: Ints = first + np.arange(len(table))
        return table.column(OFFSET).to_numpy() if self._stream.log.spec.is_stamped else offsets

    def _within(self, first: int, table: pa.Table) -> _Chunk:
        """Returns the tuples of the wanted times, in order."""
        spec = self._stream.log.spec
        times = table.column(spec.time).cast(pa.int64()).to_numpy()
        if self._since is not None and self._since_offset and (times == self._since).any():
            kept = (times != self._since) | (self._offsets(first, table) >= self._since_offset)
            table, times = table.filter(pa.array(kept)), times[kept]
        table, times = _sorted(table.select(self._stream.columns), times)
        begin = 0 if self._since is None else int(np.searchsorted(times, self._since))
        end = len(times) if self._until is None else int(np.searchsorted(times, self._until))
        row_bytes = table.nbytes / max(1, len(times))
        return _Chunk(first, table, times, row_bytes).before(end).behind(begin)

    def count_before(self, horizon: Horizon) -> int:
        """Returns how many of the tuples that were read come before this place."""
        return sum(self._ends(horizon))

    def _ends(self, horizon: Horizon) -> list[int]:
        """Returns of each chunk how many of its tuples come before this place."""
        time, number, first = horizon
        equal = [self._number < number or (self._number == number and c.first < first) for c in self._chunks]
        pairs = zip(self._chunks, equal, strict=True)
        return [int(np.searchsorted(c.times, time, side="right" if e else "left")) for c, e in pairs]

    def take(self, horizon: Horizon | None) -> tuple[pa.Table, Ints]:
        """Takes the tuples that were read and come before the horizon (None: all), in order; returns them with their
        times."""
        if horizon is None:
            taken = self._chunks
            self._keep([])
        else:
            ends = self._ends(horizon)
            taken = [chunk.before(end) for chunk, end in zip(self._chunks, ends, strict=True) if end]
            left = (chunk.behind(end) for chunk, end in zip(self._chunks, ends, strict=True))
            self._keep([chunk for chunk in left if len(chunk.times)])
            self._since = horizon.time
            is_own = self._number == horizon.number
            self._since_offset = horizon.first if is_own else END if self._number < horizon.number else 0
        if not taken:
            schema = self._stream.log.spec.arrow
            return pa.schema([schema.field(name) for name in self._stream.columns]).empty_table(), _NONE
        return _sorted(pa.concat_tables([c.table for c in taken]), np.concatenate([c.times for c in taken]))


_NONE: Ints = np.empty(0, np.int64)
_BEFORE_ALL = int(np.iinfo(np.int64).min)


def _sorted(table: pa.Table, times: Ints) -> tuple[pa.Table, Ints]:
    """Sorts both by the times, tuples of one time as they stood; does not touch what is in order already."""
    if len(times) < 2 or bool((times[1:] >= times[:-1]).all()):
        return table, times
    order = np.argsort(times, kind="stable")
    return in_order(table, order), times[order]
