"""A leaf of the index: many blocks' entries in one small Parquet file, in memory as columns.

Columns, because a stream may have millions of blocks: a leaf of 100,000 entries is a few megabytes, and a search in
it is two `searchsorted`, not a walk over objects.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.log.stream.block import Block

_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("first", pa.int64()),
        ("end", pa.int64()),
        ("time_min", pa.int64()),
        ("time_max", pa.int64()),
        ("size_bytes", pa.int64()),
        ("published_us", pa.int64()),
        ("file", pa.string()),
        ("rows", pa.string()),
        ("checksum", pa.string()),
    ]
)

Ints = npt.NDArray[np.int64]


class Leaf:
    """Entries of blocks, ordered by partition and offset."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.partition: Ints = table.column("partition").to_numpy()
        self.first: Ints = table.column("first").to_numpy()
        self.end: Ints = table.column("end").to_numpy()
        self.time_min: Ints = table.column("time_min").to_numpy()
        self.time_max: Ints = table.column("time_max").to_numpy()
        self.size_bytes: Ints = table.column("size_bytes").to_numpy()

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> Leaf:
        """Returns a leaf with these blocks."""
        ordered = sorted(blocks, key=lambda b: (b.partition, b.first))
        columns = {name: [getattr(b, name) for b in ordered] for name in _SCHEMA.names if name != "rows"}
        texts: dict[tuple[tuple[str, int], ...], str] = {}  # many blocks, few that differ in this
        columns["rows"] = []
        for b in ordered:
            rows = tuple(b.rows.items())
            if rows not in texts:
                texts[rows] = json.dumps(dict(rows))
            columns["rows"].append(texts[rows])
        return cls(pa.table(columns, schema=_SCHEMA))

    @classmethod
    def joined(cls, leaves: Iterable[Leaf]) -> Leaf:
        """Returns one leaf with the entries of all."""
        table = pa.concat_tables([leaf.table for leaf in leaves]).combine_chunks()
        return cls(table.sort_by([("partition", "ascending"), ("first", "ascending")]))

    @property
    def results(self) -> Ints:
        """Of each entry, how many results its block holds."""
        found = pc.struct_field(pc.extract_regex(self.table.column("rows"), r'"result":\s*(?P<rows>\d+)'), "rows")
        numbers: Ints = pc.fill_null(found, "0").cast(pa.int64()).to_numpy()
        return numbers

    def __len__(self) -> int:
        return len(self.table)

    def encode(self) -> bytes:
        """Returns the bytes of the leaf's file."""
        sink = io.BytesIO()
        pq.write_table(self.table, sink, compression="zstd", write_page_checksum=True, store_schema=False)
        return sink.getvalue()

    @classmethod
    def decode(cls, data: bytes) -> Leaf:
        """Returns the leaf in these bytes."""
        table = pq.read_table(pa.BufferReader(data), use_threads=False, page_checksum_verification=True)
        return cls(table.cast(_SCHEMA).combine_chunks())

    def blocks(
        self, partition: int, first: int, end: int, time_from: int | None = None, time_until: int | None = None
    ) -> Iterator[Block]:
        """Yields blocks of a partition with an offset in [first, end) and perhaps a time in [time_from, time_until)."""
        low = int(np.searchsorted(self.partition, partition, side="left"))
        high = int(np.searchsorted(self.partition, partition, side="right"))
        low += int(np.searchsorted(self.end[low:high], first, side="right"))
        high = low + int(np.searchsorted(self.first[low:high], end, side="left"))
        if low >= high:
            return
        keep = np.ones(high - low, dtype=bool)
        if time_from is not None:
            keep &= self.time_max[low:high] >= time_from
        if time_until is not None:
            keep &= self.time_min[low:high] < time_until
        yield from _blocks(self.table.slice(low, high - low).filter(pa.array(keep)))

    def covered_by(self, blocks: Iterable[Block]) -> npt.NDArray[np.bool_]:
        """Returns, for each entry, whether one of the blocks stands for it; those are in order and do not overlap."""
        covered = np.zeros(len(self), dtype=bool)
        for partition, group in itertools.groupby(blocks, key=lambda b: b.partition):
            own = list(group)
            low = int(np.searchsorted(self.partition, partition, side="left"))
            high = int(np.searchsorted(self.partition, partition, side="right"))
            at = np.searchsorted([b.first for b in own], self.first[low:high], side="right") - 1
            covered[low:high] = (at >= 0) & (self.end[low:high] <= np.asarray([b.end for b in own])[at])
        return covered

    def all(self) -> Iterator[Block]:
        """Yields every entry."""
        return _blocks(self.table)

    def edited(self, drop: npt.NDArray[np.bool_], add: Iterable[Block]) -> Leaf:
        """Returns the leaf without some entries and with others."""
        kept = Leaf(self.table.filter(pa.array(~drop)).combine_chunks())
        added = Leaf.of(add)
        return Leaf.joined([kept, added]) if len(added) else kept


def _blocks(table: pa.Table) -> Iterator[Block]:
    for batch in table.to_batches(max_chunksize=1_000):
        for row in batch.to_pylist():
            yield Block(**{**row, "rows": json.loads(row["rows"])})
