"""Small real streams for tests: tuples `(k, v, t)` of three integers, in blocks as a writer makes them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import KIND, OFFSET
from strandline.log.storage.storage import Storage, create_once
from strandline.log.stream import block as blocks_
from strandline.log.stream.append_commit import Append, AppendCommit
from strandline.log.stream.block import Block
from strandline.log.stream.column_types import block_schema
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec

Item: TypeAlias = tuple[int, int, int]


def item_spec(partitions: int = 2, *, time_type: str = "long", lateness: int = 0, name: str = "items") -> StreamSpec:
    """Returns the spec of a stream of items with the key `k` and the time `t`."""
    types = {"k": "long", "v": "long", "t": time_type}
    fields = [{"name": n, "type": kind, "nullable": True, "metadata": {}} for n, kind in types.items()]
    return StreamSpec(
        id=name,
        schema={"type": "struct", "fields": fields},
        key=("k",),
        time="t",
        partitions=partitions,
        lateness=lateness,
        created_by="strandline.testing",
    )


def item_table(spec: StreamSpec, first: int, rows: Sequence[Item]) -> pa.Table:
    """Makes the tuples of a block, with offsets from `first` on."""
    values = dict(zip("kvt", zip(*rows, strict=True), strict=True))
    values[OFFSET] = tuple(range(first, first + len(rows)))
    values[KIND] = (Kind.RESULT.value,) * len(rows)
    schema = block_schema(spec.arrow)
    return pa.table([pa.array(values[f.name], pa.int64()).cast(f.type) for f in schema], schema=schema)


def encode(table: pa.Table, spec: StreamSpec) -> bytes:
    """Returns the bytes of a block with these contents, also contents that no writer would write."""
    sink = io.BytesIO()
    with blocks_.block_writer(sink, spec) as writer:
        for kind in sorted(pc.unique(table.column(KIND)).to_pylist()):
            piece = table.filter(pc.equal(table.column(KIND), kind))
            writer.write_table(piece.select(spec.stored.names), row_group_size=blocks_.ROWS_PER_GROUP)
    return sink.getvalue()


def write_items(
    storage: Storage, spec: StreamSpec, partition: int, first: int, rows: Sequence[Item], attempt: str
) -> Block:
    """Writes a block that no manifest names yet."""
    file = spec.file(partition, first, attempt)
    data = encode(item_table(spec, first, rows), spec)
    block = blocks_.describe(data, spec, partition, first, file)
    create_once(storage, file, data)
    return block


def append_items(
    log: Log,
    batch: Mapping[int, Sequence[Item]],
    attempt: str | None = None,
    writer: Writer | None = None,
    rows_max: int | None = None,
) -> AppendCommit:
    """Writes and publishes one batch; `attempt` makes the names of its files, `rows_max` cuts it into several."""
    base = log.state
    blocks = [
        write_items(
            log.storage, log.spec, p, base.ends[p] + at, rows[at : at + step], attempt or f"commit{base.seq + 1}"
        )
        for p, rows in sorted(batch.items())
        for step in [rows_max or max(len(rows), 1)]
        for at in range(0, len(rows), step)
    ]
    return log.append(Append(blocks, writer=writer), base=base)


def read_items(log: Log, partition: int, first: int | None = None) -> list[tuple[int, Item]]:
    """Reads the tuples of a partition with their offsets."""
    tables = log.read(partition, first)
    return [item for table in tables for item in items_of(table)]


def items_of(table: pa.Table) -> list[tuple[int, Item]]:
    """Returns the tuples of one table that `Log.read` gave, with their offsets."""
    if not isinstance(table, pa.Table):
        return list(table)  # from `plain_codec`
    columns = [table.column(n).cast(pa.int64()).to_pylist() for n in (OFFSET, "k", "v", "t")]
    return [(offset, (k, v, t)) for offset, k, v, t in zip(*columns, strict=True)]
