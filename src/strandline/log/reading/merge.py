"""The partitions of a stream as one sequence of tuples, merged by time.

Inside a partition tuples keep the order of the log, also where times go back by less than the lateness. So what is
merged is, for each tuple, the largest time of its partition up to it; equal times are taken by partition.

Memory holds a block per partition, whatever the length of the stream. Whole runs of tuples are moved at once: each
round goes up to the point where the first of the partitions needs its next block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from strandline.arrow_rows import in_order
from strandline.control_columns import OFFSET, PARTITION
from strandline.log.index.leaf import Ints
from strandline.log.reading.results import result_blocks
from strandline.log.stream.log import Log


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Tuples that follow each other in the merged order."""

    table: pa.Table
    """The columns asked for, then `_partition` (null in the late side log) and `_offset`."""
    times: Ints
    """By which they were merged: never falling, within a run and from run to run."""


def merged(
    log: Log,
    partitions: Sequence[int],
    *,
    columns: Sequence[str] | None = None,
    firsts: Mapping[int, int] | None = None,
    since: int | None = None,
    until: int | None = None,
) -> Iterator[BlockRun]:
    """Yields the results of these partitions up to what is published now, in the order of time.

    `firsts` says per partition at which offset to begin; `since` and `until` bound the tuples' times, the end excluded.
    """
    wanted = list(log.spec.columns if columns is None else columns)
    read = list(dict.fromkeys([*wanted, log.spec.time]))
    sources = []
    for p in sorted(partitions):
        first = (firsts or {}).get(p, log.state.starts[p])
        log.require_kept(p, first)
        found = result_blocks(log, p, read, first=first, since=since, until=until)
        sources.append(_Source(p, (table for _, table in found), log.spec.time))
    sources = [s for s in sources if s.fill()]
    names = [*wanted, PARTITION, OFFSET]
    while sources:
        horizon, last = min((int(s.times[-1]), s.partition) for s in sources)
        # Whatever the other partitions still bring is later, or as late and of a higher partition.
        pieces = [s.take(horizon, including=s.partition <= last) for s in sources]
        yield _joined([piece for piece in pieces if len(piece.times)], names, log.spec.late)
        sources = [s for s in sources if s.fill()]


class _Source:
    """One partition's tuples, a block in memory."""

    def __init__(self, partition: int, tables: Iterator[pa.Table], time: str) -> None:
        self.partition = partition
        self.times: Ints = np.empty(0, dtype=np.int64)
        self._tables = tables
        self._time = time
        self._table: pa.Table | None = None
        self._latest = np.iinfo(np.int64).min

    def fill(self) -> bool:
        """Reads more tuples if there are none; returns whether there are any."""
        while not len(self.times):
            self._table = next(self._tables, None)
            if self._table is None:
                return False
            times = self._table.column(self._time).cast(pa.int64()).to_numpy()
            if len(times):
                self.times = np.maximum(np.maximum.accumulate(times), self._latest)
                self._latest = int(self.times[-1])
        return True

    def take(self, horizon: int, *, including: bool) -> BlockRun:
        """Takes out the tuples before a time, or up to and including it, and returns them."""
        assert self._table is not None
        many = int(np.searchsorted(self.times, horizon, side="right" if including else "left"))
        taken = self._table.slice(0, many)
        numbers = pa.repeat(pa.scalar(self.partition, pa.int32()), many)
        run = BlockRun(taken.append_column(PARTITION, numbers), self.times[:many])
        self._table, self.times = self._table.slice(many), self.times[many:]
        return run


def _joined(pieces: Sequence[BlockRun], names: list[str], late: int) -> BlockRun:
    table = pa.concat_tables([piece.table for piece in pieces]).select(names)
    if pieces[0].table.column(PARTITION)[0].as_py() == late:
        table = table.set_column(len(names) - 2, PARTITION, pa.nulls(len(table), pa.int32()))
    if len(pieces) == 1:
        return BlockRun(table, pieces[0].times)
    times = np.concatenate([piece.times for piece in pieces])
    order = np.argsort(times, kind="stable")  # the pieces stand in the order of their partitions
    return BlockRun(in_order(table, order), times[order])
