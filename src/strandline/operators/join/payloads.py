"""What kernels do not look at: the other columns of kept tuples, of any type, as chunks in an arena of bytes.

A chunk is an Arrow record batch in Arrow's own format for messages, read where it lies. Chunks are in the order of
arrival, so that a tuple's number tells its chunk and row. Small neighbours are merged as they come, within an eighth of
what is kept; a chunk goes when its last tuple goes, or is written anew when half of it is dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from strandline.operators.kernel_arrays import Bytes, Int64s

ROW_BYTES: Final = 512
"""The arena is given out in rows of so many bytes."""
CHUNKS_MAX: Final = 96
_MERGED_MIN: Final = 4096
_GROWTH: Final = 1.25


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Payloads of `rows` tuples from the number `first` on; `size` rows of the arena from `at` on."""

    first: int
    rows: int
    at: int
    size: int

    @property
    def end(self) -> int:
        return self.first + self.rows


class Payloads:
    """The payloads of one side."""

    def __init__(self, schema: pa.Schema, arena: Bytes | None = None, table: Int64s | None = None) -> None:
        """Raises ValueError if the arrays are not those of payloads."""
        self.schema = schema
        self._arena: Bytes = np.empty((0, ROW_BYTES), np.uint8) if arena is None else arena
        rows = () if table is None else table[table[:, 3] > 0].tolist()
        self._chunks = [_Chunk(*row) for row in rows]
        self._read: dict[int, pa.RecordBatch] = {}
        if self._arena.shape[1:] != (ROW_BYTES,) or any(c.at + c.size > len(self._arena) for c in self._chunks):
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

    # ------------------------------------------------------------------ arrays

    @property
    def arena(self) -> Bytes:
        """All bytes, in rows."""
        return self._arena

    @property
    def table(self) -> Int64s:
        """The chunks, a row each; rows without a size are none."""
        table = np.zeros((CHUNKS_MAX, 4), np.int64)
        for i, c in enumerate(self._chunks):
            table[i] = c.first, c.rows, c.at, c.size
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
        most = max(_MERGED_MIN, kept // 8)
        while len(self._chunks) > 1:
            last, before = self._chunks[-1], self._chunks[-2]
            is_small = before.rows <= 2 * last.rows and before.rows + last.rows <= most
            if not is_small and len(self._chunks) < CHUNKS_MAX:
                break
            merged = pa.Table.from_batches([self._batch(before), self._batch(last)])
            self._free(last)
            self._free(before)
            self._put(before.first, merged)

    def drop_before(self, number: int) -> None:
        """Lets go of payloads of tuples before this number, if that is worth it."""
        while self._chunks and self._chunks[0].end <= number:
            self._free(self._chunks[0])
        if self._chunks:
            head = self._chunks[0]
            dead = number - head.first
            if dead > head.rows // 2 and dead > _MERGED_MIN:
                rest = pa.Table.from_batches([self._batch(head).slice(dead)])
                self._free(head)
                self._put(number, rest, place=0)

    def choose(self, numbers: Int64s, first: int) -> None:
        """Keeps the payloads of these tuples alone, which are numbered anew from `first` on."""
        if len(self.schema):
            chosen = self.taken(numbers - (self.first or 0), None)
            self._chunks, self._read = [], {}
            if chosen.num_rows:
                self._arena = np.empty((0, ROW_BYTES), np.uint8)
                self._put(first, chosen)
            self.is_replaced = True

    def taken(self, places: Int64s, new: pa.Table | None, names: Sequence[str] | None = None) -> pa.Table:
        """The payloads at these places, counted from `first`, `new` behind them; -1 is a row of nulls."""
        parts = [self._batch(c) for c in self._chunks]
        schema = self.schema if names is None else pa.schema([self.schema.field(c) for c in names])
        if new is not None and new.num_rows:
            parts += new.to_batches()
        if not parts or not len(schema):
            return pa.table([pa.nulls(len(places), f.type) for f in schema], schema=schema)
        if names is not None:
            parts = [part.select(schema.names) for part in parts]
        nothing = places < 0
        indices = pa.array(places, mask=nothing if nothing.any() else None)
        if len(parts) > 1 and 4 * len(places) < sum(len(p) for p in parts):
            return _sparse(parts, places, schema)
        return pa.Table.from_batches(parts, schema).combine_chunks().take(indices)

    # ------------------------------------------------------------------ the arena

    def _batch(self, chunk: _Chunk) -> pa.RecordBatch:
        found = self._read.get(chunk.at)
        if found is None:
            data = self._arena[chunk.at : chunk.at + chunk.size].reshape(-1)
            found = self._read[chunk.at] = pa.ipc.read_record_batch(pa.py_buffer(data), self.schema)
        return found

    def _put(self, first: int, tuples: pa.Table, place: int | None = None) -> None:
        place = len(self._chunks) if place is None else place
        for batch in tuples.combine_chunks().to_batches():  # one, if it does not hold more than 2 GiB of texts
            data = np.frombuffer(batch.serialize(), np.uint8)
            size = -(-len(data) // ROW_BYTES)
            at = self._room(size)
            self._arena[at : at + size].reshape(-1)[: len(data)] = data
            self._written.append((at, at + size))
            self._chunks.insert(place, _Chunk(first, len(batch), at, size))
            first, place = first + len(batch), place + 1

    def _free(self, chunk: _Chunk) -> None:
        self._chunks.remove(chunk)
        self._read.pop(chunk.at, None)

    def _room(self, size: int) -> int:
        """Where so many rows are free; the arena grows if they are nowhere."""
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


def _sparse(parts: Sequence[pa.RecordBatch], places: Int64s, schema: pa.Schema) -> pa.Table:
    """Few rows of many: taken part by part, so that parts without any cost nothing."""
    ends = np.cumsum([len(p) for p in parts])
    owner = np.searchsorted(ends, places, side="right")
    order = np.argsort(owner, kind="stable")
    sorted_owner = owner[order]
    taken, rank = [], 0
    while rank < len(order):
        part = int(sorted_owner[rank])
        until = int(np.searchsorted(sorted_owner, part, side="right"))
        inside = places[order[rank:until]] - (int(ends[part]) - len(parts[part]))
        nothing = inside < 0
        taken.append(parts[part].take(pa.array(inside, mask=nothing if nothing.any() else None)))
        rank = until
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return pa.Table.from_batches(taken, schema).combine_chunks().take(pa.array(back))
