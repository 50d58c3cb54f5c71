"""The results of a block at some times. Row groups that hold none of them are not decoded.

A block that compaction made may hold hours, of which a step wants seconds. Its bytes are read whole, because the
checksum is one over all of them; decoding costs more than that, and follows what is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.log import block as blocks_
from strandline.log.block import Block
from strandline.log.column_types import KIND
from strandline.log.kinds import Kind
from strandline.log.log import Log
from strandline.log.spec import StreamSpec


def read_results(
    log: Log, block: Block, columns: Sequence[str], since: int | None = None, until: int | None = None
) -> pa.Table:
    """The block's results in the order of their offsets, in these columns and no others, its checksum verified.

    All that have a time in [since, until) are among them; some that have not may be, too.
    """
    where = f"{log.storage.url}/{block.file}"
    data = blocks_.verified(log.storage.read(block.file), block, where)
    file = pq.ParquetFile(pa.BufferReader(data))
    wanted = pa.schema([log.spec.arrow.field(name) for name in columns])
    there = set(file.schema_arrow.names if log.spec.added else wanted.names)  # columns may have been added since
    groups = list(range(file.metadata.num_row_groups))
    if not _is_wanted_whole(block, since, until):
        groups = _groups(file.metadata, log.spec, since, until)
    table = file.read_row_groups(groups, [name for name in wanted.names if name in there], use_threads=False)
    for name in wanted.names:
        if name not in there:
            rows = sum(file.metadata.row_group(g).num_rows for g in groups)
            table = table.append_column(wanted.field(name), pa.nulls(rows, wanted.field(name).type))
    return table.select(wanted.names).cast(wanted)


def _is_wanted_whole(block: Block, since: int | None, until: int | None) -> bool:
    """Whether there is nothing in the block that could be left out."""
    is_within = (since is None or since <= block.time_min) and (until is None or block.time_max < until)
    return is_within and block.results == block.tuples


def _groups(metadata: pq.FileMetaData, spec: StreamSpec, since: int | None, until: int | None) -> list[int]:
    """The row groups of results that may hold one of these times; results stand in the order of their offsets."""
    names = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    found = []
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        if spec.is_stamped and group.column(names[KIND]).statistics.min_raw != Kind.RESULT:
            continue
        times = group.column(names[spec.time]).statistics
        if (until is None or times.min_raw < until) and (since is None or times.max_raw >= since):
            found.append(g)
    return found
