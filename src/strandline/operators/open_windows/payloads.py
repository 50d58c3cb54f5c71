"""The columns of kept tuples that kernels do not read, of any type, as chunks in an arena of bytes.

A chunk is an Arrow record batch in Arrow's own format for messages, read where it lies. Tuples have numbers in the
order of arrival, so that a tuple's number tells its chunk and row. Small neighbours are merged as they come, within a
part of what is kept and the bytes that a chunk may have; a chunk goes when its last tuple goes. It is written anew only
when its dead tuples are many beside all that is kept, or their bytes: every tuple that is written again costs a step
twice. The arena becomes smaller when little of it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from strandline.arrow_rows import Rows, Sizes, portions, rows_of, sizes_at, taken
from strandline.operators.kernels.kernel_arrays import Bytes, Int64s

ROW_BYTES: Final = 512
"""The arena is given out in rows of so many bytes."""
CHUNKS_MAX: Final = 96
"""Chunks are merged when there are more, if they are not large."""
CHUNK_BYTES_MAX = 256 << 20
"""A larger chunk is made for a single tuple only."""
_MERGED_MIN: Final = 4096
_MERGED_PART: Final = 32
"""Neighbours are merged up to this part of all that is kept."""
_DEAD_PART: Final = 4
"""Dead tuples of a chunk stay with it up to this part of all that is kept."""
_DEAD_BYTES_MIN: Final = 4 << 20
"""The same by bytes: so many stay in any case."""
_GROWTH: Final = 1.25
_USED_PART: Final = 4
"""The arena is moved to a smaller one when less than this part of it is used,"""
_ARENA_MIN: Final = (4 << 20) // ROW_BYTES
"""if it has more rows than that."""
_CHUNK_WORDS: Final = 5


@dataclass(frozen=True, slots=True)
class _PayloadChunk:
    """Payloads of `rows` tuples from the number `first` on; `size` rows of the arena from `at` on."""

    first: int
    rows: int
    at: int
    size: int
    largest: int
    """Returns a number of bytes that no payload exceeds."""

    @property
    def end(self) -> int:
        return self.first + self.rows


class Payloads:
    """The payloads of one side or input."""

    def __init__(self, schema: pa.Schema, arena: Bytes | None = None, table: Int64s | None = None) -> None:
        """Raises ValueError if the arrays are not those of payloads."""
        self.schema = schema
        self._arena: Bytes = np.empty((0, ROW_BYTES), np.uint8) if arena is None else arena
        if table is not None and table.shape[1:] != (_CHUNK_WORDS,):
            raise ValueError("payloads of another time")
        rows = () if table is None else table[table[:, 3] > 0].tolist()
        self._chunks = [_PayloadChunk(*row) for row in rows]
        self._room_in_table = CHUNKS_MAX if table is None else len(table)
        self._read: dict[int, Rows] = {}
        is_inside = all(c.rows > 0 and 0 <= c.at <= len(self._arena) - c.size for c in self._chunks)
        if self._arena.shape[1:] != (ROW_BYTES,) or not is_inside:
            raise ValueError("payloads out of bounds")
        self.begin()

    def begin(self) -> None:
        """Begins a new trace of changes."""
        self.is_replaced = False
        self._written: list[tuple[int, int]] = []

    @property
    def first(self) -> int | None:
        """The number of the first tuple that has a payload here; None if there is none."""
        return self._chunks[0].first if self._chunks else None

    @property
    def end(self) -> int:
        """The number behind the last tuple that has a payload here; 0 if there is none."""
        return self._chunks[-1].end if self._chunks else 0

    @property
    def rows(self) -> int:
        """How many tuples have a payload here, needed or not."""
        return sum(c.rows for c in self._chunks)

    # ------------------------------------------------------------------ arrays

    @property
    def arena(self) -> Bytes:
        """All bytes, in rows."""
        return self._arena

    @property
    def table(self) -> Int64s:
        """The chunks, a row each; rows without a size are none."""
        if len(self._chunks) > self._room_in_table:
            self._room_in_table = 2 * len(self._chunks)
            self.is_replaced = True
        table = np.zeros((self._room_in_table, _CHUNK_WORDS), np.int64)
        for i, c in enumerate(self._chunks):
            table[i] = c.first, c.rows, c.at, c.size, c.largest
        return table

    @property
    def changed(self) -> Int64s:
        """The rows of the arena that were written since `begin`."""
        parts = [np.arange(begin, end) for begin, end in self._written]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)

    # ------------------------------------------------------------------ tuples in and out

    def add(self, first: int, tuples: pa.Table, kept: int) -> None:
        """Adds payloads of tuples from this number on; `kept`: how many tuples are kept now."""
        if not len(self.schema) or not tuples.num_rows:
            return
        self._put(first, tuples)
        most = max(_MERGED_MIN, kept // _MERGED_PART)
        while len(self._chunks) > 1:
            last, before = self._chunks[-1], self._chunks[-2]
            is_small = before.rows <= 2 * last.rows and before.rows + last.rows <= most
            is_large = (before.size + last.size) * ROW_BYTES > CHUNK_BYTES_MAX
            if is_large or (not is_small and len(self._chunks) < CHUNKS_MAX):
                break
            merged = pa.Table.from_batches([self._rows(before).batch, self._rows(last).batch])
            self._free(last)
            self._free(before)
            self._put(before.first, merged)

    def shaped(self, tuples: pa.Table) -> pa.Table:
        """Returns the payloads of tuples that are not kept yet."""
        own = tuples.select(self.schema.names)
        return own if own.schema.equals(self.schema) else own.cast(self.schema)

    def drop_before(self, number: int) -> None:
        """Drops payloads of tuples before this number, if that is worth it."""
        while self._chunks and self._chunks[0].end <= number:
            self._free(self._chunks[0])
        if self._chunks:
            head = self._chunks[0]
            dead = number - head.first
            if self._is_worth_it(head, dead):
                rest = pa.Table.from_batches([self._rows(head).batch.slice(dead)])
                self._free(head)
                self._put(number, rest, place=0)
        self._shrink()

    def _is_worth_it(self, head: _PayloadChunk, dead: int) -> bool:
        """Returns whether the first chunk has enough dead tuples, or bytes of them, to be written without them."""
        if dead <= 0:
            return False
        if dead > _MERGED_MIN and dead > self.rows // _DEAD_PART:
            return True
        # Of tuples of one size: as a rule they are, and to look at each takes as long as to write them.
        dead_bytes = head.size * ROW_BYTES * dead // head.rows
        return dead_bytes > max(_DEAD_BYTES_MIN, self._used * ROW_BYTES // _DEAD_PART)

    @property
    def _used(self) -> int:
        """How many rows of the arena belong to chunks."""
        return sum(c.size for c in self._chunks)

    def _shrink(self) -> None:
        """Moves chunks to a smaller arena if they use little of this one.

        It is twice as large as they are: before it is moved again, as much has come or gone as was moved.
        """
        used = self._used
        room = max(_ARENA_MIN, 2 * used)
        if len(self._arena) <= _ARENA_MIN or used * _USED_PART >= len(self._arena):
            return
        smaller, at, moved = np.zeros((room, ROW_BYTES), np.uint8), 0, []
        for chunk in self._chunks:
            smaller[at : at + chunk.size] = self._arena[chunk.at : chunk.at + chunk.size]
            moved.append(replace(chunk, at=at))
            at += chunk.size
        self._arena, self._chunks, self._read = smaller, moved, {}  # what was read refers to the old one
        self.is_replaced = True

    def choose(self, numbers: Int64s) -> None:
        """Keeps the payloads of these tuples alone, which are numbered anew from 0 on."""
        if not len(self.schema):
            return
        places, chosen = numbers - (self.first or 0), Payloads(self.schema)
        for begin, end in portions(self.sizes(places), len(places), CHUNK_BYTES_MAX):
            chosen.add(begin, self.taken(places[begin:end]), len(places))
        self._arena, self._chunks, self._read = chosen._arena, chosen._chunks, chosen._read
        self.is_replaced = True

    def taken(self, places: Int64s, new: Sequence[Rows] = (), names: Sequence[str] | None = None) -> pa.Table:
        """Returns the payloads at these places, counted from `first`, `new` behind them; -1 is a row of nulls."""
        schema = self.schema if names is None else pa.schema([self.schema.field(c) for c in names])
        return taken([*self._parts(), *new], places, schema)

    def sizes(self, places: Int64s, new: Sequence[Rows] = ()) -> Sizes:
        """Returns the bytes of the payloads at these places."""
        return sizes_at([*self._parts(), *new], places)

    def largest(self, new: Sequence[Rows] = ()) -> int:
        """Returns a number of bytes that no payload exceeds."""
        return max((part.largest for part in (*self._parts(), *new)), default=0)

    # ------------------------------------------------------------------ the arena

    def _parts(self) -> Iterator[Rows]:
        return map(self._rows, self._chunks)

    def _rows(self, chunk: _PayloadChunk) -> Rows:
        found = self._read.get(chunk.at)
        if found is None:
            data = self._arena[chunk.at : chunk.at + chunk.size].reshape(-1)
            found = self._read[chunk.at] = Rows(
                pa.ipc.read_record_batch(pa.py_buffer(data), self.schema), chunk.largest
            )
        return found

    def _put(self, first: int, tuples: pa.Table, place: int | None = None) -> None:
        place = len(self._chunks) if place is None else place
        parts = rows_of(tuples)
        if len(parts) > 1 and sum(part.total for part in parts) <= CHUNK_BYTES_MAX:
            parts = rows_of(tuples.combine_chunks())
        cut = [
            Rows(part.batch.slice(begin, end - begin), part.largest)
            for part in parts
            for begin, end in portions(part.sizes, len(part), CHUNK_BYTES_MAX)
        ]
        # All before any is written: they may lie in the arena, where there is room now.
        for piece, written in [(piece, piece.batch.serialize()) for piece in cut]:
            self._chunks.insert(place, self._write(first, piece, np.frombuffer(written, np.uint8)))
            first, place = first + len(piece), place + 1

    def _write(self, first: int, piece: Rows, data: Bytes) -> _PayloadChunk:
        size = -(-len(data) // ROW_BYTES)
        at = self._room(size)
        self._arena[at : at + size].reshape(-1)[: len(data)] = data
        self._written.append((at, at + size))
        return _PayloadChunk(first, len(piece), at, size, piece.largest)

    def _free(self, chunk: _PayloadChunk) -> None:
        self._chunks.remove(chunk)
        self._read.pop(chunk.at, None)

    def _room(self, size: int) -> int:
        """Returns where so many rows are free; the arena grows if they are nowhere."""
        end = 0
        for chunk in sorted(self._chunks, key=lambda c: c.at):
            if chunk.at - end >= size:
                return end
            end = chunk.at + chunk.size
        if end + size > len(self._arena):
            larger = np.zeros((max(end + size, int(len(self._arena) * _GROWTH)), ROW_BYTES), np.uint8)
            larger[: len(self._arena)] = self._arena
            self._arena = larger
            self._read = {}  # they refer to the old one
            self.is_replaced = True
        return end
