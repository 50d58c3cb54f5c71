"""Tuples of a block of one kind at some times, row group by row group. What holds none of them is not read.

A block that compaction made may hold hours, of which a step wants seconds, batch after batch. The checksum that the
manifest has is one over the whole file. So the first time that a process opens a block it reads and verifies all of
it, and notes its footer and a checksum of each column of each row group. From then on it reads the columns and row
groups that are wanted and verifies these: as strict, and the cost follows what is wanted.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.control_columns import KIND, OFFSET
from strandline.log.stream import block as blocks_
from strandline.log.stream.block import Block, checksum
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log

BLOCKS_KNOWN = 1024
"""Of so many blocks a process knows the footers."""
BYTES_HELD_MAX = 8 << 20
"""The bytes of a larger block are not kept until its other row groups are wanted; they are read again."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A column of a row group: where its bytes lie, and their checksum."""

    begin: int
    end: int
    checksum: str


@dataclass(frozen=True, slots=True)
class _Contents:
    """The contents of a block, by its verified bytes."""

    footer: pq.FileMetaData
    parts: tuple[tuple[_Part, ...], ...]
    """Of each row group, by column."""

    @classmethod
    def of(cls, data: bytes) -> _Contents:
        footer, view = pq.read_metadata(pa.BufferReader(data)), memoryview(data)
        groups = []
        for g in range(footer.num_row_groups):
            group, parts = footer.row_group(g), []
            for c in range(footer.num_columns):
                column = group.column(c)
                begin = column.data_page_offset
                if column.dictionary_page_offset:
                    begin = min(begin, column.dictionary_page_offset)
                end = begin + column.total_compressed_size
                parts.append(_Part(begin, end, checksum(view[begin:end])))
            groups.append(tuple(parts))
        return cls(footer, tuple(groups))


class _Known:
    """The contents of blocks that this process has verified, the last ones that were asked for."""

    def __init__(self) -> None:
        self._contents: OrderedDict[tuple[str, str, str], _Contents] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, url: str, block: Block) -> _Contents | None:
        with self._lock:
            found = self._contents.get(key := (url, block.file, block.checksum))
            if found is not None:
                self._contents.move_to_end(key)
            return found

    def note(self, url: str, block: Block, contents: _Contents) -> None:
        with self._lock:
            self._contents[url, block.file, block.checksum] = contents
            while len(self._contents) > BLOCKS_KNOWN:
                self._contents.popitem(last=False)

    def clear(self) -> None:
        """Forgets all blocks, as in a new process."""
        with self._lock:
            self._contents.clear()


_known = _Known()


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Some tuples of a block of one kind that follow each other."""

    opened: OpenBlock
    number: int
    first: int
    """Their offsets are not before this one, and before that of the next row group."""
    time_min: int
    rows: int
    kind: Kind = Kind.RESULT

    @property
    def block(self) -> Block:
        """Whose row group it is."""
        return self.opened.block

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Reads the tuples in the order of their offsets, in these columns and no others, and verifies them."""
        return self.opened.read(self.number, columns)


class OpenBlock:
    """A block of which row groups can be read."""

    def __init__(self, log: Log, block: Block) -> None:
        """Raises `KeyMissingError` if the file is gone, `CorruptBlockError` if it is not what was published."""
        self._log = log
        self.block = block
        self._data: bytes | None = None
        contents = _known.get(log.storage.url, block)
        if contents is None:
            self._data = blocks_.verified(log.storage.read(block.file), block, log.storage.url)
            contents = _Contents.of(self._data)
            _known.note(log.storage.url, block, contents)
        self._contents = contents

    def release(self) -> None:
        """Releases the bytes that were read for the checksum, if they are many."""
        if self.block.size_bytes > BYTES_HELD_MAX:
            self._data = None

    def groups(self, since: int | None = None, until: int | None = None, kind: Kind = Kind.RESULT) -> list[RowGroup]:
        """Returns the row groups of a kind that may hold a time in [since, until), in the order of their offsets."""
        footer, spec = self._contents.footer, self._log.spec
        names = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
        found, first = [], self.block.first
        for g in range(footer.num_row_groups):
            group = footer.row_group(g)
            own = first
            first += group.num_rows
            if spec.is_stamped:
                if group.column(names[KIND]).statistics.min_raw != kind:
                    continue
                own = group.column(names[OFFSET]).statistics.min_raw
            times = group.column(names[spec.time]).statistics
            if (until is None or times.min_raw < until) and (since is None or times.max_raw >= since):
                found.append(RowGroup(self, g, own, times.min_raw, group.num_rows, kind))
        return found

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        """Reads the tuples in the order of their offsets, in these columns and no others, and verifies them."""
        spec, footer = self._log.spec, self._contents.footer
        wanted = pa.schema([(spec.stored if name == OFFSET else spec.arrow).field(name) for name in columns])
        there = set(footer.schema.to_arrow_schema().names if spec.added else wanted.names)  # others were added since
        names = [name for name in wanted.names if name in there]
        file = pq.ParquetFile(pa.BufferReader(self._bytes(group, names)), metadata=footer)
        table = file.read_row_groups([group], names, use_threads=False)
        return blocks_.shaped(table, wanted, spec, footer.row_group(group).num_rows)

    def _bytes(self, group: int, names: Sequence[str]) -> pa.Buffer:
        """Returns the file's bytes; only these columns of the row group are sure to be in them."""
        if self._data is not None:
            return pa.py_buffer(self._data)
        # Where nothing is written, this takes no memory.
        sparse = np.zeros(self.block.size_bytes, np.uint8)
        parts = self._contents.parts[group]
        chosen = [p for p, name in zip(parts, _owners(self._contents.footer), strict=True) if name in names]
        for begin, end in _together(chosen):
            data = self._log.storage.read_range(self.block.file, begin, end)
            for part in chosen:
                if begin <= part.begin < end:
                    own = memoryview(data)[part.begin - begin : part.end - begin]
                    if len(own) != part.end - part.begin or checksum(own) != part.checksum:
                        rotten = f"bytes {part.begin:,} to {part.end - 1:,} of a published block"
                        what = f"{rotten} are not what they were when this process verified it"
                        raise blocks_.damaged(self.block, self._log.storage.url, what)
            sparse[begin:end] = np.frombuffer(data, np.uint8)
        return pa.py_buffer(sparse)


def _owners(footer: pq.FileMetaData) -> list[str]:
    """Returns, for each column of the file, the column of the stream that it belongs to: nested ones have several."""
    return [f.name for f in footer.schema.to_arrow_schema() for _ in range(_leaves(f.type))]


def _leaves(kind: pa.DataType) -> int:
    if pa.types.is_nested(kind):
        return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields))
    return 1


def _together(parts: Sequence[_Part]) -> list[tuple[int, int]]:
    """Returns the ranges of bytes to read at once: neighbours are joined."""
    found: list[tuple[int, int]] = []
    for part in sorted(parts, key=lambda p: p.begin):
        if found and found[-1][1] == part.begin:
            found[-1] = found[-1][0], part.end
        else:
            found.append((part.begin, part.end))
    return found
