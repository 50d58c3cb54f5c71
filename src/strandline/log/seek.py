"""From a point in time to the offsets at which it begins."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from strandline.log.log import Log


def offsets_at(log: Log, time: int) -> tuple[int, ...]:
    """Per partition, the offset of the first tuple at `time` or later (the partition's end if there is none yet).

    A binary search in the index and one block per partition.
    """
    return tuple(_offset_at(log, p, time) for p in range(log.spec.partitions))


def _offset_at(log: Log, partition: int, time: int) -> int:
    for block in log.blocks(partition, time_from=time):
        times = log.read_block(block, columns=[log.spec.time]).column(log.spec.time)
        hits = pc.indices_nonzero(pc.greater_equal(times.cast(pa.int64()), time))
        if len(hits):
            return block.first + int(hits[0].as_py())
    return log.state.ends[partition]
