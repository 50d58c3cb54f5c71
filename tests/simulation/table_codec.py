"""Blocks that stay Arrow tables: what a simulation of operators uses in the place of Parquet.

`tests.support.plain_codec` keeps items; operators have columns of their own. A block's bytes are the number of its
table, long enough to be unlike any other, and whoever reads them gets the table.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import KIND, OFFSET
from strandline.inputs import input_stream
from strandline.log.index import index
from strandline.log.stream import block as blocks_
from strandline.log.stream.block import Block, checksum
from strandline.log.stream.block_slice import RowGroup
from strandline.log.stream.kinds import Kind, only_results
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from tests.support.plain_codec import PlainLeaf

ROWS_PER_GROUP = 5


class Tables:
    """The tables of one run, by the bytes that stand for them."""

    def __init__(self, rows_per_group: int) -> None:
        self._rows_per_group = rows_per_group
        self._tables: dict[bytes, pa.Table] = {}
        self._decoded: dict[tuple[bytes, int, int], pa.Table] = {}
        self._grouped: dict[tuple[bytes, int, int, Kind], list[_Group]] = {}

    def keep(self, table: pa.Table) -> bytes:
        data = b"table %020d" % len(self._tables)
        self._tables[data] = table
        return data

    def encode_parts(self, parts: Sequence[tuple[Kind, Sequence[pa.Array]]], spec: StreamSpec, first: int) -> bytes:
        tables = []
        for kind, columns in parts:
            tables.append(blocks_.stamped(columns, kind, spec, first).select(spec.stored.names))
            first += len(columns[0])
        return self.keep(tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks())

    def describe(self, data: bytes, spec: StreamSpec, partition: int, first: int, file: str) -> Block:
        table = self._stamped(data, spec, first)
        offsets = np.sort(table.column(OFFSET).to_numpy())
        if not np.array_equal(offsets, np.arange(first, first + len(table))) or not len(table):
            raise ValueError(f"{file}: offsets are not dense from {first} on")
        times, kinds = table.column(spec.time).to_numpy(), table.column(KIND).to_numpy()
        counts = np.bincount(kinds, minlength=len(Kind)).tolist()
        if counts[Kind.RESULT]:
            times = times[kinds == Kind.RESULT]
        return Block(
            partition=partition,
            file=file,
            first=first,
            end=first + len(table),
            rows={kind.name.lower(): counts[kind] for kind in Kind if counts[kind]},
            time_min=int(times.min()),
            time_max=int(times.max()),
            size_bytes=len(data),
            checksum=checksum(data),
        )

    def decode(self, data: bytes, spec: StreamSpec, first: int, columns: Sequence[str] | None = None) -> pa.Table:
        table = self._stamped(data, spec, first)
        if columns is not None:
            table = table.select(list(dict.fromkeys([*columns, OFFSET, KIND])))
        return table

    def open_block(self, log: Log, block: Block) -> TableBlock:
        where = f"{log.storage.url}/{block.file}"
        data = blocks_.verified(log.storage.read(block.file), block, where)
        return TableBlock(block, lambda kind: self._groups(data, log.spec, block.first, kind))

    def _groups(self, data: bytes, spec: StreamSpec, first: int, kind: Kind) -> list[_Group]:
        """The row groups of a kind: made once, however many processes open the block."""
        known = (data, first, len(spec.stored), kind)
        if known not in self._grouped:
            table, size = _of_kind(self._stamped(data, spec, first), kind), self._rows_per_group
            groups = [table.slice(begin, size) for begin in range(0, len(table), size)]
            self._grouped[known] = [_Group.of(group, spec.time) for group in groups]
        return self._grouped[known]

    def _stamped(self, data: bytes, spec: StreamSpec, first: int) -> pa.Table:
        """The table with all columns of the stream: made once, too."""
        known = (data, first, len(spec.stored))
        if known not in self._decoded:
            self._decoded[known] = self._made(data, spec, first)
        return self._decoded[known]

    def _made(self, data: bytes, spec: StreamSpec, first: int) -> pa.Table:
        table = self._tables[data]
        for field in list(spec.stored)[table.num_columns :]:  # columns that came later
            table = table.append_column(field, pa.nulls(len(table), field.type))
        return table if spec.is_stamped else blocks_.stamped(table.combine_chunks().columns, Kind.RESULT, spec, first)

    def writer(self, sink: io.BytesIO, spec: StreamSpec) -> TableWriter:
        return TableWriter(self, sink)


class _Group(NamedTuple):
    """A few tuples of one kind, with what a footer says of them."""

    tuples: pa.Table
    first: int
    time_min: int
    time_max: int

    @classmethod
    def of(cls, tuples: pa.Table, time: str) -> _Group:
        times = tuples.column(time).to_numpy()
        return cls(tuples, tuples.column(OFFSET)[0].as_py(), int(times.min()), int(times.max()))


def _of_kind(tuples: pa.Table, kind: Kind) -> pa.Table:
    return only_results(tuples) if kind is Kind.RESULT else tuples.filter(pc.equal(tuples.column(KIND), int(kind)))


class TableBlock:
    """The tuples of a block, in row groups of a few tuples of one kind."""

    def __init__(self, block: Block, groups_of: Callable[[Kind], list[_Group]]) -> None:
        self.block = block
        self._groups_of = groups_of

    def groups(self, since: int | None = None, until: int | None = None, kind: Kind = Kind.RESULT) -> list[RowGroup]:
        found: list[RowGroup] = []
        for n, own in enumerate(self._groups_of(kind)):
            if (until is None or own.time_min < until) and (since is None or own.time_max >= since):
                number, rows = n * len(Kind) + kind, len(own.tuples)
                found.append(RowGroup(self, number, own.first, own.time_min, rows, kind))  # type: ignore[arg-type]
        return found

    def read(self, number: int, columns: Sequence[str]) -> pa.Table:
        n, kind = divmod(number, len(Kind))
        return self._groups_of(Kind(kind))[n].tuples.select(columns)

    def release(self) -> None:
        pass


class TableWriter:
    """Gathers tables, where the real codec has a Parquet writer."""

    def __init__(self, tables: Tables, sink: io.BytesIO) -> None:
        self._tables = tables
        self._sink = sink
        self._pieces: list[pa.Table] = []

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if kind is None:
            table = pa.concat_tables(self._pieces).combine_chunks()
            if OFFSET in table.column_names:  # in their order, as the real codec gives the tuples back
                table = table.take(pc.sort_indices(table.column(OFFSET)))
            self._sink.write(self._tables.keep(table))

    def write_table(self, table: pa.Table, row_group_size: int) -> None:
        self._pieces.append(table)


@contextmanager
def table_codec(rows_per_group: int = ROWS_PER_GROUP) -> Iterator[None]:
    """Inside, blocks are tables and leaves of the index are lists."""
    tables: Any = Tables(rows_per_group)
    with (
        mock.patch.multiple(
            blocks_,
            encode_parts=tables.encode_parts,
            describe=tables.describe,
            decode=tables.decode,
            block_writer=tables.writer,
        ),
        mock.patch.object(input_stream, "OpenBlock", tables.open_block),
        mock.patch.object(index, "Leaf", PlainLeaf),
    ):
        yield
