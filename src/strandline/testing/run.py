"""An operator of a test: the real kernels, policies and recovery, a step whenever the test says so, no Spark."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from strandline.errors import OptionError
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.operators.operator import OnError
from strandline.recovery.stream_definition import output_spec
from strandline.running import step
from strandline.running.element import TUPLES_MAX, Element
from strandline.running.since import SinceOption, begun, since_of
from strandline.running.state.live_operators import LIVE
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import run_batch
from strandline.spark.describe.operator_description import OperatorDescription
from strandline.spark.describe.stateless import StatelessWork
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
        self.clock = clock
        element = Element(operator.definition, operator.policy, on_error, tuples_max)
        self._steps = 0
        self._folder = tempfile.TemporaryDirectory(prefix="strandline-testing-")
        """Where the state lies between two steps; goes with this object."""
        self.recoveries = 0
        """How often the state of a partition was recovered."""
        spec = output_spec(operator.definition, sources[0]._input_spec)
        upstream = upstream_of([Origin(s._input_spec.id, s._input_place.url) for s in sources])
        inputs = [source._input_spec for source in sources]
        asked = since_of(since, inputs, dt.UTC, element)
        spec = begun(replace(spec, upstream=upstream), asked, self._inputs, element)
        self._element = replace(element, begins=spec.begins)
        super().__init__(Log.create(MemoryStorage(clock), spec, clock))

    def step(self) -> pa.Table:
        """Takes in all that the source has, and returns the results that came of it.

        Of several sources: all that is before the time up to which each of them is known.
        """
        for source in self._sources:
            if isinstance(source, Feed):
                source.pass_time()
            source.input_log.refresh()
        before = self._log.state.seq
        while run_batch(
            self._element,
            self._inputs,
            self._log,
            self._run_steps,
            Writer("run", "run", self._steps),
            self.clock,
        ):
            self._steps += 1
        return self._published_after(before)

    @property
    def _inputs(self) -> tuple[Log, ...]:
        return tuple(source.input_log for source in self._sources)

    def crash(self) -> None:
        """Loses everything but the streams: the next step recovers from them."""
        for partition in range(self._log.spec.partitions):
            LIVE.drop(str(Path(self._folder.name) / str(partition)))
        for path in Path(self._folder.name).iterdir():
            shutil.rmtree(path)
        self._log = Log.open(self._log.storage, self.clock)

    @property
    def results(self) -> pa.Table:
        """All results so far, step by step, then by partition."""
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

    def _run_steps(self, steps: Sequence[Step]) -> list[Done]:
        return [self._run_step(s) for s in steps]

    def _run_step(self, s: Step) -> Done:
        cache = StateCache(Path(self._folder.name) / str(s.partition))
        try:
            done = step.run(s, self._element, Logs(self._log, self._inputs), cache, self.clock)
        finally:
            cache.close()
        self.recoveries += done.recovery is not None
        return done


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
    described = operator._operator()
    sources = [source for source in described.inputs if isinstance(source, Feed | Run)]
    if len(sources) < len(described.inputs):
        raise OptionError(
            "this operator does not stand on a stream of sl.testing",
            todo="build it on sl.testing.stream(…), or on another sl.testing.run(…)",
        )
    return Run(described, sources, sources[0].clock, on_error, max_tuples_per_batch or TUPLES_MAX, since)
