"""From a point in time to the offsets at which it begins."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from strandline.log.stream.kinds import is_result
from strandline.log.stream.log import Log


def offsets_at(log: Log, time: int) -> tuple[int, ...]:
    """Returns, per partition, the offset of the first tuple at `time` or later; the partition's end if there is none
    yet.

    A binary search in the index and one block per partition.
    """
    return tuple(offset_at(log, p, time) for p in range(log.spec.partitions))


def offset_at(log: Log, partition: int, time: int) -> int:
    """Returns that offset of one partition."""
    for block in log.blocks(partition, time_from=time):
        table = log.read_block(block, columns=[log.spec.time])
        is_in_time = pc.greater_equal(table.column(log.spec.time).cast(pa.int64()), time)
        # A footprint may speak of a window that ends long after the results around it.
        hits = pc.indices_nonzero(pc.and_(is_in_time, is_result(table)))
        if len(hits):
            return block.first + int(hits[0].as_py())
    return log.state.ends[partition]
