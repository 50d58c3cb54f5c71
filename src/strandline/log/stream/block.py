"""A block: the tuples that one task appends to one partition in one batch, as one Parquet file.

Any Parquet reader can read it. An entry stream's file has the tuples' own columns and nothing else: where its first
tuple stands is in its name. An operator's file also has `_offset` (the place of the tuple in its partition) and
`_kind`, because footprints stand between its results. A row group never mixes results with control tuples, so a reader
that wants only results skips the rest by the statistics. Encodings are plain and compression is light: a block is
written on the path of the stream, and its bytes are read once or twice.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from strandline.control_columns import KIND, OFFSET
from strandline.errors import CorruptBlockError, NullTimeError, StorageError
from strandline.log.stream.column_types import CONTROL_FIELDS
from strandline.log.stream.kinds import Kind
from strandline.log.stream.reason import reason_of
from strandline.log.stream.spec import StreamSpec
from strandline.wording import plural

COMPRESSION = "lz4"
ROWS_PER_GROUP = 1 << 18
BYTES_PER_GROUP = 32 << 20
"""A row group has about so many bytes at most: readers that want some times hold a few of them."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block as a manifest describes it."""

    partition: int
    file: str
    first: int
    end: int
    rows: Mapping[str, int]
    """Tuples by kind, for example {"result": 1000}."""
    time_min: int
    """Of its results; of its footprints only if it holds nothing else, for the end of an open window is no time yet."""
    time_max: int
    size_bytes: int
    checksum: str
    published_us: int = 0

    @property
    def tuples(self) -> int:
        """How many tuples of any kind."""
        return self.end - self.first

    @property
    def results(self) -> int:
        """How many results: what readers get."""
        return self.rows.get("result", 0)

    @property
    def has_results(self) -> bool:
        """True if there are other tuples than footprints."""
        return self.results > 0

    @property
    def has_guesses(self) -> bool:
        """True if there are tentative tuples, void or not."""
        return self.rows.get("tentative", 0) > 0

    @property
    def reason(self) -> str:
        """Why the tuples of a block of the side log are there."""
        return reason_of(self.file)


def checksum(data: bytes | memoryview) -> str:
    """Returns the checksum that manifests keep of a block's bytes."""
    return f"xxh3:{xxhash.xxh3_64_hexdigest(data)}"


def encode_parts(parts: Sequence[tuple[Kind, Sequence[pa.Array]]], spec: StreamSpec, first: int) -> bytes:
    """Returns the bytes of a block from columns of one kind each (in the order of Kind), numbered from `first` on.

    Columns are those of the stream's tuples, for footprints followed by those that only they have.
    """
    sink = io.BytesIO()
    with block_writer(sink, spec) as writer:
        for kind, columns in parts:
            if spec.is_stamped:
                table = stamped(columns, kind, spec, first)
            else:
                table = pa.Table.from_arrays(list(columns), schema=spec.stored)
            writer.write_table(table, row_group_size=rows_per_group(table))
            first += len(columns[0])
    return sink.getvalue()


def rows_per_group(table: pa.Table) -> int:
    """Returns how many of these tuples go into one row group."""
    each_bytes = int(table.nbytes) / max(1, len(table))
    return max(1, min(ROWS_PER_GROUP, int(BYTES_PER_GROUP / max(each_bytes, 1))))


def stamped(columns: Sequence[pa.Array], kind: Kind, spec: StreamSpec, first: int) -> pa.Table:
    """Returns tuples of one kind with their offsets, from `first` on, in the block's columns."""
    tuples, control = len(spec.arrow), spec.block.names[len(spec.arrow) + 2 :]
    extra = columns[tuples:] or [pa.nulls(len(columns[0]), spec.block.field(name).type) for name in control]
    stamps = _stamps(len(columns[0]), kind, first)
    return pa.Table.from_arrays([*columns[:tuples], *stamps, *extra], schema=spec.block)


def _stamps(rows: int, kind: Kind, first: int) -> tuple[pa.Array, pa.Array]:
    return pa.array(np.arange(first, first + rows)), pa.array(np.full(rows, int(kind), np.int8))


def block_writer(sink: io.BytesIO | str, spec: StreamSpec) -> pq.ParquetWriter:
    """Returns a Parquet writer with the settings of our blocks."""
    return pq.ParquetWriter(
        sink,
        spec.stored,
        compression=COMPRESSION,
        use_dictionary=False,
        column_encoding={name: "DELTA_BINARY_PACKED" for name in spec.delta_encoded} or None,
        write_statistics=_described_by(spec),
        write_page_checksum=True,
        store_schema=False,
    )


def describe(data: bytes | memoryview, spec: StreamSpec, partition: int, first: int, file: str) -> Block:
    """Returns the manifest's description of a block, from its bytes and its Parquet footer.

    The block may come from Spark: whatever the footer says that should not be (null times; where it has offsets, some
    that are not dense from `first` on) is refused here, before anything is published.
    """
    where = f"{file}, partition {partition}, from offset {first}"
    footer = pq.read_metadata(pa.BufferReader(data))
    if footer.num_rows == 0:
        raise StorageError("a block without tuples", where=where)
    end = first + footer.num_rows
    names = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    times: dict[bool, list[int]] = {True: [], False: []}  # of results, of footprints
    offsets: list[int] = []
    rows: Counter[str] = Counter()
    nulls = 0
    for group in map(footer.row_group, range(footer.num_row_groups)):
        found = [group.column(names[c]).statistics for c in _described_by(spec)]
        if any(statistics is None for statistics in found):
            raise StorageError(
                "a row group of this Parquet file has no statistics, and Strandline describes a block by them",
                where=where,
                todo=f"let the writer of the file keep statistics of the columns {', '.join(_described_by(spec))}",
            )
        time, *stamps = found
        nulls += time.null_count
        kind = Kind.RESULT
        if stamps:
            offset, kinds = stamps
            offsets += [offset.min_raw, offset.max_raw]
            if kinds.min_raw != kinds.max_raw:
                raise StorageError("a row group mixes kinds of tuples", where=where)
            kind = Kind(kinds.min_raw)
        rows[kind.name.lower()] += group.num_rows
        if time.null_count < group.num_rows:
            times[kind is Kind.RESULT] += [time.min_raw, time.max_raw]
    if nulls:
        raise NullTimeError(
            f"{nulls:,} of {plural(footer.num_rows, 'tuple')} have no time ({spec.time} is null)",
            where=where,
            todo=f"leave such tuples out before the stream, for example .where('{spec.time} is not null')",
        )
    if offsets and (min(offsets), max(offsets)) != (first, end - 1):
        raise StorageError(
            f"a block's offsets run from {min(offsets)} to {max(offsets)}, not {first} to {end - 1}",
            where=where,
            todo="this is a defect of Strandline; please report it",
        )
    counted = times[True] or times[False]
    return Block(partition, file, first, end, dict(rows), min(counted), max(counted), len(data), checksum(data))


def _described_by(spec: StreamSpec) -> list[str]:
    """Returns the columns whose statistics say what a block holds."""
    return [spec.time, OFFSET, KIND] if spec.is_stamped else [spec.time]


def verified(data: bytes, block: Block, url: str) -> bytes:
    """Returns the bytes of a block of this stream; raises `CorruptBlockError` if they are not those of the manifest."""
    if len(data) != block.size_bytes or checksum(data) != block.checksum:
        found = f"{plural(len(data), 'byte')} with {checksum(data)}"
        wanted = f"{block.size_bytes:,} with {block.checksum}"
        raise damaged(block, url, f"a published block has {found}, the manifest says {wanted}")
    return data


def damaged(block: Block, url: str, what: str) -> CorruptBlockError:
    """Returns the error of a reader that cannot use the file of a block."""
    problem = CorruptBlockError(
        what,
        where=f"{url}/{block.file}, partition {block.partition}, offsets {block.first} to {block.end - 1}",
        stream=url,
        todo="restore this file from a copy; everything else of the stream stays readable",
    )
    problem.offsets = block.first, block.end
    return problem


def shaped(table: pa.Table, wanted: pa.Schema, spec: StreamSpec, rows: int) -> pa.Table:
    """Returns so many tuples in these columns and types; those that were added to the stream since are null."""
    for name in spec.added_columns:
        if name in wanted.names and name not in table.column_names:
            table = table.append_column(wanted.field(name), pa.nulls(rows, wanted.field(name).type))
    return table.select(wanted.names).cast(wanted)


def decode(
    data: bytes, spec: StreamSpec, first: int, columns: Sequence[str] | None = None, *, check_pages: bool = False
) -> pa.Table:
    """Returns the tuples of a block in the order of their offsets, with the types of the stream's schema."""
    names = list(dict.fromkeys([*columns, OFFSET, KIND])) if columns is not None else spec.block.names
    wanted = pa.schema([spec.stored.field(n) for n in names if spec.is_stamped or n not in (OFFSET, KIND)])
    source = pa.BufferReader(data)
    file = pq.ParquetFile(source, page_checksum_verification=check_pages)
    there = set(file.schema_arrow.names if spec.added else wanted.names)
    table = file.read(columns=[name for name in wanted.names if name in there], use_threads=False)
    table = shaped(table, wanted, spec, file.metadata.num_rows)
    if not spec.is_stamped:
        stamps = _stamps(file.metadata.num_rows, Kind.RESULT, first)
        table = pa.Table.from_arrays([*table.columns, *stamps], schema=pa.schema([*wanted, *CONTROL_FIELDS]))
        return table.select(names)
    if len(pc.unique(table.column(KIND))) <= 1:
        return table
    return table.take(pc.sort_indices(table.column(OFFSET)))  # row groups of one kind each stand out of order
