"""One seed, one run: replicas of an operator that fail each in its own way, and a reader of whichever is there.

What may happen, as often as the seed says:

    inputs stay away, for all replicas or for one of them, so that one guesses what another knows
    replicas are killed at any storage call, stop for a while, lag, lose their disks and begin anew, or never come back
    their streams are compacted; the reader cannot reach one of them
    the reader dies at any storage call, and goes on from what it has kept

What must hold, of every partition (5 of docs/how-availability-works.md):

    stable results are those of an operator to which nothing happened, to the bit, each once and in order
    behind a change of replicas no guess is older than one that was shown and counts
    an undo voids something, reconciliation done follows something tentative, and in the end nothing tentative counts
    as long as one replica lives, the reader gets to the end
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from unittest import mock

import pyarrow as pa

from strandline.checkpoint.policy import cec, instant
from strandline.clock import ManualClock
from strandline.errors import StorageError
from strandline.inputs.replicas.replica_place import ReplicaPlace
from strandline.inputs.replicas.replica_reader import ReplicaReader
from strandline.inputs.replicas.replica_set import ReplicaSet
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep.compaction import compact
from strandline.running import batch, step
from strandline.running import tick as ticks
from strandline.running.element import Element
from strandline.running.fork import Caches
from strandline.running.promise import Promise
from strandline.running.step import Logs
from strandline.running.tick import Operation, Work, Worked
from strandline.running.watch import Watch
from strandline.testing import Crash, FaultPlan, FaultyStorage, MemoryStorage
from strandline.units import END_OF_TIME
from tests.simulation.clock_set_by_hand import set_the_clock
from tests.simulation.failing_inputs import FailingInputs, Network, ReachableFolder
from tests.simulation.machines import Folder, Machine
from tests.simulation.operator_world import Violation, require, small_index, small_state
from tests.simulation.shown_results import Shown
from tests.simulation.simulated_operators import (
    SimulatedOperator,
    some_aggregate,
    some_operator_over_several,
    spec_of_output,
)
from tests.simulation.simulated_stateless import some_stateless
from tests.simulation.stopwatch import stopwatch
from tests.support.operator_streams import bits

TICK_S = 0.1
TICK_US = 100_000
PATIENCE = 8
"""Of the reader, in ticks."""

__all__ = ["Violation", "run"]


def run(seed: int) -> ReplicasWorld:
    """Runs the seed; returns the world as it is in the end."""
    rng = Random(seed)
    with small_index(Random(seed)), small_state(Random(seed)):
        world = ReplicasWorld(rng, _some_operator(rng))
        with world.named():
            world.run()
        return world


def _some_operator(rng: Random) -> SimulatedOperator:
    chance = rng.random()
    if chance > 0.93:
        return some_stateless(rng, rng.choice([2, 3]))
    if chance < 0.6:
        return some_aggregate(rng, rng.choice([2, 3]), is_compared_with_plain=False)
    return some_operator_over_several(rng, is_compared_with_plain=False)


class Replica:
    """One of them: a driver that lives or not, its machines, and where its stream lies."""

    def __init__(self, world: ReplicasWorld, number: int) -> None:
        self.world = world
        self.name = f"replica{number}"
        self.network = Network()
        """What it can reach of the inputs."""
        rng = world.rng
        self.policy = rng.choice([cec(), cec(replay=rng.choice([0, 20])), cec(extent=7), instant("300 ms")])
        if not world.operator.definition.keeps_state:
            self.policy = cec()
        self.machines = [[Machine(None, rng) for _ in ("stable", "fork")] for _ in range(world.partitions)]
        self.begun = self.lives = 0
        self.output: Log | None = None
        self.dead_until = rng.choice([0, 0, 0, 15])
        self.cut_until = self.lags_until = 0

    def start(self) -> None:
        """A process, which begins the stream if there is none."""
        world, rng = self.world, self.world.rng
        self.lives += 1
        faults = FaultPlan(crash_at_call=rng.randint(1, 900), crash_after=rng.random() < 0.5)
        storage = world.faulty.other_process(faults if world.may_fail and rng.random() < 0.5 else FaultPlan())
        with mock.patch.object(self.network, "cut_off", set()):
            self.inputs = tuple(
                Log.open(ReachableFolder(storage, log.spec.id, self.network), world.clock) for log in world.source.logs
            )
        folder = Folder(storage, self.name)
        if not folder.exists("stream.json"):
            self.begun += 1
            Log.create(folder, world.spec(f"{self.name}-{self.begun}"), world.clock)
        self.output = Log.open(folder, world.clock)
        known = [log.state.boundary for log in self.inputs]
        self.watch = Watch.resumed(known, self.output.state.outage, world.clock.steady_us(), world.promise.bound_us)

    def tick(self) -> None:
        """It takes a step, if it lives and is not late."""
        world = self.world
        if world.may_fail:
            self._fail()
        self.network.cut_off = set(world.source.network.cut_off)
        if world.ticks < self.cut_until:
            self.network.cut_off.add(f"input{world.ticks % 3 and world.source.many - 1}")
        if world.ticks < self.dead_until or world.ticks < self.lags_until:
            return
        try:
            if self.output is None:
                self.start()
            self._step()
        except Crash:
            self._die(world.rng.choice([1, 4, 20]))

    def _fail(self) -> None:
        world, rng = self.world, self.world.rng
        chance = rng.random()
        if chance < 0.02:
            self._die(rng.choice([2, 10, 30]))
        elif chance < 0.03:
            self._die(rng.choice([2, 10]))
            self._lose_disk()
        elif chance < 0.05:
            self.lags_until = world.ticks + rng.choice([3, 12, 25])
        elif chance < 0.08:
            self.cut_until = world.ticks + rng.choice([3, 10, 25])

    def _die(self, many: int) -> None:
        self.output = None
        self.dead_until = self.world.ticks + many
        for machine in (one for both in self.machines for one in both):
            if self.world.rng.random() < 0.3:
                machine.lose()

    def _lose_disk(self) -> None:
        self.world.lost += 1
        folder = Folder(self.world.faulty.other_process(), self.name)
        for listed in list(folder.list("")):
            folder.delete(listed.key)
        for machine in (one for both in self.machines for one in both):
            machine.lose()

    def _step(self) -> None:
        world = self.world
        assert self.output is not None
        element = Element(world.operator.definition, self.policy, "set_aside", 100_000)
        operation = Operation(element, world.promise, element.input(self.inputs), self.output, world.clock)
        writer = Writer("query", f"run{self.lives}", world.ticks)
        self.watch = operation.tick(self.watch, lambda works: self._run_all(works, element), writer).watch
        if world.rng.random() < 0.05:
            other = Log.open(Folder(world.faulty.other_process(), self.name), world.clock)
            compact(other, target_bytes=world.rng.choice([100, 100_000]), blocks_min=2, unique=world.unique)

    def _run_all(self, works: Sequence[Work], element: Element) -> list[Worked]:
        assert self.output is not None
        found = []
        for work in works:
            caches = Caches(*(machine.cache() for machine in self.machines[work.partition]))
            found.append(ticks.run(work, element, Logs(self.output, self.inputs), caches, self.world.clock))
        return found


class ReplicasWorld:
    """The disk, the clock, the replicas and the reader."""

    def __init__(self, rng: Random, operator: SimulatedOperator) -> None:
        self.rng = rng
        self.operator = operator
        self.clock = ManualClock(1_000_000)
        self.partitions = rng.choice([1, 1, 2])
        modes = ["process", "process", "delay", "suspend"]
        self.promise = Promise(rng.choice([2, 4]) * TICK_US, rng.choice(modes), rng.choice(modes))  # type: ignore[arg-type]
        self.faulty = FaultyStorage(MemoryStorage(self.clock), rng, clock=self.clock)
        self.source = FailingInputs(rng, operator, self.partitions, lambda s: self._create(s.id, s), None)
        self.names = self.ticks = self.changes = self.lost = self.tentative = self.deaths = 0
        self.may_fail = True
        self.replicas = [Replica(self, number) for number in range(rng.choice([2, 2, 3]))]
        self.network = Network()
        """What the reader can reach of the replicas."""
        self.reader: ReplicaReader | None = None
        self.shown = [Shown() for _ in range(self.partitions)]
        self.kept: ReplicaPlace | None = None
        self.last: str | None = None
        """The stream that the last table came from."""

    def _create(self, name: str, spec: StreamSpec) -> Log:
        return Log.create(Folder(self.faulty.other_process(), name), spec, self.clock)

    def spec(self, name: str) -> StreamSpec:
        """What a replica's stream is."""
        return replace(spec_of_output(self.operator, self.source.logs), id=name)

    def unique(self) -> str:
        self.names += 1
        return f"attempt{self.names}"

    @contextmanager
    def named(self) -> Iterator[None]:
        """Names of attempts are numbers; steps stop where they want, or not."""
        unique = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=self.unique()))
        windows_max = self.rng.choice([5, 1 << 20])
        self.is_fast = windows_max > 5
        with (
            stopwatch(),
            mock.patch.object(ticks, "uuid", unique),
            mock.patch.object(batch, "uuid", unique),
            mock.patch.object(step, "WINDOWS_MAX", windows_max),
        ):
            yield

    # ------------------------------------------------------------------ what happens

    def run(self) -> None:
        """A time in which everything fails, and one in which at least one replica lives."""
        # Most runs are short, so that there are many; what takes several failures needs the longer ones.
        for _ in range(self.rng.randint(10, 30 if self.rng.random() < 0.85 else 80)):
            self._tick()
        self.may_fail = False
        self.network.cut_off.clear()
        gone = self.rng.choice([None, None, *self.replicas])
        for replica in self.replicas:
            replica.dead_until = replica.lags_until = replica.cut_until = 0
        if gone is not None:
            gone.output, gone.dead_until = None, 1 << 30
        for _ in range(5):
            self._tick()
        self.source.finish()
        last = self.ticks + 400
        while self.reader is None or not self.reader.is_done:
            require(self.ticks < last, "the reader never gets to the end")
            self._tick(feeds=False)
        self._check_end()

    def _tick(self, *, feeds: bool = True) -> None:
        rng = self.rng
        self.ticks += 1
        self.clock.advance(TICK_S)
        set_the_clock(self.clock, self.ticks)
        if feeds:
            self.source.tick(self.ticks, may_fail=self.may_fail)
        for replica in rng.sample(self.replicas, len(self.replicas)):
            replica.tick()
        if self.may_fail and rng.random() < 0.05:
            self.network.cut_off ^= {rng.choice(self.replicas).name}
        if rng.random() < 0.7:
            with suppress(Crash):
                self._read()
                return
            self.reader, self.deaths = None, self.deaths + 1

    # ------------------------------------------------------------------ the reader

    def _read(self) -> None:
        if self.reader is None and not self._start_reader():
            return
        assert self.reader is not None
        stops = self.rng.random() < 0.1
        for table in self.reader.poll():
            self._take(table)
            place = self.reader.place
            assert place is not None
            self.kept = ReplicaPlace.from_json(place.to_json())
            if stops and self.rng.random() < 0.5:
                return
        if self.may_fail and self.rng.random() < 0.03:
            self.reader = None

    def _start_reader(self) -> bool:
        rng = self.rng
        faults = FaultPlan(crash_at_call=rng.randint(1, 600), crash_after=rng.random() < 0.5, transient=0.002)
        storage = self.faulty.other_process(faults if self.may_fail and rng.random() < 0.6 else FaultPlan())

        def opener(name: str) -> Log:
            return Log.open(ReachableFolder(storage, name, self.network), self.clock)

        openers = [lambda name=replica.name: opener(name) for replica in self.replicas]
        try:
            found = ReplicaSet(openers, clock=self.clock, patience_us=PATIENCE * TICK_US)
        except StorageError:
            return False  # nobody is there
        self.reader = ReplicaReader(found, self.kept)
        return True

    def _take(self, table: pa.Table) -> None:
        """What the user does with what is told: what must hold is checked here."""
        assert self.reader is not None
        assert self.reader.place is not None
        (p,) = set(table.column("_partition").to_pylist())
        own, columns = self.shown[p], list(self.spec("any").columns)
        if self.last is not None and self.last != self.reader.place.stream:
            self.changes += 1
            for shown in self.shown:
                shown.change_over()
        self.last = self.reader.place.stream
        own.take(table, columns, self.spec("any").time)
        self.tentative += table.column("_kind").to_pylist().count("tentative")

    def _check_end(self) -> None:
        for p, own in enumerate(self.shown):
            own.check_end()
            tuples = self.source.placed(p, self.source.there(p, None, END_OF_TIME, frozenset()))
            right = self.operator.expected(tuples, END_OF_TIME).results
            found = bits(pa.concat_tables([self.spec("any").arrow.empty_table(), *own.stable]))
            require(found.equals(right), "partition", p, "showed", found.to_pylist(), "and not", right.to_pylist())
