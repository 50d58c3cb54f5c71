"""Small operators between two logs, without Spark: what the tests of recovery run, break and compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.checkpoint.policy import Policy, cec
from strandline.clock import Clock, ManualClock
from strandline.inputs.input import InputBatch
from strandline.log.storage.storage import Storage
from strandline.log.stream import block as blocks_
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block import Block
from strandline.log.stream.column_types import arrow_schema
from strandline.log.stream.kinds import Kind, only_results
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.tuples import Columns
from strandline.operators.aggregate.windows import Window, count_window, session_window, time_window
from strandline.operators.expressions.expressions import schema_of
from strandline.operators.expressions.shape import AS_IS, Shape
from strandline.operators.open_windows.arrays import NO_BATCH
from strandline.operators.open_windows.record import OPENED, POS, USED
from strandline.operators.open_windows.window_state import WindowState
from strandline.operators.operator import OnError
from strandline.running import step
from strandline.running.element import Element
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import run_batch
from strandline.testing import MemoryStorage

Row = dict[str, Any]
COLUMNS = {"k": "long", "s": "string", "v": "long", "x": "double", "t": "long"}
LATENESS = 8
AT_ONCE = 1 << 40


SCHEMA = schema_of(COLUMNS)


def plan(window: Window, key: Sequence[str], shape: Shape = AS_IS, **aggregates: agg.Aggregate) -> AggregateDefinition:
    """Over an input with the columns above."""
    return AggregateDefinition.of(window, aggregates, shape.types_over(COLUMNS, SCHEMA), key, "t", shape)


def where(condition: Any, before: Shape = AS_IS) -> Shape:
    """Only some of these tuples."""
    return before.where(condition, before.schema_over(SCHEMA))


def select(key: str, before: Shape = AS_IS, **columns: Any) -> Shape:
    """Other tuples made of these."""
    return before.select([key, "t"], columns, before.schema_over(SCHEMA), [key, "t"])


_HALVES = where(pc.field("v") > -500, select("s", x=pc.field("x") * 0.5, v=pc.field("v") - pc.field("k")))


# Each is compiled once and cached: a fixed list, in which every kind of window has its place.
PLANS = {
    "tumbling count": plan(count_window(4), ["k"], mean=agg.avg("x"), n=agg.count_all(), least=agg.min("v")),
    "tumbling count, strings": plan(count_window(3), ["s"], last=agg.last("s"), spread=agg.stddev("x")),
    "sliding count": plan(count_window(6, advance=2), ["k"], total=agg.sum("v"), most=agg.max("x")),
    "tumbling time": plan(time_window(10), ["s"], total=agg.sum("x"), first=agg.first("v"), n=agg.count("x")),
    "sliding time": plan(time_window(12, advance=4), ["k"], mean=agg.avg("x"), least=agg.min("s")),
    "session": plan(session_window(5), ["s"], total=agg.sum("x"), spread=agg.variance("x"), last=agg.last("v")),
    "session, where": plan(
        session_window(5),
        ["k"],
        total=agg.sum("x", where=pc.field("x") > 0),
        first=agg.first("s", where=pc.field("x") > 0),
        last=agg.last("v", where=pc.field("v") < 500),
    ),
    "session, sketches": plan(
        session_window(5),
        ["k"],
        few=agg.count_distinct("s", exact_up_to=2),
        distinct=agg.count_distinct("v", where=pc.field("v") > 0),
        median=agg.percentile("x", 0.5, exact_up_to=3),
    ),
    "sliding time, sketches": plan(
        time_window(12, advance=4), ["s"], high=agg.percentile("v", 0.9), n=agg.count_distinct("v"), total=agg.sum("x")
    ),
    # The same kernels behind stateless work.
    "where, count": plan(
        count_window(4), ["k"], where(pc.field("x") > -0.3), mean=agg.avg("x"), n=agg.count_all(), least=agg.min("v")
    ),
    "select and where, session": plan(
        session_window(5), ["s"], _HALVES, total=agg.sum("x"), spread=agg.variance("x"), last=agg.last("v")
    ),
}
FAILING = plan(
    count_window(6, advance=2),
    ["k"],
    select("k", v=pc.field("v") / (pc.field("v") / 300), x="x"),
    total=agg.sum("v"),
    most=agg.max("x"),
)
"""Divides by zero now and then: such tuples are set aside, or stop it."""


def struct(columns: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Columns as a schema in Spark's JSON."""
    return {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns]}


def input_spec(key: Sequence[str], partitions_: int = 1) -> StreamSpec:
    """What the input stream is."""
    return _input_spec(tuple(key), partitions_)


@cache
def _input_spec(key: tuple[str, ...], partitions_: int) -> StreamSpec:
    return StreamSpec("input", struct([*COLUMNS.items()]), key, "t", partitions_, LATENESS)


def output_spec(p: AggregateDefinition, partitions_: int = 1, input_path: str = "") -> StreamSpec:
    """What the operator's stream is."""
    return StreamSpec(
        "output",
        struct(p.result_columns),
        tuple(c for c, _ in p.key),
        p.result_time,
        partitions_,
        lateness=0,
        operator={**p.to_json(), "footprints": [list(c) for c in p.control_columns]},
        upstream={"stream": "input", "path": input_path} if input_path else None,
    )


class Tuples:
    """A source of rows whose times wander upwards, none of them late."""

    def __init__(
        self,
        rng: Random,
        keys: int = 5,
        big: float = 0.0,
        lateness: int = LATENESS,
        pace: float = 0.4,
        skew: int = 1,
    ) -> None:
        self._rng = rng
        self._lateness = lateness
        self._pace = pace
        """By how much time goes on from tuple to tuple."""
        self._skew = skew
        """How much more often some keys come than others; 1: not at all."""
        self._big = big
        """How many of the values are so large that sums of them overflow."""
        self._keys = keys
        self._now = 0
        self._time_max: int | None = None
        self._promised = -(10**9)

    @property
    def now(self) -> int:
        """How far time has come."""
        return self._now

    def heartbeat(self, at_least: int = 0) -> int:
        """A boundary before which no row will follow: time goes on, perhaps faster than the rows."""
        self._now = max(at_least, self._now + self._rng.randint(0, 6))
        self._promised = max(self._promised, self._now - self._rng.randint(0, self._lateness))
        return self._promised

    def rows(self, count: int) -> list[Row]:
        """Some more rows; they are to be appended in one commit."""
        rng = self._rng
        floor = max(self._promised, -(10**9) if self._time_max is None else self._time_max - self._lateness)
        rows: list[Row] = []
        for _ in range(count):
            self._now += rng.random() < self._pace
            key = rng.randrange(self._keys) if self._skew == 1 else int(rng.random() ** self._skew * self._keys)
            rows.append(
                {
                    "k": None if key == 0 else key,
                    "s": None if key == 0 else f"{'key' * (key % 9)}{key}",
                    "v": None if rng.random() < 0.1 else self._value(),
                    "x": None if rng.random() < 0.1 else rng.uniform(-1.0, 1.0),
                    "t": max(floor, self._now + rng.randint(-self._lateness, 2)),
                }
            )
        if rows:
            self._time_max = max([r["t"] for r in rows] + ([] if self._time_max is None else [self._time_max]))
        return rows

    def _value(self) -> int:
        if self._big and self._rng.random() < self._big:
            return self._rng.choice([-(1 << 62), 1 << 62])
        return self._rng.randrange(-1000, 1000)

    def batch(self, count: int, partitions_: int) -> dict[int, list[Row]]:
        """Some more rows, spread over partitions by their key."""
        batch: dict[int, list[Row]] = {p: [] for p in range(partitions_)}
        for row in self.rows(count):
            batch[(row["k"] or 0) % partitions_].append(row)
        return batch


def write_rows(log: Log, partition: int, first: int, rows: Sequence[Row], name: str) -> Block:
    """A block that no manifest names yet."""
    columns = [pa.array([r[f.name] for r in rows], f.type) for f in log.spec.arrow]
    data = blocks_.encode_parts([(Kind.RESULT, columns)], log.spec, first)
    file = log.spec.file(partition, first, name)
    block = blocks_.describe(data, log.spec, partition, first, file)
    log.storage.create(file, data)
    return block


def append_rows(log: Log, batch: Mapping[int, Sequence[Row]], boundary: int | None = None) -> None:
    """One commit of the input; with a boundary, it says that nothing before that will follow."""
    base = log.state
    blocks = [
        write_rows(log, p, base.ends[p], rows, f"commit{base.seq + 1}") for p, rows in sorted(batch.items()) if rows
    ]
    log.append(Append(blocks, boundaries=None if boundary is None else base.boundaries_until(boundary)), base=base)


def steps_of(batch: InputBatch, output: LogState, attempt: str) -> list[Step]:
    """Returns the steps of a batch, one a partition."""
    pairs = enumerate(batch.slices)
    before = [*output.standings] or [None] * len(batch.slices)
    return [Step(p, before[p], output.ends[p], taken, f"{attempt}-{p}", 0) for p, taken in pairs]


class Streams:
    """An input, an operator, its output, and the state cache of each partition."""

    def __init__(
        self,
        p: AggregateDefinition,
        cache_of: Callable[[int], StateCache],
        partitions_: int = 1,
        storages: tuple[Storage, Storage] | None = None,
        clock: Clock | None = None,
        on_error: OnError = "stop",
    ) -> None:
        self.plan = p
        self.on_error = on_error
        self.clock = clock or ManualClock(1_000_000)
        self.input_storage, self.output_storage = storages or (MemoryStorage(self.clock), MemoryStorage(self.clock))
        keys = [c for c, _ in p.key]
        self.input = Log.create(self.input_storage, input_spec(keys, partitions_), self.clock)
        path = "" if self.input_storage.local_path("x") is None else self.input_storage.url
        self.output = Log.create(self.output_storage, output_spec(p, partitions_, path), self.clock)
        self.cache_of = cache_of
        self.batches = 0

    def append(self, *batches: Sequence[Row] | Mapping[int, Sequence[Row]]) -> None:
        """One commit of the input each."""
        for batch in batches:
            append_rows(self.input, batch if isinstance(batch, Mapping) else {0: batch})

    def run_steps(self, steps: Sequence[Step], policy: Policy) -> list[Done]:
        """One after the other, as tasks would."""
        done = []
        for s in steps:
            cache = self.cache_of(s.partition)
            try:
                element = Element(self.plan, policy, self.on_error)
                done.append(step.run(s, element, Logs(self.output, (self.input,)), cache, self.clock))
            finally:
                cache.close()
        return done

    def batch(self, policy: Policy | None = None, tuples_max: int = 1) -> list[Done]:
        """Takes in the next commit (or more) of the input and publishes; empty if there is none."""
        self.batches += 1
        chosen = policy or cec(extent="2x", replay=1_000_000)
        return run_batch(
            Element(self.plan, chosen, self.on_error, tuples_max),
            (self.input,),
            self.output,
            lambda steps: self.run_steps(steps, chosen),
            Writer("query", "run", self.batches),
            self.clock,
        )

    def drain(self, policy: Policy | None = None, tuples_max: int = 1) -> list[list[Done]]:
        """Takes in all that the input has."""
        batches = []
        while done := self.batch(policy, tuples_max):
            batches.append(done)
        return batches

    def results(self, partition: int = 0) -> pa.Table:
        """What the output has, ready to be compared."""
        return published_results(self.output, partition)


# ---------------------------------------------------------------------- comparing


def bits(table: pa.Table) -> pa.Table:
    """Doubles as the integers that have their bits, so that equal tables are equal to the last bit."""
    columns = [
        _one(c).view(pa.int64()) if pa.types.is_float64(c.type) else _one(c) for c in table.combine_chunks().columns
    ]
    return pa.table(columns, names=table.column_names)


def _one(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def published_results(log: Log, partition: int, first: int | None = None) -> pa.Table:
    """The results of a partition in their order, as bits."""
    names = list(log.spec.columns)
    tables = [log.spec.arrow.empty_table()]
    for table in log.read(partition, first, columns=names):
        tables.append(only_results(table).select(names))
    return bits(pa.concat_tables(tables))


def rows_table(rows: Sequence[Row], first: int = 0) -> pa.Table:
    """Input tuples as an operator reads them, with offsets of their own, or from `first` on."""
    spec = input_spec(["k"])
    columns = [pa.array([r[f.name] for r in rows], f.type) for f in spec.arrow]
    offsets = pa.array([row.get("_offset", first + m) for m, row in enumerate(rows)], pa.int64())
    return pa.table([*columns, offsets], names=[*spec.arrow.names, "_offset"])


def uninterrupted(p: AggregateDefinition, rows: Sequence[Row], boundary: int | None) -> pa.Table:
    """The results of one operator that takes in everything in one step, as bits."""
    return uninterrupted_and_aside(p, rows, boundary)[0]


def uninterrupted_and_aside(
    p: AggregateDefinition, rows: Sequence[Row], boundary: int | None
) -> tuple[pa.Table, list[Row]]:
    """The same, and what it sets aside."""
    operator = p.fresh("set_aside")
    operator.begin()
    found = list(operator.feed([rows_table(rows)])) if rows else []
    if p.has_times and boundary is not None and (due := operator.advance(boundary)):
        found.append(due)
    schema = _result_schema(tuple(p.result_columns))
    results = pa.concat_tables([schema.empty_table(), *(pa.Table.from_arrays(c, schema=schema) for c in found)])
    return bits(results), [
        row for tables in operator.aside.tables.values() for table in tables for row in table.to_pylist()
    ]


@cache
def _result_schema(columns: tuple[tuple[str, str], ...]) -> pa.Schema:
    return arrow_schema(struct(columns))


def set_aside(log: Log) -> dict[str, list[Row]]:
    """What the side log of an operator's stream holds, by reason, in the columns of footprints."""
    found: dict[str, list[Row]] = {}
    for block in log.blocks(log.spec.late):
        found.setdefault(block.reason, []).extend(log.read_block(block).drop_columns(["_offset", "_kind"]).to_pylist())
    return found


def identity(p: AggregateDefinition) -> list[str]:
    """The columns that tell windows apart: a session's start may move, so it goes by the tuple that opened it."""
    return [*(c for c, _ in p.key), "_opened", *([] if p.is_session else ["window_start"])]


def windows_of(p: AggregateDefinition, state: WindowState) -> dict[tuple[Any, ...], Row]:
    """The open windows by what tells them apart, each with its state and its last footprint."""
    records = state.arrays.records[: state.arrays.header[USED]]
    records = records[records[:, OPENED] >= 0]
    columns = Columns(p, records, state.arrays, NO_BATCH).footprints(state.open_windows)
    names = [c for c, _ in [*p.result_columns, *p.control_columns]]
    table = bits(pa.table(columns, names=names)).append_column("position", pa.array(records[:, POS]))
    found = {tuple(row[c] for c in identity(p)): row for row in table.to_pylist()}
    assert len(found) == state.open_windows
    return found
