"""`format("strandline")`: a stream as a Spark source, batch and streaming, rows as Arrow.

Spark's word *offset* (a dict that says how far a query has read) stays inside this file; everywhere else an offset is
the place of one tuple in its partition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
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
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from strandline.errors import KeyMissingError, OptionError, StreamMismatchError
from strandline.log import consumers
from strandline.log.block import Block, Kind
from strandline.log.columns import KIND, OFFSET, PARTITION, REASON
from strandline.log.log import END, Log
from strandline.log.reason import LATE
from strandline.log.seek import offsets_at
from strandline.log.spec import StreamSpec
from strandline.spark.place import Place
from strandline.units import time_value

_ROWS_PER_BATCH = 1 << 16
_BYTES_PER_TASK = 64 << 20
SECRET_OPTIONS = "storage_options_secret"
"""The same as `storage_options`, by a name whose value Spark leaves out of every plan that it shows."""
_OPTIONS = {
    "path",
    "since",
    "until",
    "late",
    "positions",
    "start",
    "max_tuples_per_batch",
    "consumer",
    "storage_options",
    SECRET_OPTIONS,
}


@dataclass(frozen=True)
class ReadOptions:
    """The options of `format("strandline")`, checked."""

    place: Place
    since: int | None
    until: int | None
    late: bool
    positions: bool
    start: str
    max_tuples_per_batch: int | None
    consumer: str | None

    @classmethod
    def of(cls, options: dict[str, str]) -> ReadOptions:
        """From Spark's texts; option names are the same with and without underscores, in any case."""
        given = {_plain(name): value for name, value in options.items()}
        known = {_plain(name): name for name in _OPTIONS}
        unknown = set(given) - set(known)
        if unknown:
            raise OptionError(
                f"unknown option {sorted(unknown)[0]!r} of format('strandline')",
                todo=f"the options are {', '.join(sorted(_OPTIONS))}",
            )
        if "path" not in given:
            raise OptionError("format('strandline') needs a path", todo="pass it to load() or as option 'path'")
        values = {known[name]: value for name, value in given.items()}
        limit = values.get("max_tuples_per_batch")
        if limit is not None and not (limit.isdigit() and int(limit) > 0):
            raise OptionError(f"max_tuples_per_batch={limit!r} is not a positive number", todo="for example 500000")
        return cls(
            place=Place(values["path"], options=_storage_options(values)),
            since=time_value(values["since"], "since") if "since" in values else None,
            until=time_value(values["until"], "until") if "until" in values else None,
            late=_truth(values.get("late", "false"), "late"),
            positions=_truth(values.get("positions", "false"), "positions"),
            start=values.get("start", "earliest"),
            max_tuples_per_batch=int(limit) if limit else None,
            consumer=values.get("consumer"),
        )


class StrandlineDataSource(DataSource):
    """A persistent stream, read through Python. `Stream.read` is faster where Spark can read the files itself."""

    @classmethod
    def name(cls) -> str:
        return "strandline"

    def schema(self) -> StructType:
        options = ReadOptions.of(dict(self.options))
        return spark_schema(options.place.open().spec, late=options.late, positions=options.positions)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(ReadOptions.of(dict(self.options)), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(ReadOptions.of(dict(self.options)), schema)


class Slice(InputPartition):
    """What one task reads: some blocks of one partition, and which of their tuples."""

    def __init__(self, spec: bytes, partition: int, first: int, end: int, blocks: Sequence[Block]) -> None:
        self.spec = spec
        self.partition = partition
        self.first = first
        self.end = end
        self.blocks = blocks


class BatchReader(DataSourceReader):
    """Reads what is published when the query is planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._time_from: int | None = options.since
        self._time_until: int | None = options.until
        self._time_name = options.place.open().spec.time

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Blocks outside of a time range are not opened; Spark still filters the rows."""
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
        if name != self._time_name:
            return
        if low is not None:
            self._time_from = max(time_value(low, name), -END if self._time_from is None else self._time_from)
        if high is not None:
            self._time_until = min(time_value(high, name) + 1, END if self._time_until is None else self._time_until)

    def partitions(self) -> list[InputPartition]:
        log = self._options.place.open()
        chosen = [log.spec.late] if self._options.late else range(log.spec.partitions)
        spec = log.spec.to_json()
        slices: list[InputPartition] = []
        for p in chosen:
            for run in _runs(log.blocks(p, time_from=self._time_from, time_until=self._time_until)):
                slices.append(Slice(spec, p, log.state.starts[p], log.state.ends[p], run))
        return slices

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Slice):  # Spark's stand-in for "no partitions at all"
            return iter(())
        return read_slice(partition, self._options, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the stream: from any point of the past, into the present, without a gap or a double."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.late or options.since is not None or options.until is not None:
            raise OptionError(
                "since, until and late are for batch reads",
                todo="use start= for the starting point of a streaming read",
            )
        self._options = options
        self._schema = schema
        self._log = options.place.open()
        self._until: tuple[int, ...] | None = None

    def initialOffset(self) -> dict[str, Any]:
        log, start = self._log, self._options.start
        if start == "earliest":
            ends = log.state.starts
        elif start == "latest":
            ends = log.state.ends
        else:
            ends = offsets_at(log, time_value(start, "start"))
        position = self._position(ends)
        self._tell_consumer(position)
        return position

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_tuples_per_batch
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._log.refresh()
        self._until = self._log.state.ends

    def reportLatestOffset(self) -> dict[str, Any]:
        return self._position(self._log.state.ends)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._log.refresh()
        read = self._ends(start)
        target = self._until or self._log.state.ends
        waiting = [max(0, t - r) for t, r in zip(target, read, strict=False)]
        if isinstance(limit, ReadMaxRows) and sum(waiting) > limit.max_rows:
            waiting = _shares(waiting, limit.max_rows)
        return self._position([r + w for r, w in zip(read, waiting, strict=True)])

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        firsts, ends = self._ends(start), self._ends(end)
        if any(e > known for e, known in zip(ends, self._log.state.ends, strict=False)):
            self._log.refresh()  # after a restart Spark repeats a batch that this handle has not seen
        spec = self._log.spec.to_json()
        slices = []
        for p, (first, stop) in enumerate(zip(firsts, ends, strict=True)):
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
            consumers.register(self._log, self._options.consumer, self._ends(position))

    def _position(self, ends: Sequence[int]) -> dict[str, Any]:
        # Spark compares positions as text: the same numbers must always give the same text.
        offsets = {str(p): int(ends[p]) for p in range(self._log.spec.partitions)}
        return {"offsets": offsets, "stream": self._log.spec.id}

    def _ends(self, position: dict[str, Any]) -> list[int]:
        if position["stream"] != self._log.spec.id:
            raise StreamMismatchError(
                "the stream was replaced by another one since this query last read it",
                where=self._options.place.url,
                todo="start the query with a new Spark checkpoint",
            )
        return [position["offsets"][str(p)] for p in range(self._log.spec.partitions)]


def spark_schema(spec: StreamSpec, *, late: bool = False, positions: bool) -> StructType:
    """The schema of the tuples in Spark's words."""
    schema = StructType.fromJson(dict(spec.schema))
    if positions:
        # Beside a column of that name that the tuples have, it is left out.
        reason = [StructField(REASON, StringType())] if late and REASON not in map(str.lower, schema.names) else []
        places = [StructField(PARTITION, IntegerType()), StructField(OFFSET, LongType())]
        schema = StructType([*schema.fields, *places, *reason])
    return schema


def read_slice(part: Slice, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The results of a slice as Spark wants them. Runs in a task."""
    spec = StreamSpec.from_json(part.spec, options.place.url)
    wanted = to_arrow_schema(schema, timezone="UTC")
    for read, reason in _tables(part, options.place, spec):
        table = _within(read, spec, options)
        if options.positions:
            number = None if part.partition == spec.late else part.partition
            table = table.append_column(PARTITION, pa.repeat(pa.scalar(number, pa.int32()), len(table)))
            if part.partition == spec.late and REASON not in table.column_names:
                table = table.append_column(REASON, pa.repeat(pa.scalar(reason), len(table)))
        yield from table.select(wanted.names).cast(wanted).to_batches(max_chunksize=_ROWS_PER_BATCH)


def _tables(part: Slice, place: Place, spec: StreamSpec) -> Iterator[tuple[pa.Table, str]]:
    """The tuples of a slice, a table per block, with the reason for which they are in the side log, if they are."""
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
    """Why the tuples of one block of the side log are there; compaction does not mix reasons."""
    if partition != log.spec.late or not len(table):
        return LATE
    offset = table.column(OFFSET)[0].as_py()
    return next(log.blocks(partition, offset, offset + 1)).reason


def _within(table: pa.Table, spec: StreamSpec, options: ReadOptions) -> pa.Table:
    """Results only, and only those of the time range."""
    keep = (
        None if pc.all(pc.equal(table.column(KIND), Kind.RESULT)).as_py() else pc.equal(table.column(KIND), Kind.RESULT)
    )
    if options.since is not None or options.until is not None:
        times = table.column(spec.time).cast(pa.int64())
        for bound, compare in ((options.since, pc.greater_equal), (options.until, pc.less)):
            if bound is not None:
                hit = compare(times, bound)
                keep = hit if keep is None else pc.and_(keep, hit)
    return table if keep is None else table.filter(keep)


def _runs(blocks: Iterator[Block]) -> Iterator[list[Block]]:
    """Neighbouring blocks for one task."""
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


def _shares(waiting: Sequence[int], limit: int) -> list[int]:
    """How much each partition may give: in proportion to what waits, so that all get through time together."""
    total = sum(waiting)
    shares = [w * limit // total for w in waiting]
    rest = limit - sum(shares)
    for p, w in enumerate(waiting):
        extra = min(rest, w - shares[p])
        shares[p] += extra
        rest -= extra
    return shares


def _storage_options(values: dict[str, str]) -> dict[str, Any]:
    text = values.get(SECRET_OPTIONS, values.get("storage_options", "{}"))
    try:
        options = json.loads(text)
    except ValueError:  # which holds the text
        options = None
    if not isinstance(options, dict):
        raise OptionError("storage_options is not a JSON object", todo='write it like {"endpoint_url": "https://…"}')
    return options


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _truth(text: str, option: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{option}={text!r} is not true or false")
    return text.lower() == "true"
