"""A source that a test feeds by hand: every `add` is a batch, placed, ordered and judged as the entry point does it.

What Spark does there in its plan is done here in plain Python: a key's partition is Spark's hash, the order is time,
then all other columns, and the same `EntryLimits` say what is late, ahead or unfit. A test holds the two together.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from strandline.errors import NullTimeError, OptionError, SchemaError
from strandline.log.storage.storage import create_once
from strandline.log.stream import quiet
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block import Block
from strandline.log.stream.block_sequence import BlockSequence
from strandline.log.stream.column_types import fields_of, type_name
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.reason import AHEAD, KEY, LATE, TIME
from strandline.log.stream.spec import StreamSpec
from strandline.schema_text import key_names, schema_json
from strandline.spark.entry.heartbeat import require_heartbeat
from strandline.spark.entry.set_aside import REASONS, EntryLimits, long_keys
from strandline.testing.hand_clock import HandClock
from strandline.testing.memory_storage import MemoryStorage, lost_log
from strandline.testing.memory_stream import MemoryStream
from strandline.testing.spark_placement import partition_of, sort_key
from strandline.times import time_value
from strandline.units import Duration, clock_us, duration_us, require_unit
from strandline.wording import plural

_FIRST_REASON = (TIME, KEY, AHEAD, LATE)
"""Of several reasons to set a tuple aside, the one that counts."""
Rows = Sequence[Mapping[str, Any] | Sequence[Any]]


class Feed(MemoryStream):
    """A stream in memory, and the source before it."""

    def __init__(self, log: Log, clock: HandClock, max_ahead: int | None, heartbeat: int | None) -> None:
        super().__init__(log)
        self.clock = clock
        self._lost: Log | None = None
        """The stream as operators have it while it is lost: the feed itself goes on writing."""
        self._held: list[pa.Table] | None = None
        """The batches since the feed fell silent; None while it is not."""
        self._limits = EntryLimits.of(log.spec, max_ahead)
        self._heartbeat = heartbeat
        self._batches = 0

    def add(self, rows: Rows | pa.Table | Any) -> None:
        """Adds a batch: dictionaries, tuples in the order of the columns, an Arrow table or a pandas DataFrame.

        A time may be text such as "2026-01-01 12:00:05"; without a zone it is UTC. Raises `SchemaError` for columns
        that are not the stream's, `NullTimeError` for a tuple without a time, `StreamFinishedError` after `finish`.
        While the feed is silent, the batch waits for `come_back`.
        """
        table = self._table(rows)
        if nulls := table.column(self._log.spec.time).null_count:
            raise NullTimeError(
                f"{nulls:,} of {plural(table.num_rows, 'tuple')} have no time ({self._log.spec.time} is null)",
                where="sl.testing",
            )
        if self._held is not None:
            self._held.append(table)
        elif table.num_rows:
            self._publish(table)

    def _publish(self, table: pa.Table) -> None:
        log = self._log
        base, spec = log.state, log.spec
        limits = replace(self._limits, boundaries=base.boundaries, now_us=self.clock.now_us())
        blocks: list[Block] = []
        firsts = list(base.ends)
        for (p, number), chosen in sorted(self._placed(table, limits).items()):
            reason = REASONS[number] if p == spec.late else None
            columns = table.take(pa.array(chosen)).combine_chunks().columns
            unique = f"batch{self._batches}"
            create = partial(create_once, log.storage)
            written = BlockSequence(spec, p, firsts[p], unique, create, reason=reason)
            blocks += written.write([(Kind.RESULT, columns)])
            firsts[p] += len(chosen)
        log.append(Append(blocks, writer=Writer("feed", "feed", self._batches)), base=base)
        self._batches += 1

    def pass_time(self) -> None:
        """Moves the boundary to the clock minus lateness, as a heartbeat does when no tuple comes."""
        lateness = self._log.spec.lateness
        if self._heartbeat is None or lateness is None or self._held is not None:
            return
        if self.clock.now_us() - self._log.state.published_us >= self._heartbeat:
            quiet.pass_time(self._log, self.clock.now_us() - lateness, "feed")

    def finish(self) -> None:
        """Says that nothing will follow: all windows of time close with the next step."""
        if self._held is not None:
            raise OptionError(
                "a silent feed cannot finish: the tuples that were added since wait", todo="call come_back() first"
            )
        quiet.finish(self._log, "feed")

    # ------------------------------------------------------------------ failures

    def fall_silent(self) -> None:
        """Lets the source fail: its stream stands still, without heartbeats, and what is added waits."""
        self._held = [] if self._held is None else self._held

    def lose(self) -> None:
        """Makes the stream unreadable for operators, as if its store were gone. The source goes on writing."""
        if self._lost is None:
            self._lost = lost_log(self._log)

    def come_back(self) -> None:
        """Ends both failures; publishes what was added to a silent feed, batch by batch."""
        self._lost = None
        held, self._held = self._held or (), None
        for table in held:
            if table.num_rows:
                self._publish(table)

    @property
    def input_log(self) -> Log:
        """For operators: the stream as they read it."""
        return self._lost or self._log

    @property
    def late(self) -> pa.Table:
        """The tuples in the side log, with the reason in `_reason`."""
        return self.side_log()

    # ------------------------------------------------------------------ as the entry point does it

    def _placed(self, table: pa.Table, limits: EntryLimits) -> dict[tuple[int, int], list[int]]:
        """Returns the rows of each partition in their order; those of the side log by the number of their reason."""
        spec = self._log.spec
        kinds = {f["name"]: f["type"] for f in fields_of(spec.schema)}
        values = {name: _plain(table.column(name)) for name in spec.columns}
        key_kinds = [type_name(kinds[c]) for c in spec.key]
        order = [spec.time, *(c for c in spec.columns if c != spec.time)]
        found: dict[tuple[int, int], list[int]] = {}
        for i in range(table.num_rows):
            key = [values[c][i] for c in spec.key]
            p = partition_of(key, key_kinds, spec.partitions)
            reasons = limits.by_time(p, values[spec.time][i], values[spec.time][i])
            lengths = sum(len(_bytes(values[c][i])) for c in long_keys(spec))
            if lengths > limits.key_bytes_max:
                reasons = reasons | {KEY}
            reason = next((r for r in _FIRST_REASON if r in reasons), None)
            place = (p, 0) if reason is None else (spec.late, REASONS.index(reason))
            found.setdefault(place, []).append(i)
        for chosen in found.values():
            chosen.sort(key=lambda i: [sort_key(values[c][i], kinds[c]) for c in order])
        return found

    def _table(self, rows: Any) -> pa.Table:
        spec = self._log.spec
        if hasattr(rows, "columns") and not isinstance(rows, pa.Table):
            rows = pa.Table.from_pandas(rows, preserve_index=False)
        found = rows if isinstance(rows, pa.Table) else self._from_rows(list(rows))
        if set(found.column_names) != set(spec.columns):
            raise SchemaError(
                f"the rows have the columns {', '.join(found.column_names)}, and the stream has "
                f"{', '.join(spec.columns)}",
                where="sl.testing",
            )
        return found.select(list(spec.columns)).cast(spec.arrow)

    def _from_rows(self, rows: Rows) -> pa.Table:
        spec, dicts = self._log.spec, []
        for number, row in enumerate(rows):
            named = row if isinstance(row, Mapping) else _named(row, number, spec.columns)
            if unknown := set(named) - set(spec.columns):
                raise SchemaError(
                    f"a row has the columns {', '.join(sorted(unknown))}, which the stream does not have",
                    where=f"columns: {', '.join(spec.columns)}",
                )
            dicts.append(named)
        arrays = [pa.array([_moment(r.get(f.name), f.type) for r in dicts], f.type) for f in spec.arrow]
        return pa.Table.from_arrays(arrays, schema=spec.arrow)


def stream(
    schema: Any,
    *,
    key: str | Sequence[str],
    time: str,
    partitions: int = 2,
    lateness: Duration | None = None,
    max_ahead: Duration | None = None,
    heartbeat: Duration | None = None,
    clock: HandClock | None = None,
) -> Feed:
    """Makes a stream in memory for a test, fed by hand; build operators on it as on any other stream.

    The schema is text, `"id long, at timestamp, price double"`, a `pyarrow.Schema` or a `StructType`. The arguments are
    those of `sl.source`, but for `max_ahead`, which is off by default: the clock of a test says nothing of its data.
    """
    spec = StreamSpec(
        id=str(uuid.uuid4()),
        schema=schema_json(schema),
        key=key_names(key),
        time=time,
        partitions=partitions,
        lateness=None if lateness is None else duration_us(lateness, "lateness"),
        created_by="strandline.testing",
    )
    if spec.time_is_timestamp:
        require_unit(lateness, "lateness")
    moves = clock or HandClock()
    heartbeat_us = None if heartbeat is None else clock_us(heartbeat, "heartbeat")
    if heartbeat_us is not None:
        require_heartbeat(spec, heartbeat_us, "sl.testing.stream")
    return Feed(
        Log.create(MemoryStorage(moves), spec, moves),
        moves,
        None if max_ahead is None else clock_us(max_ahead, "max_ahead"),
        heartbeat_us,
    )


def _named(row: Any, number: int, columns: Sequence[str]) -> dict[str, Any]:
    """Returns a row of values with the names of the columns; raises `SchemaError` if they do not fit."""
    is_row = isinstance(row, Iterable) and not isinstance(row, str | bytes)
    values = list(row) if is_row else []
    if len(values) != len(columns):
        raise SchemaError(
            f"row {number} has {plural(len(values), 'value')}, and the stream has {plural(len(columns), 'column')}"
            if is_row
            else f"row {number} is {row!r}, and not a row of values",
            where=f"sl.testing, columns: {', '.join(columns)}",
            todo=f"give a list of rows with a value for each column, add([({', '.join(columns)}), …]), or dictionaries",
        )
    return dict(zip(columns, values, strict=True))


def _moment(value: Any, kind: pa.DataType) -> Any:
    """Turns text into a time if the column holds times."""
    if not isinstance(value, str) or not pa.types.is_timestamp(kind):
        return value
    return time_value(value, "a time", "timestamp" if kind.tz else "timestamp_ntz", dt.UTC)


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """Returns values as Spark sorts and hashes them: times and dates are numbers, also those unknown to Python."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    values: list[Any] = column.to_pylist()
    return values


def _bytes(value: Any) -> bytes:
    return b"" if value is None else value.encode() if isinstance(value, str) else bytes(value)
