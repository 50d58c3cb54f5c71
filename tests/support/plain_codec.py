"""Blocks and index leaves as lines of JSON: what a simulation uses to run thousands of times in a minute.

A tiny Parquet file costs half a millisecond to write and another to read, hundreds of times what the logic around it
costs. `plain_codec` puts plain lists in the place of Parquet while a test runs. `PlainLeaf` is also the specification
of `Leaf`: a test holds them against each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from types import SimpleNamespace, TracebackType
from unittest import mock

import numpy as np
import numpy.typing as npt

from strandline.log.index import index
from strandline.log.stream import block as blocks_
from strandline.log.stream.block import Block, checksum
from strandline.log.stream.manifest import block_json
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep import compaction
from tests.support import items
from tests.support.items import Item


class PlainTable(list[tuple[int, Item]]):
    """Offsets and items, where the real codec has an Arrow table."""

    @property
    def nbytes(self) -> int:
        """As Arrow's, roughly."""
        return 64 * len(self)

    def slice(self, offset: int, length: int) -> PlainTable:
        """Does what Arrow's `slice` does."""
        return PlainTable(self[offset : offset + length])

    def select(self, names: Sequence[str]) -> PlainTable:
        """Does what Arrow's `select` does; items have all columns or none."""
        return self


class PlainWriter:
    """Takes tables and leaves their JSON in a sink, where the real codec has a Parquet writer."""

    def __init__(self, sink: BytesIO, spec: StreamSpec) -> None:
        self._sink = sink
        self._rows = PlainTable()

    def __enter__(self) -> PlainWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._sink.write(_encode(self._rows))

    def write_table(self, table: PlainTable, row_group_size: int) -> None:
        """Adds the rows."""
        self._rows += table


class PlainLeaf:
    """Entries of blocks in a list, ordered by partition and offset; see `strandline.log.index.leaf.Leaf`."""

    def __init__(self, entries: Sequence[Block]) -> None:
        self._entries = entries

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> PlainLeaf:
        return cls(sorted(blocks, key=lambda b: (b.partition, b.first)))

    @classmethod
    def joined(cls, leaves: Iterable[PlainLeaf]) -> PlainLeaf:
        return cls.of(entry for leaf in leaves for entry in leaf._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def covered_by(self, blocks: Iterable[Block]) -> npt.NDArray[np.bool_]:
        outer = list(blocks)
        return np.asarray([any(index.covers(o, b) for o in outer) for b in self._entries], dtype=bool)

    def encode(self) -> bytes:
        entries = [{**block_json(b), "partition": b.partition, "us": b.published_us} for b in self._entries]
        return json.dumps(entries).encode()

    @classmethod
    def decode(cls, data: bytes) -> PlainLeaf:
        return cls(
            [
                Block(
                    partition=e["partition"],
                    file=e["file"],
                    first=e["first"],
                    end=e["end"],
                    rows=e["rows"],
                    time_min=e["time"][0],
                    time_max=e["time"][1],
                    size_bytes=e["bytes"],
                    checksum=e["checksum"],
                    published_us=e["us"],
                )
                for e in json.loads(data)
            ]
        )

    def blocks(
        self, partition: int, first: int, end: int, time_from: int | None = None, time_until: int | None = None
    ) -> Iterator[Block]:
        for b in self._entries:
            if b.partition == partition and first < b.end and b.first < end:
                late_enough = time_from is None or b.time_max >= time_from
                if late_enough and (time_until is None or b.time_min < time_until):
                    yield b

    def all(self) -> Iterator[Block]:
        return iter(self._entries)

    def edited(self, drop: Sequence[bool], add: Iterable[Block]) -> PlainLeaf:
        kept = [entry for entry, dropped in zip(self._entries, drop, strict=True) if not dropped]
        return self.of([*kept, *add])

    @property
    def partition(self) -> npt.NDArray[np.int64]:
        return np.array([b.partition for b in self._entries], np.int64)

    @property
    def first(self) -> npt.NDArray[np.int64]:
        return np.array([b.first for b in self._entries], np.int64)

    @property
    def end(self) -> npt.NDArray[np.int64]:
        return np.array([b.end for b in self._entries], np.int64)

    @property
    def size_bytes(self) -> npt.NDArray[np.int64]:
        return np.array([b.size_bytes for b in self._entries], np.int64)

    @property
    def results(self) -> npt.NDArray[np.int64]:
        return np.array([b.results for b in self._entries], np.int64)


@contextmanager
def plain_codec() -> Iterator[None]:
    """Keeps blocks and leaves of the log of items (see `tests.support.items`) as JSON, inside of the block."""
    with (
        mock.patch.multiple(items, item_table=_table, encode=_encode),
        mock.patch.multiple(blocks_, describe=_describe, decode=_decode, block_writer=PlainWriter),
        mock.patch.object(compaction, "pa", SimpleNamespace(concat_tables=_concatenated)),
        mock.patch.object(index, "Leaf", PlainLeaf),
    ):
        yield


def _table(spec: StreamSpec, first: int, rows: Sequence[Item]) -> PlainTable:
    return PlainTable(enumerate(rows, first))


def _encode(table: PlainTable, spec: StreamSpec | None = None) -> bytes:
    return json.dumps(table).encode()


def _decode(data: bytes, spec: StreamSpec, first: int, columns: Sequence[str] | None = None) -> PlainTable:
    return PlainTable((offset, tuple(item)) for offset, item in json.loads(data))


def _concatenated(tables: Sequence[PlainTable]) -> PlainTable:
    return PlainTable(row for table in tables for row in table)


def _describe(data: bytes, spec: StreamSpec, partition: int, first: int, file: str) -> Block:
    rows = json.loads(data)
    if [offset for offset, _ in rows] != list(range(first, first + len(rows))) or not rows:
        raise ValueError(f"{file}: offsets are not dense from {first} on")
    times = [item[2] for _, item in rows]
    return Block(
        partition=partition,
        file=file,
        first=first,
        end=first + len(rows),
        rows={"result": len(rows)},
        time_min=min(times),
        time_max=max(times),
        size_bytes=len(data),
        checksum=checksum(data),
    )
