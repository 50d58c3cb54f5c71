"""The results of a stream as Arrow, without Spark: any part of it, any of its columns, a block in memory at a time.

The order is that of the partitions, and in each that of the offsets. Blocks outside of the bounds, and those that hold
nothing but footprints, are not opened; of the others the checksum is verified, whatever columns are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import OFFSET, PARTITION, REASON
from strandline.errors import OptionError
from strandline.log.reading.bounds import Bounds
from strandline.log.stream.block import Block
from strandline.log.stream.kinds import is_result
from strandline.log.stream.log import END, Log

ROWS_PER_BATCH = 1 << 16


def result_blocks(
    log: Log,
    partition: int,
    columns: Sequence[str],
    *,
    first: int | None = None,
    end: int = END,
    since: int | None = None,
    until: int | None = None,
) -> Iterator[tuple[Block, pa.Table]]:
    """Yields the results of a partition within these offsets and times, with the block in which they were found.

    The tables have the columns, then `_offset`. Like `Log.read`, it outlives compaction.
    """
    is_timed = since is not None or until is not None
    read = list(dict.fromkeys([*columns, log.spec.time])) if is_timed else list(columns)
    for block, table in log.read_blocks(partition, first, end, read, (since, until), True):
        yield block, within(table, log.spec.time, since, until).select([*columns, OFFSET])


def within(
    table: pa.Table, time: str, since: int | None, until: int | None, counting: pa.ChunkedArray | None = None
) -> pa.Table:
    """Returns the results among the tuples, of these times, and with them those for which `counting` is true."""
    keep = is_result(table) if counting is None else pc.or_(is_result(table), counting)
    for bound, compare in ((since, pc.greater_equal), (until, pc.less)):
        if bound is not None:
            keep = pc.and_(keep, compare(table.column(time).cast(pa.int64()), bound))
    return table if pc.all(keep).as_py() else table.filter(keep)


class Results:
    """A part of a stream that was asked for, as of the log's last refresh."""

    def __init__(self, log: Log, bounds: Bounds, columns: Sequence[str] | None, *, late: bool, positions: bool) -> None:
        self._log = log
        self._bounds = bounds
        self._columns = _known(log, columns)
        self._late = late
        self._state = log.state  # a slow reader gets what was published at the beginning, and no more
        fields = [log.spec.arrow.field(name) for name in self._columns]
        if positions:
            fields += [pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64())]
            if late and REASON not in map(str.lower, log.spec.columns):
                fields.append(pa.field(REASON, pa.string()))
        self.schema = pa.schema(fields)

    def tables(self) -> Iterator[pa.Table]:
        """Yields a table for each block that holds some of it, partition by partition in the order of offsets."""
        spec, bounds = self._log.spec, self._bounds
        for p in [spec.late] if self._late else range(spec.partitions):
            found = result_blocks(
                self._log,
                p,
                self._columns,
                first=bounds.firsts.get(p, self._state.starts[p]),
                end=min(bounds.ends.get(p, END), self._state.ends[p]),
                since=bounds.time_from,
                until=bounds.time_until,
            )
            for block, table in found:
                if len(table):
                    yield self._shaped(block, table)

    def _shaped(self, block: Block, table: pa.Table) -> pa.Table:
        """Returns the table with the columns of the schema."""
        if PARTITION in self.schema.names:
            number = None if self._late else block.partition
            table = table.append_column(PARTITION, pa.repeat(pa.scalar(number, pa.int32()), len(table)))
        if REASON in self.schema.names and REASON not in table.column_names:
            table = table.append_column(REASON, pa.repeat(pa.scalar(block.reason), len(table)))
        return table.select(self.schema.names)

    def table(self) -> pa.Table:
        """Returns all of it at once."""
        return pa.concat_tables([self.schema.empty_table(), *self.tables()])

    def reader(self, rows: int) -> pa.RecordBatchReader:
        """Returns all of it in batches of at most `rows`, a block in memory at a time."""
        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise OptionError(f"rows={rows!r} is not a number of tuples", todo="use 1 or more")
        batches = (batch for table in self.tables() for batch in table.to_batches(max_chunksize=rows))
        return pa.RecordBatchReader.from_batches(self.schema, batches)


def _known(log: Log, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return list(log.spec.columns)
    names = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in names if name not in log.spec.columns]
    if unknown or len(set(names)) < len(names):
        raise OptionError(
            f"there is no column {unknown[0]!r}" if unknown else f"columns={names!r} names a column twice",
            stream=log.storage.url,
            todo=f"choose among {', '.join(log.spec.columns)}",
        )
    return names
