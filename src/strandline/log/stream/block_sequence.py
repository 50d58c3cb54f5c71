"""Tuples of one partition, as they come, into blocks of bounded size, one after the other.

Readers take blocks whole; so a block has a largest size, whatever a batch has. While a sequence is written, memory
holds the tuples of one block and its bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from strandline.clock import stopwatch_s
from strandline.failpoint import failpoint
from strandline.log.storage.storage import create_once
from strandline.log.stream import block as blocks_
from strandline.log.stream.block import Block
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.units import END_OF_TIME

BYTES_MAX = 128 << 20
"""About so many bytes have the tuples of a block, in memory as in its file before compression."""
ROWS_MAX = 1 << 21

Part = tuple[Kind, Sequence[pa.Array]]
"""Columns of tuples of one kind, as `encode_parts` takes them."""


class BlockSequence:
    """The blocks of one partition that are written as tuples come, numbered from `first` on.

    The names of all of them have `unique` in them, and in the side log `reason`. Nothing is published here: if the
    attempt dies between two blocks, the first ones are files that no manifest names.
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
        self._bytes_max, self._rows_max = bytes_max or BYTES_MAX, rows_max or ROWS_MAX
        self._first = self._next = first
        self._parts: list[Part] = []
        self._rows, self._bytes = 0, 0.0
        """The tuples of the block that is not full yet."""
        self.blocks: list[Block] = []
        """The blocks that are written."""
        self.counts: Counter[Kind] = Counter()
        """The number of tuples of each kind, written or not."""
        self.write_s = 0.0
        """The time spent on writing blocks."""
        self.store_s = 0.0
        """The part of it that passed in the storage."""

    @property
    def end(self) -> int:
        """The offset behind the last tuple."""
        return self._first + self.counts.total()

    def write(self, parts: Iterable[Part]) -> Iterator[Block]:
        """Takes all that there is and finishes; yields each block once it is written."""
        for kind, columns in parts:
            yield from self.add(kind, columns)
        yield from self.finish()

    def add(self, kind: Kind, columns: Sequence[pa.Array]) -> list[Block]:
        """Takes tuples of one kind, which come together; returns the blocks that are full with them and written."""
        many, at, before = len(columns[0]), 0, len(self.blocks)
        self.counts[kind] += many
        each_bytes = sum(column.nbytes for column in columns) / max(many, 1)
        while at < many:
            # A tuple that is larger than a block has a block of its own.
            by_size = int((self._bytes_max - self._bytes) / each_bytes) if each_bytes else many
            take = min(many - at, self._rows_max - self._rows, max(by_size, 0 if self._rows else 1))
            if take > 0:
                self._parts.append((kind, [column.slice(at, take) for column in columns]))
            at, self._rows, self._bytes = at + take, self._rows + take, self._bytes + take * each_bytes
            if at < many:
                self.finish()
                failpoint("between-blocks")
        return self.blocks[before:]

    def finish(self) -> list[Block]:
        """Writes what is left; returns the block, durable, or none."""
        if not (parts := self._parts):
            return []
        began_s, first = stopwatch_s(), self._next
        self._parts, self._rows, self._bytes = [], 0, 0.0
        data = blocks_.encode_parts(_joined(parts), self._spec, first)
        file = self._spec.file(self._partition, first, self._unique, self._reason)
        block = blocks_.describe(data, self._spec, self._partition, first, file)
        made_s = stopwatch_s()
        self._create(file, data)
        ended_s = stopwatch_s()
        self.store_s, self.write_s = self.store_s + ended_s - made_s, self.write_s + ended_s - began_s
        self.blocks.append(block)
        self._next = block.end
        return [block]


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


def control_block(log: Log, partition: int, first: int, kinds: Sequence[Kind], unique: str) -> Block:
    """Writes a block of control tuples without a state, undo or reconciliation done, and does not publish it.

    It has one tuple of each kind, from offset `first` on. Their time is the stable boundary, or 0: a tuple must have
    one. All else is null.
    """
    known = log.state.boundaries[partition]
    time = pa.array([0 if known is None or known == END_OF_TIME else known], pa.int64())
    columns = [time.cast(f.type) if f.name == log.spec.time else pa.nulls(1, f.type) for f in log.spec.arrow]
    sequence = BlockSequence(log.spec, partition, first, unique, partial(create_once, log.storage))
    (block,) = sequence.write((kind, columns) for kind in kinds)
    return block
