"""Tuples of one partition, as they come, into blocks of bounded size, one after the other.

Readers take blocks whole; so a block has a largest size, whatever a batch has. While a sequence is written, memory
holds the tuples of one block and its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from strandline.log.stream import block as blocks_
from strandline.log.stream.block import Block
from strandline.log.stream.kinds import Kind
from strandline.log.stream.spec import StreamSpec

BYTES_MAX = 128 << 20
"""About so many bytes have the tuples of a block, in memory as in its file before compression."""
ROWS_MAX = 1 << 21

Part = tuple[Kind, Sequence[pa.Array]]
"""Columns of tuples of one kind, as `encode_parts` takes them."""


class BlockSequence:
    """The blocks of one partition that are written as tuples come, numbered from `first` on.

    The names of all of them have `unique` in them, and in the side log `reason`. Nothing is published here.
    """

    def __init__(
        self,
        spec: StreamSpec,
        partition: int,
        first: int,
        unique: str,
        create: Callable[[str, bytes], None],
        *,
        reason: str | None = None,
        bytes_max: int | None = None,
        rows_max: int | None = None,
    ) -> None:
        self._spec = spec
        self._partition = partition
        self._unique = unique
        self._create = create
        self._reason = reason
        self._filling = _Filling(bytes_max or BYTES_MAX, rows_max or ROWS_MAX)
        self._end = first

    def write(self, parts: Iterable[Part]) -> Iterator[Block]:
        """Takes all that there is and finishes; yields each block once it is written."""
        for kind, columns in parts:
            yield from self.add(kind, columns)
        yield from self.finish()

    def add(self, kind: Kind, columns: Sequence[pa.Array]) -> list[Block]:
        """Takes tuples of one kind, which come together; the blocks that are full with them and written."""
        return [self._written(piece) for piece in self._filling.add(kind, columns)]

    def finish(self) -> list[Block]:
        """Writes what is left: a block, or none."""
        return [self._written(piece) for piece in self._filling.rest()]

    def _written(self, piece: Sequence[Part]) -> Block:
        data = blocks_.encode_parts(piece, self._spec, self._end)
        file = self._spec.file(self._partition, self._end, self._unique, self._reason)
        block = blocks_.describe(data, self._spec, self._partition, self._end, file)
        self._create(file, data)
        self._end = block.end
        return block


class _Filling:
    """Tuples on their way into one block."""

    def __init__(self, bytes_max: int, rows_max: int) -> None:
        self._bytes_max = bytes_max
        self._rows_max = rows_max
        self._begin()

    def _begin(self) -> None:
        self._parts: list[Part] = []
        self._rows, self._bytes = 0, 0.0

    def add(self, kind: Kind, columns: Sequence[pa.Array]) -> Iterator[list[Part]]:
        """Takes tuples in; yields what goes into one block each, as it is full; neighbours of one kind are joined."""
        many, at = len(columns[0]), 0
        each_bytes = sum(column.nbytes for column in columns) / max(many, 1)
        while at < many:
            # A tuple that is larger than a block has a block of its own.
            by_size = int((self._bytes_max - self._bytes) / each_bytes) if each_bytes else many
            take = min(many - at, self._rows_max - self._rows, max(by_size, 0 if self._rows else 1))
            if take > 0:
                self._parts.append((kind, [column.slice(at, take) for column in columns]))
            at, self._rows, self._bytes = at + take, self._rows + take, self._bytes + take * each_bytes
            if at < many:
                yield from self.rest()

    def rest(self) -> Iterator[list[Part]]:
        """Writes the tuples of the block that is not full, if there are any."""
        parts = self._parts
        self._begin()
        if parts:
            yield _joined(parts)


def _joined(piece: Sequence[Part]) -> list[Part]:
    """Joins the parts of each kind: parts become row groups, which should be large."""
    by_kind: dict[Kind, list[Sequence[pa.Array]]] = {}
    for kind, columns in piece:
        by_kind.setdefault(kind, []).append(columns)
    return [
        (kind, found[0] if len(found) == 1 else [_chunked(columns) for columns in zip(*found, strict=True)])
        for kind, found in by_kind.items()
    ]


def _chunked(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.ChunkedArray:
    chunks = (c.chunks if isinstance(c, pa.ChunkedArray) else [c] for c in columns)
    return pa.chunked_array([chunk for each in chunks for chunk in each], columns[0].type)
