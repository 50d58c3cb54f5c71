"""Rows out of Arrow tables, by bytes: no array that is made here passes what Arrow can count with 32 bits.

Arrow's texts and lists have offsets of 32 bits. An array of more than 2 GiB of them cannot be, and to put rows in order
Arrow makes one array of all. So rows are taken in portions that are known to fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
Sizes = int | Int64s
"""Bytes of rows: of each, or of any."""

ARRAY_BYTES_MAX = 1 << 30
"""So many bytes of rows, or a single row, go through one array."""
_PART_WORTH_BYTES = 100_000
"""Bytes that are copied in the time that it takes to ask one more part for its rows,"""
_ROW_WORTH_BYTES = 400
"""and in the time that it takes to put a row from another part in its place. Measured: 10 us, 40 ns, 10 bytes a ns."""
PORTION_BYTES_MAX = 64 << 20
"""So many bytes of rows, or a single row, are made at once where there may be any number of them."""


@dataclass(frozen=True)
class Rows:
    """Some rows, and how large they are."""

    batch: pa.RecordBatch
    known_largest: int | None = None
    """The size of the largest row in bytes, or a larger number; None until a look at every row has found it."""

    @cached_property
    def sizes(self) -> Sizes:
        """Bytes of each row, or of any of them."""
        return _sum(row_bytes(column) for column in self.batch.columns)

    @cached_property
    def largest(self) -> int:
        """No row has more bytes."""
        return largest(self.sizes) if self.known_largest is None else self.known_largest

    @cached_property
    def total(self) -> int:
        """Bytes of all rows."""
        return self.sizes * len(self) if isinstance(self.sizes, int) else int(self.sizes.sum())

    def __len__(self) -> int:
        return len(self.batch)


def rows_of(table: pa.Table) -> list[Rows]:
    """Returns the rows of a table in their order."""
    return [Rows(batch) for batch in table.to_batches() if len(batch)]


def taken(parts: Sequence[Rows], places: Int64s, schema: pa.Schema) -> pa.Table:
    """Returns the rows at these places, counted over all parts, in the columns of the schema; -1 is a row of nulls.

    In one chunk, unless that would be larger than `ARRAY_BYTES_MAX`.
    """
    if not parts or not len(schema):
        return pa.table([pa.nulls(len(places), f.type) for f in schema], schema=schema)
    batches = [part.batch.select(schema.names) for part in parts]
    if len(places) * max(part.largest for part in parts) > ARRAY_BYTES_MAX:
        sizes = sizes_at(parts, places)
        cut = portions(sizes, len(places), ARRAY_BYTES_MAX)
        return pa.concat_tables([_by_part(batches, places[begin:end], schema) for begin, end in cut])
    if len(parts) > 1 and _is_sparse(batches, len(places)):
        return _by_part(batches, places, schema)
    return pa.Table.from_batches(batches, schema).combine_chunks().take(_indices(places))


def in_order(table: pa.Table, order: Int64s) -> pa.Table:
    """Returns the rows of the table in this order, each at most once."""
    if table.num_columns and table.nbytes <= ARRAY_BYTES_MAX:  # what is taken has no more: no need to look at every row
        return table.combine_chunks().take(pa.array(order))
    return taken(rows_of(table), order, table.schema)


def stacked(parts: Sequence[Sequence[pa.Array]]) -> list[Any]:
    """Joins the columns of several parts: returns arrays if there is one part, else chunks."""
    if len(parts) == 1:
        return list(parts[0])
    return [pa.chunked_array(arrays) for arrays in zip(*parts, strict=True)]


def sizes_at(parts: Sequence[Rows], places: Int64s) -> Sizes:
    """Returns the bytes of the rows at these places; for nulls any number. Parts without such a row cost nothing."""
    if not parts:
        return 0
    ends, at = np.cumsum([len(part) for part in parts]), np.maximum(places, 0)
    owner = np.searchsorted(ends, at, side="right").astype(np.uint16 if len(parts) < 1 << 16 else np.int64)
    order = np.argsort(owner, kind="stable")  # by radix
    owners, begins = np.unique(owner[order], return_index=True)
    if all(isinstance(parts[i].sizes, int) for i in owners):
        return max((parts[i].largest for i in owners), default=0)
    found: Int64s = np.empty(len(places), np.int64)
    for i, mine in zip(owners.tolist(), np.split(order, begins[1:]), strict=True):
        sizes = parts[i].sizes
        found[mine] = sizes if isinstance(sizes, int) else sizes[at[mine] - (int(ends[i]) - len(parts[i]))]
    return found


def portions(sizes: Sizes, rows: int, bytes_max: int | None = None) -> Iterator[tuple[int, int]]:
    """Yields begin and end of neighbours with at most `bytes_max` bytes (`PORTION_BYTES_MAX`), or one row."""
    bytes_max = bytes_max or PORTION_BYTES_MAX
    if largest(sizes) * rows <= bytes_max:
        if rows:
            yield 0, rows
        return
    ends = np.cumsum(np.broadcast_to(np.asarray(sizes, np.int64), rows))
    begin = 0
    while begin < rows:
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + bytes_max, side="right")))
        yield begin, end
        begin = end


def largest(sizes: Sizes) -> int:
    """Returns the size of the largest row in bytes, or a larger number."""
    return sizes if isinstance(sizes, int) else int(sizes.max(initial=0))


def row_bytes(column: pa.Array) -> Sizes:
    """Returns the bytes of each row in memory, validity and offsets included."""
    kind = column.type
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_struct(kind):
        return _sum([1, *(row_bytes(column.field(i)) for i in range(kind.num_fields))])
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return 5 + _list_bytes(np.asarray(column.offsets, np.int64), row_bytes(column.values))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        lengths: Int64s = np.asarray(pc.fill_null(pc.binary_length(column), 0)).astype(np.int64)
        return 5 + lengths
    return 1 + -(-int(kind.bit_width) // 8)


def _list_bytes(offsets: Int64s, inner: Sizes) -> Int64s:
    if isinstance(inner, int):
        return inner * np.diff(offsets)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(inner)])
    found: Int64s = ends[offsets[1:]] - ends[offsets[:-1]]
    return found


def _sum(sizes: Any) -> Sizes:
    total: Sizes = 0
    for each in sizes:
        total = total + each
    return total


def _indices(places: Int64s) -> pa.Array:
    nothing = places < 0
    return pa.array(places, mask=nothing if nothing.any() else None)


def _is_sparse(parts: Sequence[pa.RecordBatch], rows: int) -> bool:
    """Returns whether so few rows are to be taken that they come faster from part by part than from a copy of all."""
    total = sum(part.nbytes for part in parts)
    if total > ARRAY_BYTES_MAX:
        return True
    return 4 * rows < sum(map(len, parts)) and total > _PART_WORTH_BYTES * len(parts) + _ROW_WORTH_BYTES * rows


def _by_part(parts: Sequence[pa.RecordBatch], places: Int64s, schema: pa.Schema) -> pa.Table:
    """Takes rows part by part, so that parts without any cost nothing and no array holds all parts."""
    ends = np.cumsum([len(p) for p in parts])
    owner = np.searchsorted(ends, places, side="right")
    order = np.argsort(owner.astype(np.uint16) if len(parts) < 1 << 16 else owner, kind="stable")  # by radix
    sorted_owner = owner[order]
    found, rank = [], 0
    while rank < len(order):
        part = int(sorted_owner[rank])
        until = int(np.searchsorted(sorted_owner, part, side="right"))
        found.append(parts[part].take(_indices(places[order[rank:until]] - (int(ends[part]) - len(parts[part])))))
        rank = until
    if len(found) <= 1:
        return pa.Table.from_batches(found, schema)
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return pa.Table.from_batches(found, schema).combine_chunks().take(pa.array(back))
