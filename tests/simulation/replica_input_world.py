"""One seed, one run: an operator over replicas, alone or beside other streams, that reads whichever of them is there.

Replicas fail as in `replicas_world`: they are killed, lag, guess, lose their disks, begin anew or never come back. The
operator behind them changes between them, between any two ticks and when it is started again; it dies at any storage
call, on any machine. What it lets go of, replicas drop.

What must hold, of every partition: its results are those of an operator to which nothing happened, to the bit, each
once and in order; and it gets to the end as long as one replica lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from random import Random

import pyarrow as pa

from strandline.checkpoint.policy import cec, instant
from strandline.errors import CorruptionError, StorageError
from strandline.inputs import stream_definition
from strandline.inputs.replicas.replica_check import require_still_there
from strandline.inputs.replicas.replica_input import ReplicaInput
from strandline.inputs.replicas.replica_set import MISSING, ReplicaSet
from strandline.log.operator_state.input_mark import Marks
from strandline.log.operator_state.upstream import Origin, group_of, upstream_of
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep import consumer_registry, retention
from strandline.recovery.window_report import current_windows
from strandline.running import step as steps_
from strandline.running.element import Element
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import run_batch
from strandline.testing import Crash, FaultPlan
from strandline.units import END_OF_TIME
from tests.simulation.chained_operators import (
    OverResults,
    SimulatedReordered,
    results_of,
    some_operator_over,
    some_upstream,
)
from tests.simulation.failing_inputs import FailingInputs, ReachableFolder
from tests.simulation.machines import Folder, Machine
from tests.simulation.operator_world import Violation, require, small_index, small_state
from tests.simulation.replicas_world import PATIENCE, TICK_US, ReplicasWorld
from tests.simulation.simulated_keyed import SimulatedKeyed, runs, totals
from tests.simulation.simulated_operators import (
    Placed,
    SimulatedAggregate,
    SimulatedJoin,
    SimulatedOperator,
)
from tests.support.operator_streams import FAILING, PLANS, Row, published_results

NAME = "behind"
CONSUMER = consumer_registry.operator_name(NAME)


def run(seed: int, begin: Callable[[ReplicaInputWorld], Life] | None = None) -> ReplicaInputWorld:
    """Runs the seed; returns the world as it is in the end. The operator has the lives that `begin` gives it."""
    rng = Random(seed)
    with small_index(Random(seed)), small_state(Random(seed)):
        upstream = some_upstream(rng)
        is_alone = not isinstance(upstream, SimulatedJoin) and rng.random() < 0.5
        behind = _some_operator_alone(rng, upstream) if is_alone else some_operator_over(rng, upstream)
        world = ReplicaInputWorld(rng, upstream, behind, begin or Life)
        with world.named():
            world.run()
        return world


def _some_operator_alone(rng: Random, upstream: SimulatedOperator) -> SimulatedOperator:
    """An operator over nothing but the results of another one."""
    first = results_of(upstream, 1)
    kind = rng.choice(["aggregate", "aggregate", "keyed", "class"])
    if kind == "keyed":
        return OverResults(SimulatedKeyed(totals if first.key == ("s",) else runs, first.key[0], 1), first)
    if kind == "class":
        return OverResults(SimulatedReordered(1, first.key), first)
    known = [p for p in (*PLANS.values(), FAILING) if tuple(c for c, _ in p.key) == first.key and not p.shape]
    return OverResults(SimulatedAggregate(rng.choice(known), False), first)


class Life:
    """A process of the operator behind the replicas."""

    def __init__(self, world: ReplicaInputWorld) -> None:
        """Raises `StorageError` if no replica is there."""
        rng = world.rng
        faults = FaultPlan(crash_at_call=rng.randint(1, 900), crash_after=rng.random() < 0.5, transient=0.001)
        storage = world.faulty.other_process(faults if world.may_fail and rng.random() < 0.6 else FaultPlan())

        def opener(name: str) -> Log:
            return Log.open(ReachableFolder(storage, name, world.network), world.clock)

        openers = [lambda name=replica.name: opener(name) for replica in world.replicas]
        self.world = world
        self.replicas = ReplicaSet(openers, clock=world.clock, patience_us=PATIENCE * TICK_US)
        self.input = ReplicaInput(self.replicas)
        logs = world.beside.logs if world.beside else ()
        self.storage = storage
        self.others = tuple(Log.open(Folder(storage, log.spec.id), world.clock) for log in logs)
        Log.create(Folder(storage, NAME), world.spec_behind, world.clock)
        self.output = Log.open(Folder(storage, NAME), world.clock)

    @property
    def is_done(self) -> bool:
        """Whether all that can ever be taken in is."""
        return self.output.state.finished

    @property
    def marks(self) -> list[Marks]:
        """Where the operator stands."""
        return [s.marks for s in self.output.state.standings if s.marks is not None]

    def tick(self) -> None:
        """Chooses a replica, takes in some of what is new."""
        world, rng = self.world, self.world.rng
        definition = world.behind.definition
        log = self.chosen()
        if log is None:
            return
        for other in self.others:
            other.refresh()
        inputs = (log, *self.others)
        element = Element(definition, world.policy, "set_aside", rng.choice([3, 20, 100_000]), replicas=frozenset({0}))
        writer = Writer("query", f"run{world.lives}", world.ticks)
        with self.perhaps_lost(log):
            try:
                element.input(inputs).require_same(self.output.state.standings)
                run_batch(element, inputs, self.output, lambda s: self._run(s, element, inputs), writer, world.clock)
            except MISSING as problem:
                if not self.input.bears(problem):
                    raise
                world.borne += 1

    @contextmanager
    def perhaps_lost(self, log: Log | None) -> Iterator[None]:
        """Now and then the replica that was chosen cannot be read a moment later."""
        world, name = self.world, self._name_of(log)
        is_lost = world.may_fail and world.rng.random() < 0.2
        if is_lost:
            world.network.cut_off.add(name)
        try:
            yield
        finally:
            if is_lost:
                world.network.cut_off.discard(name)

    def chosen(self) -> Log | None:
        """A replica; now and then another one than the one before."""
        rng, cut_off, name = self.world.rng, self.world.network.cut_off, self._name_of(self.input.log)
        is_away = rng.random() < 0.2 and name not in cut_off
        if is_away:
            cut_off.add(name)
        log = self.input.choose(self.marks, 0)
        if is_away:
            cut_off.discard(name)
        if log is not None:
            self.world.saw(log.spec.id)
        return log

    @staticmethod
    def _name_of(log: Log | None) -> str:
        return "" if log is None else consumer_registry.folder_name(log.storage.url)

    def _run(self, steps: Sequence[Step], element: Element, inputs: tuple[Log, ...]) -> list[Done]:
        found = []
        for s in steps:
            cache = self.world.own_machines[s.partition].cache()
            found.append(steps_.run(s, element, Logs(self.output, inputs), cache, self.world.clock))
            self.world.recoveries += found[-1].recovery is not None
        return found

    def check_end(self) -> None:
        """All is over: what must hold beside that results are right."""

    def register(self) -> None:
        """Replicas keep what is needed; some drop all that is not."""
        self.input.register(CONSUMER, self.marks, 0)
        self._look_at_windows()
        for log in self.replicas.logs:
            with suppress(*MISSING):
                if log is not None and self.world.rng.random() < 0.5 and self.marks:
                    require_still_there(log)
                    for own in consumer_registry.consumers(log):  # none, if it could not be told
                        needed, starts = dict(enumerate(own.needs)), log.state.starts
                        self.world.dropped += retention.truncate(log, before_offset=needed) != starts

    def _look_at_windows(self) -> None:
        """Somebody looks at the open windows, in the replica that is read now."""
        log = self.input.log
        if log is None or not self.marks or self.world.behind.definition.kind not in ("aggregate", "join", "barrier"):
            return
        require_still_there(log)  # it may have lost its disk a moment ago
        try:
            found = current_windows(self.output, (log, *self.others))
        except CorruptionError as problem:
            raise Violation(f"the open windows cannot be told: {problem}") from problem  # nothing rots here
        require(found.num_rows == sum(s.open for s in self.output.state.standings), "other windows are open")


class ReplicaInputWorld(ReplicasWorld):
    """As that, with an operator where the reader is."""

    def __init__(
        self,
        rng: Random,
        upstream: SimulatedOperator,
        behind: SimulatedOperator,
        begin: Callable[[ReplicaInputWorld], Life],
    ) -> None:
        super().__init__(rng, upstream)
        self.behind = behind
        self._begin = begin
        self.beside: FailingInputs | None = None
        if behind.inputs > 1:
            create = self._create
            self.beside = FailingInputs(
                rng, behind, self.partitions, lambda s: create(s.id, s), 0, self.source, "beside"
            )
        policy = rng.choice([cec(), cec(replay=rng.choice([0, 20])), cec(extent=7), instant("300 ms")])
        self.policy = instant("300 ms") if behind.definition.lives_in_process else policy
        if not behind.definition.keeps_state:  # it has no policy
            self.policy = cec()
        if upstream.definition.lives_in_process:
            for replica in self.replicas:
                replica.policy = instant("300 ms")
        self.own_machines = [Machine(None, rng) for _ in range(self.partitions)]
        self.life: Life | None = None
        self.lives = self.borne = self.recoveries = self.dropped = 0
        self._seen = ""

    @property
    def spec_behind(self) -> StreamSpec:
        """What the stream of the operator is."""
        first = replace(results_of(self.operator, self.partitions), id="any")
        beside = self.beside.logs if self.beside else ()
        names = tuple(replica.name for replica in self.replicas)
        group = Origin(group_of(self.spec("any")), names[0], names)
        origins = [group, *(Origin(log.spec.id, log.spec.id) for log in beside)]
        spec = stream_definition.output_spec(self.behind.definition, first)
        # Where streams come from Spark, an operator's key is that of its inputs; here it may have one of its own.
        key = getattr(self.behind, "key", first.key)
        return replace(spec, id=NAME, key=key, upstream=upstream_of(origins), created_us=0)

    def saw(self, stream: str) -> None:
        """A replica was chosen; who is given another one may have to recover from that."""
        is_changed = bool(self._seen) and stream != self._seen
        self.changes += is_changed
        self._seen = stream
        if is_changed and self.rng.random() < 0.5:
            self._lose_machines()

    @property
    def is_done(self) -> bool:
        return self.life is not None and self.life.is_done

    def _tick(self, *, feeds: bool = True) -> None:
        if self.beside is not None and feeds:
            self.beside.now = self.source.now = max(self.beside.now, self.source.now)
            self.beside.tick(self.ticks, may_fail=self.may_fail)
        elif self.beside is not None and not self._is_closed:
            self._is_closed = True
            self.beside.finish()
        super()._tick(feeds=feeds)

    _is_closed = False

    def _read(self) -> None:
        """What the operator behind does in a tick; a `Crash` is the end of its process."""
        self.reader = self  # type: ignore[assignment]
        try:
            if self.life is None:
                self.lives += 1
                self.life = self._begin(self)
            self.life.tick()
            if self.rng.random() < 0.2:
                with suppress(*MISSING):
                    self.life.register()
        except Crash:
            self._die()
            raise
        except StorageError:
            self._die()
        if self.may_fail and self.rng.random() < 0.05:
            self._die()

    def _die(self) -> None:
        self.life = None
        self._lose_machines()

    def _lose_machines(self) -> None:
        for machine in self.own_machines:
            if self.rng.random() < 0.5:
                machine.lose()

    def _check_end(self) -> None:
        output = Log.open(Folder(self.faulty.other_process(), NAME), self.clock)
        for p in range(self.partitions):
            right = self.behind.expected(self._taken_in(p), END_OF_TIME).results
            found = published_results(output, p)
            require(found.equals(right), "partition", p, "has", found.to_pylist(), "and not", right.to_pylist())
        assert self.life is not None
        self.life.check_end()

    def _taken_in(self, partition: int) -> Placed:
        """All that there was, in the serialised order: results as one operator makes them to which nothing happens."""
        tuples = self.source.placed(partition, self.source.there(partition, None, END_OF_TIME, frozenset()))
        rows = _of_bits(self.operator.expected(tuples, END_OF_TIME).results, self.spec("any").arrow)
        time = self.behind.definition.times[0]
        every = [(row[time], 0, n, row) for n, row in enumerate(rows)]
        if self.beside is not None:
            for at in self.beside.there(partition, None, END_OF_TIME, frozenset()):
                every.append((at.time, at.input, at.offset, self.beside.row(partition, at)))
        ordered = sorted(every, key=lambda one: one[:3])
        return [(i, {**row, "_offset": m}) for m, (_, i, _, row) in enumerate(ordered)]


def _of_bits(table: pa.Table, schema: pa.Schema) -> list[Row]:
    """Rows, their doubles out of bits again."""
    columns = [c.combine_chunks() for c in table.columns]
    doubles = (pa.types.is_float64(field.type) for field in schema)
    values = [c.view(pa.float64()) if own else c for c, own in zip(columns, doubles, strict=True)]
    found: list[Row] = pa.table(values, schema=schema).to_pylist()
    return found
