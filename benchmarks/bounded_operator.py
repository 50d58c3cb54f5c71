"""An operator with a bound without Spark: the real tick, logs on disk, the clock on the wall. And what came of it.

What is measured is read from the logs afterwards: when a tuple was published by its stream, and when it was first in a
result, stable or tentative.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

import strandline as sl
from benchmarks.sensors import Numbers, Sensors
from strandline.clock import SYSTEM_CLOCK, Clock
from strandline.inputs.stream_definition import output_spec
from strandline.log.operator_state.outage import State
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage import Durability
from strandline.log.stream.kinds import Kind, only_results
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.operators.operator import Definition
from strandline.running import step as steps
from strandline.running import tick as ticks
from strandline.running.element import TUPLES_MAX, Element
from strandline.running.fork import Caches
from strandline.running.promise import Promise
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import Operation, Ticked, Work, Worked, run_batch
from strandline.running.watch import Watch

NEVER_US = np.iinfo(np.int64).max


class BoundedOperator:
    """An operator over streams on disk, with a stream and states of its own; whoever has it lets it tick."""

    def __init__(
        self,
        folder: Path,
        inputs: Sequence[Path],
        definition: Definition,
        promise: Promise,
        *,
        pace: int | None = None,
        clock: Clock = SYSTEM_CLOCK,
        durability: Durability = "os",
    ) -> None:
        """`pace`: tuples a second that the stable lineage takes in at most; the fork is not held back."""
        self.path = folder / "results"
        self.promise = promise
        self.looked_us: list[int] = []
        """When each tick began to look."""
        self.ticks_s: list[float] = []
        opened = tuple(Log.open(LocalStorage(path, durability=durability), clock) for path in inputs)
        self.output = _created(self.path, definition, opened, clock, durability)
        self._pace = pace
        element = Element(definition, sl.cec(), durability=durability)
        self._operation = Operation(element, promise, element.input(opened), self.output, clock)
        self._watch = Watch.fresh(len(opened))
        partitions = range(self.output.spec.partitions)
        self._caches = [Caches(StateCache(folder / f"s{p}"), StateCache(folder / f"f{p}")) for p in partitions]

    def tick(self) -> Ticked:
        """One look, and what there is to do."""
        self.looked_us.append(self._operation.clock.now_us())
        operation = self._operation
        if self._pace is not None and len(self.looked_us) > 1:
            most = max(1, round(self._pace * (self.looked_us[-1] - self.looked_us[-2]) / 1e6))
            operation = replace(operation, element=replace(operation.element, tuples_max=most))
        began = time.perf_counter()
        ticked = operation.tick(self._watch, self._run, Writer("bench", "bench", len(self.looked_us)))
        self.ticks_s.append(time.perf_counter() - began)
        self._watch = ticked.watch
        return ticked

    def _run(self, works: Sequence[Work]) -> list[Worked]:
        op = self._operation
        logs = Logs(op.output, op.input.logs)
        return [ticks.run(_hurried(w), op.element, logs, self._caches[w.partition], op.clock) for w in works]

    @property
    def state(self) -> State:
        """How it is, as its stream says."""
        outage = self.output.state.outage
        return outage.state if outage else "STABLE"

    @property
    def step_s(self) -> float:
        """The longest time from one look to the next, and the longest tick: a tuple may wait for as long."""
        apart_us = np.diff(self.looked_us) if len(self.looked_us) > 1 else np.zeros(1)
        return float(apart_us.max()) / 1e6 + max(self.ticks_s, default=0.0)


def _hurried(work: Work) -> Work:
    """The same work with a fork that takes in all that is there."""
    if work.fork is None:
        return work
    stable = work.fork.stable
    stable = replace(stable, slice=replace(stable.slice, tuples_max=TUPLES_MAX))
    return replace(work, fork=replace(work.fork, stable=stable))


@dataclass(frozen=True)
class Delays:
    """How long tuples have waited, and how many guesses there were."""

    new_max_s: float
    """Longest time from the publication of a tuple to its first result, of those that no failure has held back."""
    seen_max_s: float
    """The same of all tuples, from when the operator could first see them."""
    tentative: int
    """Tentative tuples that were ever published."""


def delays(output: Log, sensors: Sensors, looked_us: Sequence[int], since_us: int = 0) -> Delays:
    """What a stream of results says of how long each tuple of the sensors took that was published since then."""
    published_us, first_us, tentative = sensors.published_us(), first_results_us(output, sensors), 0
    for manifest in output.after(-1):
        tentative += sum(_tentative(output, block.partition, block.first, block.end) for block in manifest.blocks)
    looks = np.asarray(looked_us, np.int64)
    seen_us = looks[np.minimum(np.searchsorted(looks, published_us), len(looks) - 1)]
    is_there = (first_us < NEVER_US) & (published_us >= since_us)
    is_new = sensors.is_new() & is_there
    return Delays(
        float((first_us - published_us)[is_new].max(initial=0)) / 1e6,
        float((first_us - seen_us)[is_there].max(initial=0)) / 1e6,
        tentative,
    )


def first_results_us(output: Log, sensors: Sensors) -> Numbers:
    """By the number of a tuple, when its first result was published; `NEVER_US` if it has none."""
    found = np.full(len(sensors.published_us()), NEVER_US)
    columns = ["number"] if "number" in output.spec.columns else list(_OF_BOTH)
    for manifest in output.after(-1):
        for block in manifest.blocks:
            for table in output.read(block.partition, block.first, block.end, columns):
                is_shown = np.isin(table.column("_kind").to_numpy(), [Kind.RESULT, Kind.TENTATIVE])
                numbers = _numbers(table.filter(pa.array(is_shown)))
                np.minimum.at(found, numbers, manifest.published_us)
    return found


_OF_BOTH = ("left_number", "right_number", "left_time", "right_time")


def _numbers(results: pa.Table) -> Numbers:
    """Returns the numbers of the tuples that have made the results: of a pair it is the later one, or right."""
    if "number" in results.column_names:
        return np.asarray(results.column("number"))
    left, right, left_time, right_time = (np.asarray(results.column(name)) for name in _OF_BOTH)
    return np.where(left_time > right_time, left, right)


def _tentative(output: Log, partition: int, first: int, end: int) -> int:
    tables = output.read(partition, first, end, [])
    return sum(int((table.column("_kind").to_numpy() == Kind.TENTATIVE).sum()) for table in tables)


def calm_results(folder: Path, inputs: Sequence[Path], definition: Definition) -> Log:
    """The results of an operator without a bound that finds its inputs complete: no failure, no guess."""
    opened = tuple(Log.open(LocalStorage(path)) for path in inputs)
    output = _created(folder / "results", definition, opened, SYSTEM_CLOCK, "os")
    caches = [StateCache(folder / f"s{p}") for p in range(output.spec.partitions)]
    element = Element(definition, sl.cec(), durability="os")

    def run(todo: Sequence[Step]) -> list[Done]:
        logs = Logs(output, opened)
        return [steps.run(step, element, logs, caches[step.partition], SYSTEM_CLOCK) for step in todo]

    while run_batch(element, opened, output, run, Writer("bench", "bench", output.state.seq + 1), SYSTEM_CLOCK):
        pass
    return output


def same_results(one: Log, other: Log) -> bool:
    """Whether two streams have the same stable results, in the same order, to the bit."""
    return all(_bits(one, p) == _bits(other, p) for p in range(one.spec.partitions))


def _bits(log: Log, partition: int) -> list[bytes]:
    names = list(log.spec.columns)
    tables = [only_results(table).select(names) for table in log.read(partition, columns=names)]
    found = pa.concat_tables([log.spec.arrow.empty_table(), *tables])
    return [column.to_numpy().tobytes() for column in found.columns]


def _created(path: Path, definition: Definition, inputs: Sequence[Log], clock: Clock, durability: Durability) -> Log:
    upstream = upstream_of([Origin(log.spec.id, log.storage.url) for log in inputs])
    spec = replace(output_spec(definition, inputs[0].spec), upstream=upstream)
    return Log.create(LocalStorage(path, durability=durability), spec, clock)
