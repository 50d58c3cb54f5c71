"""Several small inputs, an operator over their union and its output, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa

from strandline.checkpoint.policy import Policy, cec
from strandline.clock import ManualClock
from strandline.inputs.input_marks import needs
from strandline.inputs.stream_definition import output_spec
from strandline.log.operator_state.input_mark import Marks
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage import Storage
from strandline.log.stream import quiet
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.partial_log import PartialLog
from strandline.log.upkeep import consumer_registry, retention
from strandline.log.upkeep.compaction import compact
from strandline.operators.operator import Definition, OnError
from strandline.running import step
from strandline.running.element import Element
from strandline.running.state.state_cache import StateCache
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import run_batch
from strandline.testing import MemoryStorage
from tests.support.operator_streams import Row, Tuples, append_rows, input_spec, published_results

CONSUMER = consumer_registry.operator_name("output")


class UnionStreams:
    """Inputs, an operator over them and its output; every tuple that was appended is kept, too."""

    def __init__(
        self,
        definition: Definition,
        inputs: int,
        cache_of: Callable[[int], StateCache],
        partitions: int = 1,
        on_error: OnError = "stop",
        folder: Path | None = None,
    ) -> None:
        """Without a folder, streams are in memory."""
        self._folder = folder
        self.definition = definition
        self.on_error = on_error
        self.clock = ManualClock(1_000_000)
        self.partitions = partitions
        self.cache_of = cache_of
        self.inputs: tuple[Log, ...] = tuple(self._input(i) for i in range(inputs))
        spec = output_spec(definition, self.inputs[0].spec)
        upstream = upstream_of([Origin(log.spec.id, log.storage.url) for log in self.inputs])
        self.output = Log.create(self._storage("output"), replace(spec, id="output", upstream=upstream), self.clock)
        self.rows: list[list[list[Row]]] = [[[] for _ in range(partitions)] for _ in range(inputs)]
        """Of each input and partition, by offset."""
        self.batches = 0

    def _input(self, number: int) -> Log:
        spec = replace(input_spec([c for c, _ in self.definition.key], self.partitions), id=f"input{number}")
        return Log.create(self._storage(f"input{number}"), spec, self.clock)

    def _storage(self, name: str) -> Storage:
        return MemoryStorage(self.clock) if self._folder is None else LocalStorage(self._folder / name, "os")

    def append(self, number: int, batch: Mapping[int, Sequence[Row]]) -> None:
        """One commit of an input."""
        append_rows(self.inputs[number], batch)
        for p, rows in batch.items():
            self.rows[number][p] += rows

    def finish(self) -> None:
        """Nothing will follow in any input."""
        for log in self.inputs:
            quiet.finish(log, "run")

    def reopen(self) -> None:
        """As another process finds the logs."""
        self.inputs = tuple(Log.open(log.storage, self.clock) for log in self.inputs)
        self.output = Log.open(self.output.storage, self.clock)

    def batch(self, policy: Policy | None = None, tuples_max: int = 1) -> list[Done]:
        """Takes in some of what is new and publishes; empty if there is nothing."""
        self.batches += 1
        element = Element(self.definition, policy or cec(extent="2x", replay=1_000_000), self.on_error, tuples_max)
        element.input(self.inputs).require_same(self.output.state.standings)
        return run_batch(
            element,
            self.inputs,
            self.output,
            lambda steps: [self._run(s, element) for s in steps],
            Writer("query", "run", self.batches),
            self.clock,
        )

    def drain(self, policy: Policy | None = None, tuples_max: int = 1) -> None:
        """Takes in all that can be taken in."""
        while self.batch(policy, tuples_max):
            pass

    def _run(self, s: Step, element: Element) -> Done:
        """As a task does: with nothing but the blocks of this step."""
        cache = self.cache_of(s.partition)
        try:
            output = PartialLog(self.output.storage, self.output.spec)
            logs = Logs(output, self._shares(s, element), lambda: (self.output, self.inputs))
            return step.run(s, element, logs, cache, self.clock)
        finally:
            cache.close()

    def _shares(self, s: Step, element: Element) -> tuple[Log, ...]:
        chosen = element.input(self.inputs).blocks(s.slice, s.partition)
        return tuple(PartialLog(log.storage, log.spec, blocks) for log, blocks in zip(self.inputs, chosen, strict=True))

    @property
    def marks(self) -> list[Marks]:
        """Where the operator stands."""
        return [s.marks for s in self.output.state.standings if s.marks is not None]

    def tidy(self, rng: Random) -> None:
        """Compacts inputs, and truncates them as far as the operator lets go of them."""
        for number, log in enumerate(self.inputs):
            if self.marks:
                consumer_registry.register(log, CONSUMER, needs(self.marks, number))
                if rng.random() < 0.5:
                    retention.truncate(log, before_offset=dict(enumerate(needs(self.marks, number))))
            compact(log, target_bytes=rng.choice([2_000, 20_000]), blocks_min=2)
            retention.collect(log, grace_us=0)
            retention.collect(log, grace_us=0)

    def results(self, partition: int) -> pa.Table:
        """What the output has, ready to be compared."""
        return published_results(self.output, partition)

    def serialised(self, partition: int) -> list[Row]:
        """Every tuple in the order in which the operator has to take it in."""
        every = [
            (row["t"], number, offset, row)
            for number, own in enumerate(self.rows)
            for offset, row in enumerate(own[partition])
        ]
        return [row for *_, row in sorted(every, key=lambda found: found[:3])]


class UnionStory:
    """What happens to inputs and operator, told by a generator of random numbers."""

    def __init__(self, rng: Random, streams: UnionStreams) -> None:
        self._rng = rng
        self._streams = streams
        self._tuples = [Tuples(Random(rng.random()), keys=rng.choice([2, 5])) for _ in streams.inputs]

    def grow(self) -> None:
        """Something happens to one of the inputs: tuples, perhaps many, or only time."""
        number = self._rng.randrange(len(self._tuples))
        if self._rng.random() < 0.2:
            quiet.pass_time(self._streams.inputs[number], self._tuples[number].heartbeat(), "run")
        else:
            count = self._rng.choice([1, 5, 40])
            self._streams.append(number, self._tuples[number].batch(count, self._streams.partitions))
