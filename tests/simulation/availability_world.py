"""One seed, one run: an operator with a bound, whose inputs fail and heal while its own process dies and comes back.

What may happen, as often as the seed says:

    the writer of an input dies for a while, and catches up at once or slowly; its storage cannot be reached
    reading an input fails in the middle of a step, of which nothing is published then
    failures overlap, follow each other, and come while a failure is being corrected
    the operator's process dies before or after any storage call; states on its machine are kept, lost, or old
    its output is compacted, its inputs are compacted and truncated as far as it lets go of them
    steps stop in the middle; a fork fails by itself
    some of its lives, or all, have no bound: what was tentative is void, and it waits

What must hold is what `availability_witness` and `delay_witness` say. `chain_world` has some of them in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from unittest import mock

from strandline.checkpoint.policy import cec, instant
from strandline.clock import ManualClock
from strandline.errors import StorageError
from strandline.inputs.input_of import input_of
from strandline.log.operator_state.outage import Outage
from strandline.log.storage.storage import Storage
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.partition_view import PartitionView
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep import consumer_registry
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import truncate
from strandline.running import batch as batches
from strandline.running import fork as forks
from strandline.running import step as steps_
from strandline.running import tick as ticks
from strandline.running.batch import end_outage
from strandline.running.decision import Decision, Situation, decide
from strandline.running.element import Element
from strandline.running.fork import Caches
from strandline.running.promise import Promise
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import Operation, Work, Worked, run_batch
from strandline.running.watch import Watch
from strandline.testing import Crash, FaultPlan, FaultyStorage, MemoryStorage
from tests.simulation.availability_witness import AvailabilityWitness
from tests.simulation.chained_inputs import ChainedInputs
from tests.simulation.clock_set_by_hand import set_the_clock
from tests.simulation.delay_witness import DelayWitness
from tests.simulation.failing_inputs import FailingInputs, ReachableFolder
from tests.simulation.machines import Folder, Machine
from tests.simulation.one_stream_witness import OneStreamWitness
from tests.simulation.operator_world import Violation, require, small_index, small_state
from tests.simulation.rekeyed_inputs import RekeyedInputs, SimulatedRekey, like
from tests.simulation.simulated_classes import some_class
from tests.simulation.simulated_keyed import some_keyed
from tests.simulation.simulated_operators import (
    SimulatedOperator,
    some_aggregate,
    some_operator_over_several,
    spec_of_output,
)
from tests.simulation.simulated_stateless import some_stateless
from tests.simulation.stopwatch import stopwatch

TICK_S = 0.1
TICK_US = 100_000
CONSUMER = "operator"
UNLUCKY = "a guess that nobody can compute with"

__all__ = ["Violation", "run"]


def run(seed: int, folder: Path | None = None, operator: SimulatedOperator | None = None) -> World:
    """Runs the seed, with its operator or another one; with a folder, states are real files. Returns the world as it is
    in the end."""
    rng = Random(seed)
    with small_index(Random(seed)), small_state(Random(seed)):
        world = World(rng, operator or _some_operator(rng), folder)
        with world.named():
            world.run()
        return world


def _some_operator(rng: Random) -> SimulatedOperator:
    """Of every kind; a third are aggregates, which have the most to say when inputs are missing."""
    chance = rng.random()
    if chance < 0.15:
        return replace(some_class(rng), inputs=2)
    if chance < 0.3:
        return replace(some_keyed(rng), inputs=rng.choice([2, 2, 3]))
    if chance > 0.92:
        return some_stateless(rng, rng.choice([2, 2, 3]))
    if chance < 0.55:
        return some_aggregate(rng, rng.choice([2, 2, 2, 3]), is_compared_with_plain=False)
    return some_operator_over_several(rng, is_compared_with_plain=False)


class World:
    """The disk, the clock, the machines, and one driver at a time."""

    def __init__(
        self,
        rng: Random,
        operator: SimulatedOperator,
        folder: Path | None,
        name: str = "output",
        upstream: World | None = None,
        partitions: int | None = None,
    ) -> None:
        """With an operator upstream, its output is the first input, and it lives as this one does.

        `partitions` are those of its results if the operator does not leave them as they are.
        """
        self.rng = rng
        self.operator = operator
        self.name = name
        self.is_upstream = False
        self.clock = upstream.clock if upstream else ManualClock(1_000_000)
        self.partitions = upstream.partitions if upstream else rng.choice([1, 1, 1, 2])
        if partitions is not None:
            self.partitions = partitions
        self.is_short = name == "output" and upstream is None and rng.random() < 0.1
        """No failure is as long as the bound."""
        self.bound = rng.choice([6, 8]) if self.is_short else rng.choice([2, 2, 2, 3, 5])
        """In ticks."""
        modes = [*["process"] * 4, *["delay"] * 4, "suspend"]
        reconcile = rng.choice(["redo", "redo", "undo"])
        self.promise = Promise(
            self.bound * TICK_US,
            rng.choice(modes),  # type: ignore[arg-type]
            rng.choice(modes),  # type: ignore[arg-type]
            reconcile,  # type: ignore[arg-type]
        )
        self._unbound = rng.choice([*[0] * 14, 0.5, 1])
        """How many of its lives have no bound."""
        self.has_bound = True
        self.may_die = not self.is_short and rng.random() < 0.7
        self.is_fast = upstream.is_fast if upstream else rng.random() < 0.6
        """The stable lineage takes in all that it can in one tick."""
        self.tuples_max = 100_000 if self.is_fast or rng.random() < 0.7 else 30
        """The fork takes in as much at most in one tick, too, so that it may be late."""
        policies = [cec(), cec(replay=rng.choice([0, 20])), cec(extent=7), instant("300 ms")]
        self.policy = instant("300 ms") if operator.definition.lives_in_process else rng.choice(policies)
        if not operator.definition.keeps_state:
            self.policy = cec()
        fresh = FaultyStorage(MemoryStorage(self.clock), rng, clock=self.clock)
        self.has_bad_forks = rng.random() < 0.2
        """Forks may fail where the stable lineage does not."""
        self.faulty: FaultyStorage = upstream.faulty if upstream else fresh
        longest = max(0, self.bound - 3) if self.is_short else None  # inputs are up to two ticks apart as it is
        self.source: FailingInputs | ChainedInputs | RekeyedInputs
        if upstream is None:
            self.source = FailingInputs(rng, operator, self.partitions, lambda s: self._create(s.id, s), longest)
        elif isinstance(operator, SimulatedRekey):
            self.source = RekeyedInputs(rng, operator, upstream)
        else:
            self.source = ChainedInputs(rng, operator, upstream, lambda s: self._create(s.id, s))
        self.output = self._create(name, replace(spec_of_output(operator, self.source.logs), id=name))
        self.machines = [
            [Machine(folder and folder / f"{p}{lineage}", rng) for lineage in ("stable", "fork")]
            for p in range(self.partitions)
        ]
        self._breaks = rng.random() < 0.3 and not self.is_short
        """Whether reading an input fails in the middle of a step now and then."""
        self._unread: dict[int, int] = {}
        """By input that could not be read, the tick in which it is tried again."""
        self.names = self.lives = self.ticks = 0
        kind = AvailabilityWitness if operator.definition.is_serialised else OneStreamWitness
        self.witness = kind(self)
        self.delays = DelayWitness(self, self.witness)

    def _create(self, name: str, spec: StreamSpec) -> Log:
        return Log.create(Folder(self.faulty.other_process(), name), spec, self.clock)

    @property
    def outage(self) -> Outage:
        """How the operator is, as its last append says."""
        return self.output.state.outage or Outage()

    @property
    def unreachable(self) -> frozenset[int]:
        """The inputs that cannot be read, or are not tried."""
        return self.source.unreachable | frozenset(self._unread)

    @property
    def never_guesses(self) -> bool:
        """Whether nothing tentative may come of it, ever."""
        return self._unbound == 1 or self.promise.failing == "suspend" or self.is_short

    @property
    def promises(self) -> bool:
        """Whether every tuple has to be in a result in time."""
        has_modes = "suspend" not in (self.promise.failing, self.promise.stabilizing)
        return self.has_bound and has_modes and self.tuples_max > 30

    @contextmanager
    def named(self) -> Iterator[None]:
        """Names of attempts are numbers; steps stop where they want, or not."""
        unique = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=self.unique()))
        windows_max = 1 << 20 if self.is_fast else 5
        with (
            stopwatch(),
            mock.patch.object(ticks, "uuid", unique),
            mock.patch.object(batches, "uuid", unique),
            mock.patch.object(steps_, "WINDOWS_MAX", windows_max),
        ):
            yield

    def _decide(self, situation: Situation, promise: Promise) -> Decision:
        self.decision = decide(situation, promise)
        return self.decision

    def unique(self) -> str:
        self.names += 1
        return f"attempt{self.names}"

    # ------------------------------------------------------------------ lives

    def run(self) -> None:
        """Lives, deaths, and in the end a time in which all is well."""
        rng = self.rng
        # Most runs are short, so that there are many; what takes several failures and recoveries needs the longer ones.
        lives = rng.randint(2, 3) if self.may_die else 1
        longest = 30 if rng.random() < 0.12 else 10 if lives == 1 else 8
        self.source.begin(rng.choice([0, 0, 4]))
        for _ in range(lives):
            with suppress(Crash):
                self._live(rng.randint(4, longest), may_fail=True)
            self._between_lives()
        self.may_die = False
        self._live(rng.choice([1, 1, self.bound + 3]), may_fail=False)
        if self.source.are_alike:
            self._rest(lambda: self.outage.state == "STABLE", feeds=True)
            require(not self.outage.forks, "all is well, and there is a fork")
        self.source.finish()
        self._rest(lambda: self.output.state.finished)
        self.check_end()

    def _rest(self, is_done: Callable[[], bool], *, feeds: bool = False) -> None:
        last = self.ticks + 300
        while not is_done():
            require(self.ticks < last, "it never comes to rest:", self.outage)
            # Whoever takes in little at a time may be no faster than its inputs, and would never be done.
            self._tick(feeds=feeds and (self.is_fast or self.ticks % 3 == 0))

    def _live(self, many: int, *, may_fail: bool) -> None:
        """A process from its start until it dies, or ends."""
        self.start()
        for _ in range(many):
            self._tick(may_fail=may_fail)

    def start(self) -> None:
        """Begins another life."""
        rng = self.rng
        self.lives += 1
        faults = FaultPlan(crash_at_call=rng.randint(1, 120), crash_after=rng.random() < 0.5)
        storage = self.faulty.other_process(faults if self.may_die and rng.random() < 0.8 else FaultPlan())
        self._open(storage)
        self.has_bound = rng.random() >= self._unbound
        if not self.has_bound:
            end_outage(self.output)
        outage = self.output.state.outage
        known = [log.state.boundary for log in self.inputs]
        states = [log.state for log in self.inputs]
        self.watch = Watch.resumed(known, outage, self.clock.steady_us(), self.promise.bound_us, states)
        self.witness.begin()
        self.delays.begin(len(self.inputs))

    def live_on(self, *, may_fail: bool, feeds: bool) -> None:
        """A tick of an operator upstream, which dies and comes back by itself."""
        try:
            self._tick(may_fail=may_fail, feeds=feeds)
        except Crash:
            self._between_lives()
            self.start_at_last()

    def start_at_last(self) -> None:
        """Begins another life, again and again if it dies while it begins."""
        while True:
            with suppress(Crash):
                return self.start()

    def _open(self, storage: Storage) -> None:
        """A driver opens its inputs when it starts: how, if one cannot be reached, is a matter of Spark's part."""
        network = self.source.network
        with mock.patch.object(network, "cut_off", set()):
            self.inputs = tuple(
                like(log, Log.open(ReachableFolder(storage, log.spec.id, network), self.clock))
                for log in self.source.logs
            )
            self.output = Log.open(Folder(storage, self.name), self.clock)

    def _between_lives(self) -> None:
        for machine in (one for both in self.machines for one in both):
            machine.end_processes()
            chance = self.rng.random()
            if chance < 0.45:
                machine.lose()
            elif chance < 0.6:
                machine.go_back()

    def _tick(self, *, may_fail: bool = False, feeds: bool = True) -> None:
        """Time goes on, and the operator takes a step."""
        rng = self.rng
        self.ticks += 1
        if not self.is_upstream:
            self.clock.advance(TICK_S)
            set_the_clock(self.clock, self.ticks)
        if feeds:
            self.source.tick(self.ticks, may_fail=may_fail)
        else:
            self.source.pass_time()
        element = Element(self.operator.definition, self.policy, "set_aside", self.tuples_max)
        if self.has_bound:
            self._tick_in_time(element)
        else:
            with suppress(StorageError):  # tried again, and again
                self._take_a_step(element)
        if rng.random() < 0.1:
            rng.choice([one for both in self.machines for one in both]).copy()
        if rng.random() < 0.06:
            self._tidy_up()

    def _tick_in_time(self, element: Element) -> None:
        """The operator with its bound."""
        base = self.output.state
        self._unread = {number: tick for number, tick in self._unread.items() if self.ticks < tick}
        unread = frozenset(self._unread)
        operation = Operation(element, self.promise, element.input(self.inputs), self.output, self.clock, unread)
        try:
            with mock.patch.object(ticks, "decide", self._decide):
                ticked = operation.tick(self.watch, lambda works: self._run_all(works, element), self._writer())
        except StorageError:
            require(unread != frozenset(self._unread), "something could not be read or written")
            return self.delays.excuse()
        self.watch = ticked.watch
        if ticked.done:
            self.witness.see(base, ticked, self.decision)
            self.delays.see(base.outage or Outage())
            if self.rng.random() < (0.5 if self.outage.forks else 0.05):
                self.witness.check_counted()
        self.delays.check()

    def _take_a_step(self, element: Element) -> None:
        """The same operator without a bound."""
        for log in self.inputs:
            log.refresh()

        def run_steps(works: Sequence[Step]) -> list[Done]:
            caches = [self.machines[work.partition][0].cache() for work in works]
            logs = Logs(self.output, self.inputs)
            pairs = zip(works, caches, strict=True)
            return [steps_.run(work, element, logs, cache, self.clock) for work, cache in pairs]

        run_batch(element, self.inputs, self.output, run_steps, self._writer(), self.clock)

    def _writer(self) -> Writer:
        return Writer("query", f"run{self.lives}", self.ticks)

    def _run_all(self, works: Sequence[Work], element: Element) -> list[Worked]:
        if not self._breaks or self.rng.random() > 0.05:
            return self._worked(works, element)
        number, cut_off = self.rng.randrange(len(self.inputs)), self.source.network.cut_off
        try:
            with mock.patch.object(self.source.network, "cut_off", cut_off | {self.inputs[number].spec.id}):
                return self._worked(works, element)
        except StorageError:
            self._unread[number] = self.ticks + self.rng.choice([1, 3, 10])
            raise

    def _worked(self, works: Sequence[Work], element: Element) -> list[Worked]:
        found = []
        for work in works:
            caches = Caches(*(machine.cache() for machine in self.machines[work.partition]))
            is_bad = self.has_bad_forks and self.rng.random() < 0.05
            bad = mock.patch.object(forks, "_take_in", side_effect=RuntimeError(UNLUCKY))
            try:
                with bad if is_bad else nullcontext():
                    worked = ticks.run(work, element, Logs(self.output, self.inputs), caches, self.clock)
                require(UNLUCKY in worked.problem or not worked.problem, "a fork failed:", worked.problem)
                found.append(worked)
                if work.fork is not None and worked.fork is None and work.fork.unreachable:
                    self.delays.excuse()  # without the stable state, what cannot be read is needed
            finally:
                for cache in caches:
                    cache.close()
        return found

    def _tidy_up(self) -> None:
        """Somebody compacts, and truncates what the operator does not need."""
        output = Log.open(Folder(self.faulty.other_process(), self.name), self.clock)
        compact(output, target_bytes=self.rng.choice([100, 100_000]), blocks_min=2, unique=self.unique)
        number = self.rng.randrange(self.source.many)
        input_ = self.source.logs[number]
        if output.state.standings:
            over = input_of(self.operator.definition, self.source.logs)
            needs = over.needs(number, output.state.standings, None)
            if isinstance(input_, PartitionView):
                every = range(self.source.many)
                needs = [min(over.needs(n, output.state.standings, None)) for n in every]
                input_ = input_.whole
            consumer_registry.register(input_, CONSUMER, needs)
            if self.rng.random() < 0.5:
                truncate(input_, before_offset=1 << 40, yield_to_consumers=True)
        input_ = input_.whole if isinstance(input_, PartitionView) else input_
        compact(input_, target_bytes=self.rng.choice([100, 100_000]), blocks_min=2, unique=self.unique)

    # ------------------------------------------------------------------ in the end

    def check_end(self) -> None:
        """All is right, and nothing is tentative."""
        self.witness.check_end(Log.open(Folder(self.faulty.other_process(), self.name), self.clock))
