"""Tuples of one partition, as they come, into blocks of bounded size, one after the other.

Readers take blocks whole; so a block has a largest size, whatever a batch has. While a sequence is written, memory
holds the tuples of one block and its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from strandline.log import block as blocks_
from strandline.log.block import Block
from strandline.log.kinds import Kind
from strandline.log.spec import StreamSpec

BYTES_MAX = 128 << 20
"""About so many bytes have the tuples of a block, in memory as in its file before compression."""
ROWS_MAX = 1 << 21

Part = tuple[Kind, Sequence[pa.Array]]
"""Columns of tuples of one kind, as `encode_parts` takes them."""


def write_blocks(
    parts: Iterable[Part],
    spec: StreamSpec,
    partition: int,
    first: int,
    unique: str,
    create: Callable[[str, bytes], None],
    *,
    reason: str | None = None,
    bytes_max: int = BYTES_MAX,
    rows_max: int = ROWS_MAX,
) -> Iterator[Block]:
    """Writes the tuples with `create`, numbered from `first` on; yields each block once it is written.

    Tuples of one kind come together. The names of all blocks have `unique` in them, and in the side log `reason`.
    """
    for piece in pieces(parts, bytes_max, rows_max):
        data = blocks_.encode_parts(piece, spec, first)
        file = spec.file(partition, first, unique, reason)
        block = blocks_.describe(data, spec, partition, first, file)
        create(file, data)
        yield block
        first = block.end


def pieces(parts: Iterable[Part], bytes_max: int = BYTES_MAX, rows_max: int = ROWS_MAX) -> Iterator[list[Part]]:
    """The tuples cut into what goes into one block each, in order; neighbours of one kind are joined."""
    piece: list[Part] = []
    rows, size_bytes = 0, 0.0
    for kind, columns in parts:
        many = len(columns[0])
        each_bytes = sum(column.nbytes for column in columns) / max(many, 1)
        at = 0
        while at < many:
            # A tuple that is larger than a block has a block of its own.
            by_size = int((bytes_max - size_bytes) / each_bytes) if each_bytes else many
            take = min(many - at, rows_max - rows, max(by_size, 0 if rows else 1))
            if take > 0:
                piece.append((kind, [column.slice(at, take) for column in columns]))
            at, rows, size_bytes = at + take, rows + take, size_bytes + take * each_bytes
            if at < many:
                yield _joined(piece)
                piece, rows, size_bytes = [], 0, 0.0
    if piece:
        yield _joined(piece)


def _joined(piece: Sequence[Part]) -> list[Part]:
    """One part for each kind: parts become row groups, which should be large."""
    by_kind: dict[Kind, list[Sequence[pa.Array]]] = {}
    for kind, columns in piece:
        by_kind.setdefault(kind, []).append(columns)
    return [
        (kind, found[0] if len(found) == 1 else [pa.chunked_array(chunks) for chunks in zip(*found, strict=True)])
        for kind, found in by_kind.items()
    ]
