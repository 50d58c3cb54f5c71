"""The columns of one input's tuples that wait, of any type, as Arrow record batches in one array of bytes.

Tuples are added in batches and have a row number for good, until all that are left are copied together. Batches are
merged as they come so that there are few: one is at least twice as large as the one behind it. What is added lies
behind what was there, so the local state is handed over by what was added.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.operators.kernel_arrays import Bytes, Int64s

BATCHES_MAX = 64
_BATCHES, _ROWS_END, _BYTES_END = range(3)
_FIRST, _ROWS, _AT, _LENGTH = range(4)
_ALIGNED = 64
_GROWTH = 1.5
BYTES_MIN = 1 << 12
_GARBAGE_MIN = 1 << 16


class PayloadStore:
    """Rows of one schema by number."""

    def __init__(self, schema: pa.Schema, data: Bytes, directory: Int64s) -> None:
        self._schema = schema
        self.data = data
        self.directory = directory
        """In its first line how many batches, rows and bytes there are; then first row, rows, place and bytes each."""
        self.replaced = False
        """Whether the bytes were replaced, so that what was added does not tell all."""
        self._batches: list[pa.RecordBatch] | None = None
        self.begin()

    @classmethod
    def empty(cls, schema: pa.Schema) -> PayloadStore:
        """Without rows."""
        return cls(schema, np.empty(BYTES_MIN, np.uint8), np.zeros((BATCHES_MAX + 1, 4), np.int64))

    def begin(self) -> None:
        """Begins a step."""
        self.replaced = False
        self._bytes_before = int(self.directory[0, _BYTES_END])

    @property
    def added(self) -> slice:
        """The bytes that were added since."""
        return slice(self._bytes_before, int(self.directory[0, _BYTES_END]))

    @property
    def end(self) -> int:
        """The number of the next row."""
        return int(self.directory[0, _ROWS_END])

    @property
    def rows(self) -> int:
        """How many rows there are, needed or not."""
        return sum(batch.num_rows for batch in self.batches)

    @property
    def fits(self) -> bool:
        """Whether what the directory says lies within the bytes."""
        many, lines = int(self.directory[0, _BATCHES]), self.directory[1:]
        return bool(
            0 <= many <= BATCHES_MAX
            and self.directory[0, _BYTES_END] <= len(self.data)
            and (lines[:many, _AT] + lines[:many, _LENGTH] <= len(self.data)).all()
        )

    @property
    def batches(self) -> list[pa.RecordBatch]:
        """The batches, read from the bytes where they lie."""
        if self._batches is None:
            lines = self.directory[1 : 1 + int(self.directory[0, _BATCHES])]
            self._batches = [
                pa.ipc.read_record_batch(pa.py_buffer(self.data[at : at + length]), self._schema)
                for _, _, at, length in lines.tolist()
            ]
        return self._batches

    def add(self, rows: pa.Table) -> None:
        """Adds rows; the first has the number `end`."""
        if not len(rows):
            return
        first, batch = self.end, _one_batch(rows)
        self.directory[0, _ROWS_END] += len(rows)
        while (many := int(self.directory[0, _BATCHES])) and (
            self.directory[many, _ROWS] < 2 * batch.num_rows or many == BATCHES_MAX
        ):
            first = int(self.directory[many, _FIRST])
            last = self.batches.pop()
            batch = _one_batch(pa.Table.from_batches([last, batch]))
            self.directory[0, _BATCHES] -= 1
        self._put(first, batch)

    def _put(self, first: int, batch: pa.RecordBatch) -> None:
        written = batch.serialize()
        at = int(_aligned(self.directory[0, _BYTES_END]))
        if at + written.size > len(self.data):
            larger = np.empty(int((at + written.size) * _GROWTH) + BYTES_MIN, np.uint8)
            larger[: self.directory[0, _BYTES_END]] = self.data[: self.directory[0, _BYTES_END]]
            self.data, self.replaced = larger, True
        self.data[at : at + written.size] = np.frombuffer(written, np.uint8)
        self.batches.append(batch)
        self.directory[0, _BATCHES] += 1
        self.directory[0, _BYTES_END] = at + written.size
        self.directory[self.directory[0, _BATCHES]] = first, batch.num_rows, at, written.size

    def repack(self) -> None:
        """Copies the batches together where merging has left more bytes behind than there are."""
        many = int(self.directory[0, _BATCHES])
        before, lines = self.data, self.directory[1 : 1 + many]
        if self.directory[0, _BYTES_END] <= 2 * int(lines[:, _LENGTH].sum()) + _GARBAGE_MIN:
            return
        ends = np.cumsum(_aligned(lines[:, _LENGTH]))
        self.data, self._batches, self.replaced = np.empty(int(ends[-1]) + BYTES_MIN, np.uint8), None, True
        for line, end in zip(lines, ends, strict=True):
            at, length = int(end - _aligned(line[_LENGTH])), int(line[_LENGTH])
            self.data[at : at + length] = before[line[_AT] : line[_AT] + length]
            line[_AT] = at
        self.directory[0, _BYTES_END] = ends[-1]

    def keep_only(self, rows: Int64s) -> None:
        """Forgets all rows but these; they are numbered from 0 on, in this order."""
        kept = self.take(rows)
        self.directory[:] = 0
        self.data, self._batches, self.replaced = np.empty(BYTES_MIN, np.uint8), [], True
        self.add(kept)

    def take(self, rows: Int64s, more: pa.Table | None = None, there: npt.NDArray[np.bool_] | None = None) -> pa.Table:
        """These rows, one after the other; those from `end` on are of `more`, and nulls where none is `there`."""
        sources: list[pa.RecordBatch | pa.Table] = [*self.batches, *([more] if more is not None else [])]
        firsts = [*self.directory[1 : 1 + len(self.batches), _FIRST].tolist(), self.end]
        wanted = np.arange(len(rows)) if there is None else np.flatnonzero(there)
        which = np.searchsorted(np.array(firsts, np.int64), rows[wanted], side="right") - 1
        order = np.zeros(len(rows), np.int64)
        parts, many = [self._schema.empty_table()], 0
        for source in np.unique(which).tolist():
            own = wanted[which == source]
            taken = sources[source].take(pa.array(rows[own] - firsts[source]))
            parts.append(taken if isinstance(taken, pa.Table) else pa.Table.from_batches([taken]))
            order[own] = many + np.arange(len(own))
            many += len(own)
        table = pa.concat_tables(parts).combine_chunks()
        if there is None and len(parts) == 2:
            return table
        return table.take(pa.array(order, mask=None if there is None else ~there))


def _aligned(size: Any) -> Any:
    return -(-size // _ALIGNED) * _ALIGNED


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]
