"""The operator of `replica_input_world` with a bound: no replica, one that guesses, or another input may be missing.

What must hold is what `availability_witness` and `delay_witness` say, whichever replica is read in a tick: of a change
no result and no guess may know more than that another replica guesses otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from unittest import mock

from strandline.control_columns import KIND
from strandline.errors import StorageError
from strandline.inputs.replicas.replica_check import require_still_there
from strandline.inputs.replicas.replica_set import MISSING
from strandline.inputs.replicas.replica_watch import results_of
from strandline.log.operator_state.guesses import guessed_until, guesses_of, undone_until
from strandline.log.operator_state.outage import Outage
from strandline.log.reading.result_ordinals import first_kept_result
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.upkeep import consumer_registry
from strandline.running import tick as ticks
from strandline.running.decision import Decision, Situation, decide
from strandline.running.element import Element
from strandline.running.fork import Caches
from strandline.running.promise import Promise
from strandline.running.step import Logs
from strandline.running.tick import Operation, Work, Worked
from strandline.running.watch import Watch
from tests.simulation.availability_witness import AvailabilityWitness
from tests.simulation.delay_witness import DelayWitness
from tests.simulation.failing_inputs import Place, ReachableFolder
from tests.simulation.machines import Folder, Machine
from tests.simulation.operator_world import require
from tests.simulation.replica_input_world import NAME, Life, ReplicaInputWorld
from tests.simulation.replicas_world import TICK_US
from tests.simulation.simulated_operators import Placed
from tests.support.operator_streams import Row

A_GUESS = 1 << 40
"""Where replicas guess, their tuples have places behind those of results, each replica its own."""


class Read:
    """What the operator reads: results and guesses of the replica that it reads now, and the streams beside it."""

    def __init__(self, world: ReplicaInputWorld) -> None:
        self._world = world
        self._beside = world.beside
        self._time = world.behind.definition.times[0]
        self.log: Log | None = None
        self._results: list[list[Row]] = [[] for _ in range(world.partitions)]
        """Of the replicas, by their numbers: the same in each."""
        self._guesses: dict[tuple[int, int], Row] = {}
        """By partition and place."""
        self._numbers: dict[str, int] = {}
        self._logs: dict[str, Log] = {}
        self._come: dict[tuple[str, int], tuple[int, int]] = {}
        """By stream and partition: how far it was read, and how many results come before that."""

    def look(self, log: Log | None) -> None:
        """This one is read from now on; raises if it cannot be."""
        self.log = None
        if log is None:
            return
        log = self._own(log)
        for p, known in enumerate(self._results):
            first, results = self._come.get((log.spec.id, p)) or (log.state.starts[p], first_kept_result(log, p))
            if first < log.state.starts[p]:
                first, results = log.state.starts[p], first_kept_result(log, p)
            require(results <= len(known), "results were dropped that nobody had seen")
            for table in log.read(p, first, columns=list(log.spec.columns)):
                for offset, row in enumerate(table.to_pylist(), first):
                    if row[KIND] == Kind.TENTATIVE:
                        self._guesses[p, self._place(log, offset)] = row
                    elif row[KIND] == Kind.RESULT:
                        if results == len(known):
                            known.append(row)
                        results += 1
                first += len(table)
            self._come[log.spec.id, p] = first, results
        self.log = log

    def _own(self, log: Log) -> Log:
        """The same stream, for somebody to whom nothing happens; raises if it is lost."""
        own = self._logs.get(log.spec.id)
        if own is None:
            name = consumer_registry.folder_name(log.storage.url)
            own = Log.open(Folder(self._world.faulty.other_process(), name), self._world.clock)
            if own.spec.id != log.spec.id:
                raise StorageError("another stream is at this path now", stream=log.storage.url)
            self._logs[log.spec.id] = own
        require_still_there(own)
        own.refresh()
        return own

    def _place(self, log: Log, offset: int) -> int:
        return A_GUESS * (1 + self._numbers.setdefault(log.spec.id, len(self._numbers))) + offset

    def guessed(self, number: int) -> tuple[int | None, tuple[object, ...]]:
        """The boundary of an input's guesses, and where its last undo is, in which replica."""
        if number or self.log is None:
            return None, ()
        return guessed_until(self.log.state), (self.log.spec.id, *undone_until(self.log.state))

    def is_guess(self, partition: int, place: Place) -> bool:
        """Whether a tuple is tentative."""
        return not place.input and place.offset >= A_GUESS

    def there(self, partition: int, since: int | None, until: int | None, without: frozenset[int]) -> list[Place]:
        """The tuples that can be read and count with a time in [since, until), in the serialised order."""
        found = self._beside.there(partition, since, until, without) if self._beside else []
        if until is None or 0 in without:
            return found
        every = list(enumerate(self._results[partition]))
        if self.log is not None:
            every = every[: results_of(self.log.state)[partition]]
        guesses = None if self.log is None else guesses_of(self.log, partition)
        if guesses is not None and self.log is not None:
            first, end = (self._place(self.log, offset) for offset in (guesses.first, guesses.end))
            own = ((place, row) for (p, place), row in self._guesses.items() if p == partition and first <= place < end)
            every += sorted((n, row) for n, row in own if guesses.since is None or row[self._time] >= guesses.since)
        times = ((n, row[self._time]) for n, row in every)
        found += [Place(time, 0, n) for n, time in times if time < until and (since is None or time >= since)]
        return sorted(found)

    def placed(self, partition: int, places: Sequence[Place]) -> Placed:
        """These tuples as an operator takes them in."""
        return [(at.input, {**self._row(partition, at), "_offset": m}) for m, at in enumerate(places)]

    def _row(self, partition: int, at: Place) -> Row:
        if at.input:
            assert self._beside is not None
            return self._beside.row(partition, at)
        return self._guesses[partition, at.offset] if at.offset >= A_GUESS else self._results[partition][at.offset]


class BoundedLives:
    """The lives of one operator: what they have in common."""

    def __init__(self) -> None:
        self._read: Read | None = None
        self.tentative = 0
        """Tentative results that were ever published."""

    def __call__(self, world: ReplicaInputWorld) -> BoundedLife:
        """Another one; states of forks are kept on their machines, or lost."""
        if self._read is None:
            self._read, self._rng = Read(world), world.rng
            rng = world.rng
            self.machines = [Machine(None, rng) for _ in range(world.partitions)]
            self.bound = rng.choice([2, 3, 6])
            modes = ["process", "process", "delay", "delay", "suspend"]
            reconcile = rng.choice(["redo", "redo", "undo"])
            self.promise = Promise(self.bound * TICK_US, rng.choice(modes), rng.choice(modes), reconcile)  # type: ignore[arg-type]
        for machine in self.machines:
            machine.end_processes()
        self.lose_some()
        return BoundedLife(world, self, self._read)

    def lose_some(self) -> None:
        """States of forks are gone."""
        for machine in self.machines:
            if self._rng.random() < 0.4:
                machine.lose()


class BoundedLife(Life):
    """A process of the operator with its bound. Witnesses take it for a world."""

    def __init__(self, world: ReplicaInputWorld, lives: BoundedLives, source: Read) -> None:
        network = world.beside.network if world.beside else None
        with mock.patch.object(network, "cut_off", set()) if network else nullcontext():
            super().__init__(world)
            logs = world.beside.logs if world.beside else ()
            if network is not None:
                folders = (ReachableFolder(self.storage, log.spec.id, network) for log in logs)
                self.others = tuple(Log.open(folder, world.clock) for folder in folders)
        self._lives, self.bound, self.promise = lives, lives.bound, lives.promise
        self.partitions, self.operator, self.source = world.partitions, world.behind, source
        nobody = replace(self.replicas.spec, id="nobody")
        self._log = Log(Folder(self.storage, "nowhere"), nobody, world.clock)
        self.watch: Watch | None = None
        self.witness = AvailabilityWitness(self)  # type: ignore[arg-type]
        self.delays = DelayWitness(self, self.witness)  # type: ignore[arg-type]
        self.delays.begin(1 + len(self.others))

    # ------------------------------------------------------------------ as witnesses see it

    never_guesses = property(lambda self: self.promise.failing == "suspend")
    has_bound = True
    is_short = False

    @property
    def ticks(self) -> int:
        return self.world.ticks

    @property
    def is_fast(self) -> bool:
        return self.world.is_fast

    @property
    def promises(self) -> bool:
        """Whether every tuple has to be in a result in time."""
        return "suspend" not in (self.promise.failing, self.promise.stabilizing)

    @property
    def outage(self) -> Outage:
        return self.output.state.outage or Outage()

    @property
    def inputs(self) -> tuple[Log, ...]:
        return (self._log, *self.others)

    @property
    def unreachable(self) -> frozenset[int]:
        """The inputs that could not be read in the last tick."""
        return self.watch.unreachable if self.watch is not None else frozenset()

    # ------------------------------------------------------------------ what happens

    def tick(self) -> None:
        """Chooses a replica, and takes in what is there."""
        world = self.world
        log = self.chosen()
        if log is not None and log is not self._log:
            self._lives.lose_some()  # who is given another one may have to make its fork of that
        self._log = log or self._log
        try:
            self.source.look(log)
        except MISSING:  # its disk is lost, and nobody has noticed: a fork may take in nothing of it, or not end
            self.witness.begin()
            self.delays.excuse()
        if self.watch is None:
            states = [one.state for one in self.inputs]
            known = [state.boundary for state in states]
            outage = self.output.state.outage
            self.watch = Watch.resumed(known, outage, world.clock.steady_us(), self.promise.bound_us, states)
        unread = frozenset({0} if log is None else ())
        element = Element(self.operator.definition, world.policy, "set_aside", 100_000, replicas=frozenset({0}))
        operation = Operation(element, self.promise, element.input(self.inputs), self.output, world.clock, unread)
        base, writer = self.output.state, Writer("query", f"run{world.lives}", world.ticks)
        with self.perhaps_lost(log):
            try:
                with mock.patch.object(ticks, "decide", self._decide):
                    ticked = operation.tick(self.watch, lambda works: self._run_all(works, element), writer)
            except MISSING as problem:
                is_beside = any(problem.lies_in(other.storage.url) for other in self.others)
                if not self.input.bears(problem) and not is_beside:
                    raise  # its own stream: another process goes on
                world.borne += 1
                return self.delays.excuse()
        self._see(base, ticked)

    def _see(self, base: ticks.LogState, ticked: ticks.Ticked) -> None:
        self.watch = ticked.watch
        if ticked.done:
            self.witness.see(base, ticked, self.decision)
            self.delays.see(base.outage or Outage())
            self._lives.tentative += sum(forked.results for forked in ticked.forked if forked)
            if self.world.rng.random() < 0.2:
                self.witness.check_counted()
        self.delays.check()

    def _decide(self, situation: Situation, promise: Promise) -> Decision:
        self.decision = decide(situation, promise)
        return self.decision

    def _run_all(self, works: Sequence[Work], element: Element) -> list[Worked]:
        found = []
        for work in works:
            machines = (self.world.own_machines[work.partition], self._lives.machines[work.partition])
            caches = Caches(*(machine.cache() for machine in machines))
            logs = Logs(self.output, self.inputs)
            whole = replace(logs, opened=partial(self._whole, work.fork.unreachable if work.fork else frozenset()))
            found.append(ticks.run(work, element, logs, caches, self.world.clock, whole))
            require(not found[-1].problem, "a fork failed:", found[-1].problem)
            if work.fork is not None and found[-1].fork is None and work.fork.unreachable:
                self.delays.excuse()  # without the stable state, what cannot be read is needed
        return found

    def _whole(self, unreachable: frozenset[int]) -> tuple[Log, tuple[Log, ...]]:
        """What a fork recovers from, as Spark's tasks have it: not from a replica that lacks what was taken in."""
        if 0 in unreachable:
            raise StorageError("there is no replica to read", stream=self._log.storage.url)
        return self.output, self.inputs

    def check_end(self) -> None:
        """Everything tentative was undone or confirmed."""
        self.output = Log.open(Folder(self.world.faulty.other_process(), NAME), self.world.clock)  # by one who lives
        self.witness.check_counted()
        require(self.outage.state == "STABLE", "all is over, and it is", self.outage)
