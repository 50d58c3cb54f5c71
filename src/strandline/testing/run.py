"""An operator of a test: the real kernels, policies and recovery, a step whenever the test says so, no Spark."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline.control_columns import KIND, OFFSET, PARTITION
from strandline.errors import OptionError
from strandline.inputs.stream_definition import output_spec
from strandline.log.operator_state.guesses import guesses_of
from strandline.log.operator_state.outage import Outage, State
from strandline.log.operator_state.upstream import upstream_of
from strandline.log.reading.tentative_results import changes, is_counting
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.operators.operator import OnError
from strandline.running import tick as ticks
from strandline.running.element import TUPLES_MAX, Element
from strandline.running.fork import Caches
from strandline.running.since import SinceOption, begun, since_of
from strandline.running.state.live_operators import LIVE
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Logs
from strandline.running.tick import Operation, Work, Worked
from strandline.running.watch import Watch
from strandline.spark.describe.operator_description import OperatorDescription
from strandline.spark.describe.stage import Stage
from strandline.spark.describe.stateless import StatelessWork
from strandline.spark.operator.partition_input import PartitionInput
from strandline.testing.feed import Feed
from strandline.testing.hand_clock import HandClock
from strandline.testing.memory_storage import MemoryStorage
from strandline.testing.memory_stream import MemoryStream


class Run(MemoryStream):
    """An operator and its output stream, on which further operators can be built."""

    def __init__(
        self,
        operator: OperatorDescription[Any],
        sources: Sequence[MemoryStream],
        clock: HandClock,
        on_error: OnError,
        tuples_max: int,
        since: SinceOption = None,
    ) -> None:
        self._sources = tuple(sources)
        self._streams = operator._streams_of(sources)
        self.clock = clock
        element = Element(operator.definition, operator.policy, on_error, tuples_max)
        self._promise = operator.promise
        self._steps = 0
        self._folder = Path(tempfile.mkdtemp(prefix="strandline-testing-"))
        """Where the state lies between two steps; goes with this object."""
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self.recoveries = 0
        """How often the state of a partition was recovered."""
        inputs = [stream._input_spec for stream in self._streams]
        spec = output_spec(operator.definition, inputs[0])
        upstream = upstream_of([stream._origin(stream._input_spec.id) for stream in self._streams])
        asked = since_of(since, inputs, dt.UTC, element)
        spec = begun(replace(spec, upstream=upstream), asked, self._inputs, element)
        self._element = replace(element, begins=spec.begins)
        super().__init__(Log.create(MemoryStorage(clock), spec, clock))
        self._watch = Watch.fresh(len(inputs))

    def step(self) -> pa.Table:
        """Takes in all that the source has, and returns the results that came of it.

        Of several sources: all that is before the time up to which each of them is known. With a bound, a step is one
        look at the inputs: the bound of a tuple runs from the first step that has seen it. Tentative results are not
        among those returned; `tentative` and `changes` have them.
        """
        for source in self._sources:
            if isinstance(source, Feed):
                source.pass_time()
            if self._promise is None:  # else an input that cannot be read is missing
                source.input_log.refresh()
        before = self._log.state.seq
        while self._tick():
            self._steps += 1
        return self._published_after(before)

    def _tick(self) -> bool:
        """Runs one tick, as Spark's driver does; returns whether it has published anything."""
        operation = Operation(self._element, self._promise, self._element.input(self._inputs), self._log, self.clock)
        ticked = operation.tick(self._watch, self._run_all, Writer("run", "run", self._steps))
        self._watch = ticked.watch
        return bool(ticked.done)

    @property
    def _inputs(self) -> tuple[Log, ...]:
        return tuple(_log_of(stream) for stream in self._streams)

    def crash(self) -> None:
        """Loses everything but the streams: the next step recovers from them."""
        for path in self._folder.iterdir():
            LIVE.drop(str(path))
            shutil.rmtree(path)
        self._log = Log.open(self._log.storage, self.clock)
        if self._promise is not None:
            states, now_us = [log.state for log in self._inputs], self.clock.steady_us()
            known, outage = [state.boundary for state in states], self._log.state.outage
            self._watch = Watch.resumed(known, outage, now_us, self._promise.bound_us, states)

    @property
    def results(self) -> pa.Table:
        """All results so far, step by step, then by partition: of an operator with a bound the stable ones."""
        return self.tuples()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The results as dictionaries."""
        rows: list[dict[str, Any]] = self.results.to_pylist()
        return rows

    @property
    def set_aside(self) -> pa.Table:
        """The tuples and windows that could not be computed (with `on_error="set_aside"`), with the reason in
        `_reason`."""
        return self.side_log()

    @property
    def open_windows(self) -> int:
        """How many windows are open now."""
        return sum(s.open for s in self._log.state.standings)

    # ------------------------------------------------------------------ with a bound

    @property
    def state(self) -> State:
        """`STABLE`, `UP_FAILURE` or `STABILIZATION`; without a bound always `STABLE`."""
        return self._outage.state

    @property
    def missing(self) -> list[MemoryStream]:
        """The inputs that are missing."""
        missing = [self._streams[number]._whole_input for number in self._outage.missing]
        return [source for source in self._sources if source in missing]

    @property
    def tentative(self) -> pa.Table:
        """The tentative results that count now, by partition."""
        log, found = self._log, [self._log.spec.arrow.empty_table()]
        for partition in range(log.spec.partitions):
            if (guesses := guesses_of(log, partition)) is not None:
                for table in log.read(partition, guesses.first, guesses.end, list(log.spec.columns)):
                    counting = is_counting(table, guesses, log.spec.time)
                    found.append(table.filter(counting).select(log.spec.columns))
        return pa.concat_tables(found).combine_chunks()

    @property
    def changes(self) -> pa.Table:
        """All that has happened to the results, by partition: as `read_stream(tentative=True)`, with `_kind`,
        `_partition` and `_offset`."""
        log = self._log
        places = [pa.field(KIND, pa.string()), pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64())]
        schema = pa.schema([*log.spec.arrow, *places])
        found = [schema.empty_table()]
        for partition in range(log.spec.partitions):
            for table in changes(log, partition):
                told = table.append_column(PARTITION, pa.repeat(pa.scalar(partition, pa.int32()), len(table)))
                found.append(told.select(schema.names))
        return pa.concat_tables(found).combine_chunks()

    @property
    def _outage(self) -> Outage:
        return self._log.state.outage or Outage()

    # ------------------------------------------------------------------ as Spark's tasks do it

    def _run_all(self, works: Sequence[Work]) -> list[Worked]:
        return [self._run(work) for work in works]

    def _run(self, work: Work) -> Worked:
        names = (str(work.partition), f"f{work.partition}")
        caches = Caches(*(StateCache(self._folder / name) for name in names))
        try:
            worked = ticks.run(work, self._element, Logs(self._log, self._inputs), caches, self.clock)
        finally:
            for cache in caches:
                cache.close()
        self.recoveries += worked.stable is not None and worked.stable.recovery is not None
        return worked


def _log_of(stream: Any) -> Log:
    log: Log = stream.view_of(_log_of(stream._whole_input)) if isinstance(stream, PartitionInput) else stream.input_log
    return log


def run(
    operator: OperatorDescription[Any] | StatelessWork,
    *,
    since: SinceOption = None,
    on_error: OnError = "stop",
    max_tuples_per_batch: int | None = None,
) -> Run:
    """Makes the operator ready for `step`, over streams of `sl.testing`. Options are those of `start`.

    Times without a zone are UTC.
    """
    _require_operator(operator)
    described = operator._operator()
    sources = [source for source in described.inputs if isinstance(source, Feed | Run)]
    if len(sources) < len(described.inputs):
        raise OptionError(
            "the inputs of this operator are not streams of sl.testing",
            todo="build it on sl.testing.stream(…), or on another sl.testing.run(…)",
        )
    if described.promise is not None:
        _require_one_clock(sources)
    return Run(described, sources, sources[0].clock, on_error, max_tuples_per_batch or TUPLES_MAX, since)


def _require_operator(given: object) -> None:
    if isinstance(given, Stage):
        raise OptionError(
            f"the operator has an output, {given._input_place.url}; in a test its results stay in memory",
            todo="leave out .into(…); build the next operator on what sl.testing.run returns",
        )
    if not isinstance(given, OperatorDescription | StatelessWork):
        raise OptionError(
            f"a {type(given).__name__} is no operator that can be run in a test",
            todo="pass one over sl.testing.stream(…), such as items.window(…).aggregate(…)",
        )


def _require_one_clock(sources: Sequence[Feed | Run]) -> None:
    """Raises `OptionError` if the streams have several clocks: a bound goes by one."""
    if any(source.clock is not sources[0].clock for source in sources):
        raise OptionError(
            "the inputs of an operator with a bound have different clocks, and a bound needs one",
            todo="make one clock for all inputs: clock = sl.testing.HandClock(), then sl.testing.stream(…, "
            "clock=clock)",
        )
