"""`format("strandline")`: a stream as a Spark source, batch and streaming, rows as Arrow.

Spark's word *offset* (a dict that says how far a query has read) stays inside this file; everywhere else an offset is
the place of one tuple in its partition.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from strandline.control_columns import OFFSET, PARTITION, REASON
from strandline.errors import KeyMissingError, StreamMismatchError
from strandline.log.index.seek import offset_at
from strandline.log.operator_state.guesses import Guesses
from strandline.log.reading.moment import Moment
from strandline.log.reading.results import within
from strandline.log.reading.tentative_results import TENTATIVE, changes_in, is_counting
from strandline.log.stream.block import Block
from strandline.log.stream.log import END, Log
from strandline.log.stream.reason import LATE
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep import consumer_registry
from strandline.spark.entry.table_options import options_in, options_of_table, with_options
from strandline.spark.read.read_options import ReadOptions, shared_out
from strandline.spark.read.replica_source import ReplicaChangesReader, ReplicaStreamReader
from strandline.spark.read.sink_refusal import refused_stream, refused_write
from strandline.spark.read.source_schema import changes_schema, replicas_schema, spark_schema
from strandline.spark.session.place import Place
from strandline.times import time_value

_ROWS_PER_BATCH = 1 << 16
_BYTES_PER_TASK = 64 << 20


class StrandlineDataSource(DataSource):
    """A persistent stream, read through Python. `Stream.read` is faster where Spark can read the files itself."""

    zone = "UTC"
    """On whose clock a time is that says no zone. Spark's Python knows nothing of the session's; see `in_zone`."""

    @classmethod
    def in_zone(cls, zone: str) -> type[StrandlineDataSource]:
        """Returns the source for a session in this time zone."""
        return type(cls.__name__, (cls,), {"zone": zone})

    @classmethod
    def name(cls) -> str:
        return "strandline"

    def schema(self) -> StructType:
        given = options_of_table(self.options)
        options = ReadOptions.of(self.options if given is None else given, self.zone)
        spec = options.spec()
        options.times(spec), options.start_time(spec)  # what is wrong with them is said now, not when a query runs
        if options.replicas:
            schema = replicas_schema(spec, positions=options.positions, tentative=options.tentative)
        elif options.tells_changes:
            schema = changes_schema(spec)
        else:
            schema = spark_schema(spec, late=options.late, positions=options.positions, tentative=options.tentative)
        return schema if given is None else with_options(schema, {**given, **options.address})

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(self._read_options(schema), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self._read_options(schema)
        if not options.replicas:
            return StreamReader(options, schema)
        return (ReplicaChangesReader if options.tentative else ReplicaStreamReader)(options, schema)

    def _read_options(self, schema: StructType) -> ReadOptions:
        return ReadOptions.of({**options_in(schema), **self.options}, self.zone)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        raise refused_write(self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        raise refused_stream(self.options)


class UnfilteredDataSource(StrandlineDataSource):
    """The source for sessions without filter pushdown: there Spark refuses a reader that takes filters."""

    def reader(self, schema: StructType) -> BatchReader:
        return UnfilteredReader(self._read_options(schema), schema)


class Slice(InputPartition):
    """The blocks of one partition, and the tuples in them, that one task reads."""

    def __init__(
        self,
        spec: bytes,
        partition: int,
        first: int,
        end: int,
        blocks: Sequence[Block],
        times: tuple[int | None, int | None] = (None, None),
        guesses: Guesses | None = None,
    ) -> None:
        self.spec = spec
        self.partition = partition
        self.first = first
        self.end = end
        self.blocks = blocks
        self.times = times
        self.guesses = guesses


class BatchReader(DataSourceReader):
    """Reads what is published when the query is planned, or was at the moment that is given."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        options.require_batch()
        self._options = options
        self._schema = schema
        self._spec = options.place.open().spec
        self._times = options.times(self._spec)
        self._time_from, self._time_until = self._times

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Takes filters on time, so that blocks outside of the range are not opened; Spark still filters the rows."""
        for f in filters:
            match f:
                case GreaterThan(attribute=(name,), value=value) | GreaterThanOrEqual(attribute=(name,), value=value):
                    self._narrow(name, value, None)
                case LessThan(attribute=(name,), value=value) | LessThanOrEqual(attribute=(name,), value=value):
                    self._narrow(name, None, value)
                case EqualTo(attribute=(name,), value=value):
                    self._narrow(name, value, value)
            yield f

    def _narrow(self, name: str, low: Any, high: Any) -> None:
        if name != self._spec.time:
            return
        kind = self._spec.time_kind
        if low is not None:
            time = time_value(low, name, kind, dt.UTC)
            self._time_from = max(time, -END if self._time_from is None else self._time_from)
        if high is not None:
            time = time_value(high, name, kind, dt.UTC)
            self._time_until = min(time + 1, END if self._time_until is None else self._time_until)

    def partitions(self) -> list[InputPartition]:
        log = self._options.place.open()
        chosen = [log.spec.late] if self._options.late else range(log.spec.partitions)
        moment = self._options.moment or Moment.of(log)
        spec = log.spec.to_json()
        slices: list[InputPartition] = []
        for p in chosen:
            first, end = moment.extent(log, p)
            for run in _runs(log.blocks(p, first, end, self._time_from, self._time_until)):
                slices.append(Slice(spec, p, first, end, run, self._times, moment.guesses.get(p)))
        return slices

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Slice):  # Spark's stand-in for "no partitions at all"
            return iter(())
        return read_slice(partition, self._options, self._schema)


class UnfilteredReader(BatchReader):
    """The reader without filters."""

    pushFilters = DataSourceReader.pushFilters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the stream: from any point of the past, into the present, without a gap or a double."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        options.require_streaming()
        self._options = options
        self._schema = schema
        self._log = options.place.open()
        self._partitions = (self._log.spec.late,) if options.late else tuple(range(self._log.spec.partitions))
        self._until: list[int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        log, start = self._log, self._options.start
        if start == "earliest":
            ends = self._of_mine(log.state.starts)
        elif start == "latest":
            ends = self._of_mine(log.state.ends)
        else:
            time = self._options.start_time(log.spec)
            assert time is not None
            ends = [offset_at(log, p, time) for p in self._partitions]
        position = self._position(ends)
        self._tell_consumer(position)
        return position

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_tuples_per_batch
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._log.refresh()
        self._until = self._of_mine(self._log.state.ends)

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._position(self._of_mine(self._log.state.ends))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._log.refresh()
        read = self._ends(start)
        target = self._until or self._of_mine(self._log.state.ends)
        waiting = [max(0, t - r) for t, r in zip(target, read, strict=True)]
        if isinstance(limit, ReadMaxRows) and sum(waiting) > limit.max_rows:
            waiting = shared_out(waiting, limit.max_rows)
        return self._position([r + w for r, w in zip(read, waiting, strict=True)])

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        firsts, ends = self._ends(start), self._ends(end)
        if any(e > known for e, known in zip(ends, self._of_mine(self._log.state.ends), strict=True)):
            self._log.refresh()  # after a restart Spark repeats a batch that this handle has not seen
        spec = self._log.spec.to_json()
        slices = []
        for p, first, stop in zip(self._partitions, firsts, ends, strict=True):
            if first < stop:
                self._log.require_kept(p, first)
                slices.append(Slice(spec, p, first, stop, list(self._log.blocks(p, first, stop))))
        return slices

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Slice)
        return read_slice(partition, self._options, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        self._tell_consumer(end)

    def _tell_consumer(self, position: dict[str, Any]) -> None:
        if self._options.consumer is not None:
            consumer_registry.register(self._log, self._options.consumer, self._ends(position))

    def _of_mine(self, offsets: Sequence[int]) -> list[int]:
        """Returns the offsets of the partitions that this query reads, of those of all partitions."""
        return [offsets[p] for p in self._partitions]

    def _position(self, ends: Sequence[int]) -> dict[str, Any]:
        # Spark compares positions as text: the same numbers must always give the same text.
        offsets = {self._label(p): int(end) for p, end in zip(self._partitions, ends, strict=True)}
        return {"offsets": offsets, "stream": self._log.spec.id}

    def _label(self, partition: int) -> str:
        return "late" if partition == self._log.spec.late else str(partition)

    def _ends(self, position: dict[str, Any]) -> list[int]:
        if position.get("stream") != self._log.spec.id or "offsets" not in position:
            raise StreamMismatchError(
                "the stream was replaced by another one since this query last read it",
                where=self._options.place.url,
                todo="start the query with a new Spark checkpoint",
            )
        offsets = position["offsets"]
        if ("late" in offsets) != self._options.late:
            raise StreamMismatchError(
                f"this query was started with late={not self._options.late}, it now says late={self._options.late}",
                where=self._options.place.url,
                todo="start the query with a new Spark checkpoint: the stream and its side log have different offsets",
            )
        return [offsets[self._label(p)] for p in self._partitions]


def read_slice(part: Slice, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Reads the results of a slice in Spark's types. Runs in a task."""
    spec = StreamSpec.from_json(part.spec, options.place.url)
    wanted = to_arrow_schema(schema, timezone="UTC")
    for read, reason in _tables(part, options.place, spec):
        if options.tells_changes:
            table = changes_in(read)
        else:
            counting = is_counting(read, part.guesses, spec.time) if options.tentative else None
            told = read if counting is None else read.append_column(TENTATIVE, counting)
            table = within(told, spec.time, *part.times, counting)
        if options.positions or options.tells_changes:
            number = None if part.partition == spec.late else part.partition
            table = table.append_column(PARTITION, pa.repeat(pa.scalar(number, pa.int32()), len(table)))
            if part.partition == spec.late and REASON not in table.column_names:
                table = table.append_column(REASON, pa.repeat(pa.scalar(reason), len(table)))
        yield from table.select(wanted.names).cast(wanted).to_batches(max_chunksize=_ROWS_PER_BATCH)


def _tables(part: Slice, place: Place, spec: StreamSpec) -> Iterator[tuple[pa.Table, str]]:
    """Yields the tuples of a slice, a table a block, with the reason of those in the side log."""
    log = Log(place.storage(), spec)
    first = part.first
    try:
        for block in part.blocks:
            table = log.read_block(block)
            cut = max(0, part.first - block.first)
            yield table.slice(cut, min(part.end, block.end) - block.first - cut), block.reason
            first = block.end
    except KeyMissingError:
        # The block was compacted and collected since the batch was planned: its tuples are elsewhere now.
        log, end = place.open(), min(part.end, part.blocks[-1].end)
        for table in log.read(part.partition, max(first, part.first, part.blocks[0].first), end):
            yield table, _reason(log, part.partition, table)


def _reason(log: Log, partition: int, table: pa.Table) -> str:
    """Returns the reason of one block of the side log; compaction does not mix reasons."""
    if partition != log.spec.late or not len(table):
        return LATE
    offset = table.column(OFFSET)[0].as_py()
    return next(log.blocks(partition, offset, offset + 1)).reason


def _runs(blocks: Iterator[Block]) -> Iterator[list[Block]]:
    """Yields neighbouring blocks for one task."""
    run: list[Block] = []
    size_bytes = 0
    for block in blocks:
        run.append(block)
        size_bytes += block.size_bytes
        if size_bytes >= _BYTES_PER_TASK:
            yield run
            run, size_bytes = [], 0
    if run:
        yield run
