"""One seed, one run: an operator with a bound, whose inputs fail and heal while its own process dies and comes back.

What may happen, as often as the seed says:

    the writer of an input dies for a while, and catches up at once or slowly; its storage cannot be reached
    failures overlap, follow each other, and come while a failure is being corrected
    the operator's process dies before or after any storage call; states on its machine are kept, lost, or old
    its output is compacted, its inputs are compacted and truncated as far as it lets go of them
    steps stop in the middle; a fork fails by itself

What must hold, of every partition (the numbers are those of docs/availability.md):

    1  stable results, to the bit and in order, are those of an operator that got all tuples in one sequence
    2  in the end, when all is well again, nothing tentative counts
    3  what counts by the manifests is what an undo has left, tuple by tuple; tentative results are what such an
       operator makes of the tuples that were there
    4  every tuple of an input that is not missing is in a result, stable or tentative, within the bound and a step
    6  with `suspend`, and with failures shorter than the bound, there is nothing tentative
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest import mock

import pyarrow as pa

from strandline.availability import fork as forks
from strandline.availability import tick as ticks
from strandline.availability.decision import Decision, Situation, decide
from strandline.availability.fork import Caches, Forked
from strandline.availability.plain_availability import Entry, counted
from strandline.availability.promise import Promise
from strandline.availability.tick import Operation, Ticked, Work, Worked
from strandline.availability.watch import Watch
from strandline.checkpoint.policy import cec, instant
from strandline.clock import ManualClock
from strandline.log import consumer_registry
from strandline.log.compaction import compact
from strandline.log.log import Log
from strandline.log.log_state import LogState
from strandline.log.manifest import Writer
from strandline.log.outage import Outage
from strandline.log.retention import truncate
from strandline.log.spec import StreamSpec
from strandline.log.storage.storage import Storage
from strandline.log.tentative_results import changes, with_tentative
from strandline.processing import step, time_slices
from strandline.processing.element import Element
from strandline.processing.input_marks import needs
from strandline.processing.step import Logs
from strandline.processing.time_slices import marks_of
from strandline.testing import Crash, FaultPlan, FaultyStorage, MemoryStorage
from strandline.units import END_OF_TIME
from tests.operator_streams import bits, published_results
from tests.simulation.chained_inputs import ChainedInputs
from tests.simulation.failing_inputs import FailingInputs, Place, ReachableFolder
from tests.simulation.machines import Folder, Machine
from tests.simulation.operator_world import Violation, require, small_index, small_state
from tests.simulation.simulated_classes import some_class
from tests.simulation.simulated_operators import (
    SimulatedOperator,
    some_aggregate,
    some_operator_over_several,
    spec_of_output,
)

TICK_S = 0.1
TICK_US = 100_000
CONSUMER = "operator"
UNLUCKY = "a guess that nobody can compute with"

__all__ = ["Violation", "run"]


def run(seed: int, folder: Path | None = None) -> World:
    """Runs the seed; with a folder, states are real files. Returns the world as it is in the end."""
    rng = Random(seed)
    with small_index(Random(seed)), small_state(Random(seed)):
        world = World(rng, _some_operator(rng), folder)
        with world.named():
            world.run()
        return world


def _some_operator(rng: Random) -> SimulatedOperator:
    """Aggregates mostly: they have the most to say when inputs are missing."""
    if rng.random() < 0.1:
        return replace(some_class(rng), inputs=2)
    if rng.random() < 0.5:
        return some_aggregate(rng, rng.choice([2, 3]), is_compared_with_plain=False)
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
    ) -> None:
        """With an operator upstream, its output is the first input, and it lives as this one does."""
        self.rng = rng
        self.operator = operator
        self.name = name
        self.is_upstream = False
        self.clock = upstream.clock if upstream else ManualClock(1_000_000)
        self.partitions = upstream.partitions if upstream else rng.randint(1, 2)
        self.bound = rng.choice([2, 3, 6, 12])
        """In ticks."""
        modes = ["process", "process", "delay", "delay", "suspend"]
        reconcile = rng.choice(["redo", "redo", "undo"])
        self.promise = Promise(
            self.bound * TICK_US,
            rng.choice(modes),  # type: ignore[arg-type]
            rng.choice(modes),  # type: ignore[arg-type]
            reconcile,  # type: ignore[arg-type]
        )
        self.is_short = name == "output" and upstream is None and rng.random() < 0.15
        """No failure is as long as the bound."""
        self.may_die = not self.is_short and rng.random() < 0.6
        self.is_fast = upstream.is_fast if upstream else rng.random() < 0.6
        """The stable lineage takes in all that it can in one tick."""
        self.tuples_max = 100_000 if self.is_fast or rng.random() < 0.7 else 30
        """The fork takes in as much at most in one tick, too, so that it may be late."""
        policies = [cec(), cec(replay=rng.choice([0, 20])), cec(extent=7), instant(300_000)]
        self.policy = instant(300_000) if operator.definition.lives_in_process else rng.choice(policies)
        fresh = FaultyStorage(MemoryStorage(self.clock), rng, clock=self.clock)
        self.has_bad_forks = rng.random() < 0.2
        """Forks may fail where the stable lineage does not."""
        self.faulty: FaultyStorage = upstream.faulty if upstream else fresh
        longest = max(0, self.bound - 3) if self.is_short else None  # inputs are up to two ticks apart as it is
        self.source: FailingInputs | ChainedInputs
        if upstream is None:
            self.source = FailingInputs(rng, operator, self.partitions, lambda s: self._create(s.id, s), longest)
        else:
            self.source = ChainedInputs(rng, operator, upstream, lambda s: self._create(s.id, s))
        self.output = self._create(name, replace(spec_of_output(operator, self.source.logs), id=name))
        self.machines = [
            [Machine(folder and folder / f"{p}{lineage}", rng) for lineage in ("stable", "fork")]
            for p in range(self.partitions)
        ]
        self.names = self.lives = self.ticks = 0
        self.states: set[str] = set()
        self.tentative = 0
        """Tentative results that were ever published."""
        self.guessed_of = self.anew = 0
        """Guesses of inputs that forks were found to hold, and how often forks were made anew for what came late."""
        self.forks: list[list[Place] | None] = [None] * self.partitions
        """What each fork has taken in; None if nobody has seen it."""
        self.excused = 0
        """Until this tick tuples may be late: a driver or a fork is new."""

    def _create(self, name: str, spec: StreamSpec) -> Log:
        return Log.create(Folder(self.faulty.other_process(), name), spec, self.clock)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Names of attempts are numbers; steps stop where they want, or not."""
        unique = mock.Mock(uuid4=lambda: mock.Mock(hex=self.unique()))
        windows_max = 1 << 20 if self.is_fast else 5
        with (
            mock.patch.object(ticks, "uuid", unique),
            mock.patch.object(time_slices, "uuid", unique),
            mock.patch.object(step, "WINDOWS_MAX", windows_max),
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
        for _ in range(self.rng.randint(1, 4) if self.may_die else 1):
            with suppress(Crash):
                self._live(self.rng.randint(5, 40), may_fail=True)
            self._between_lives()
        self.may_die = False
        self._live(self.bound + 5, may_fail=False)
        if self.source.are_alike:
            self._rest(lambda: self._outage().state == "STABLE", feeds=True)
            require(not self._outage().forks, "all is well, and there is a fork")
        self.source.finish()
        self._rest(lambda: self.output.state.finished)
        self.check_end()

    def _rest(self, is_done: Callable[[], bool], *, feeds: bool = False) -> None:
        last = self.ticks + 300
        while not is_done():
            require(self.ticks < last, "it never comes to rest:", self._outage())
            self._tick(feeds=feeds)

    def _live(self, many: int, *, may_fail: bool) -> None:
        """A process from its start until it dies, or ends."""
        self.start()
        for _ in range(many):
            self._tick(may_fail=may_fail)

    def start(self) -> None:
        """Begins another life."""
        rng = self.rng
        self.lives += 1
        faults = FaultPlan(crash_at_call=rng.randint(1, 600), crash_after=rng.random() < 0.5)
        storage = self.faulty.other_process(faults if self.may_die and rng.random() < 0.8 else FaultPlan())
        self._open(storage)
        outage = self.output.state.outage
        known = [log.state.boundary for log in self.inputs]
        states = [log.state for log in self.inputs]
        self.watch = Watch.resumed(known, outage, self.clock.now_us(), self.promise.bound_us, states)
        self.seen: list[list[tuple[int, int]]] = [[] for _ in self.inputs]
        """Of each input the boundaries that this process has seen, and in which tick."""
        self.guessed: list[list[tuple[int, int]]] = [[] for _ in self.inputs]
        """The same of its guesses, since its last undo."""
        self.undone: list[tuple[int, ...]] = [() for _ in self.inputs]
        self.forks, self.excused = [None] * self.partitions, self.ticks + 2

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
                Log.open(ReachableFolder(storage, log.spec.id, network), self.clock) for log in self.source.logs
            )
            self.output = Log.open(Folder(storage, self.name), self.clock)

    def _between_lives(self) -> None:
        for machine in (one for both in self.machines for one in both):
            machine.end_processes()
            chance = self.rng.random()
            if chance < 0.3:
                machine.lose()
            elif chance < 0.5:
                machine.go_back()

    def _tick(self, *, may_fail: bool = False, feeds: bool = True) -> None:
        """Time goes on, and the operator takes a step."""
        rng = self.rng
        self.ticks += 1
        if not self.is_upstream:
            self.clock.advance(TICK_S)
        if feeds:
            self.source.tick(self.ticks, may_fail=may_fail)
        else:
            self.source.pass_time()
        element = Element(self.operator.definition, self.policy, "set_aside", self.tuples_max)
        operation = Operation(element, self.promise, self.inputs, self.output, self.clock)
        base = self.output.state
        with mock.patch.object(ticks, "decide", self._decide):
            ticked = operation.tick(self.watch, lambda works: self._run_all(works, element), self._writer())
        self.watch = ticked.watch
        if ticked.done:
            self._check_forks(base, ticked)
            if rng.random() < 0.2:
                self._check_counted()
        self._check_promise()
        if rng.random() < 0.1:
            rng.choice([one for both in self.machines for one in both]).copy()
        if rng.random() < 0.1:
            self._tidy_up()

    def _writer(self) -> Writer:
        return Writer("query", f"run{self.lives}", self.ticks)

    def _run_all(self, works: Sequence[Work], element: Element) -> list[Worked]:
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
                    self.excused = self.ticks + 2  # without the stable state, what cannot be read is needed
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
            consumer_registry.register(input_, CONSUMER, needs(marks_of(self.source.logs, output.state), number))
            if self.rng.random() < 0.5:
                truncate(input_, before_offset=1 << 40, yield_to_consumers=True)
        compact(input_, target_bytes=self.rng.choice([100, 100_000]), blocks_min=2, unique=self.unique)

    # ------------------------------------------------------------------ what must hold, tick by tick

    def _outage(self) -> Outage:
        return self.output.state.outage or Outage()

    def _check_forks(self, base: LogState, ticked: Ticked) -> None:
        """Tentative results are what an operator makes of what was there (3)."""
        before, now = base.outage or Outage(), self._outage()
        self.states.add(now.state)
        for p, forked in enumerate(ticked.forked):
            if forked is not None:
                stands = base.standings[p].stands.bound if base.standings else None
                self._check_fork(p, forked, stands)
                is_begun = before.forks and not self.decision.begins_anew
                come = [ticked.done[p].standing.stands.bound, before.forks[p].bound if is_begun else None]
                began = forked.began.bound
                again = [bound for bound in come if bound is not None and (began is None or bound > began)]
                require(not again, "a fork says again what came before", again, "it begins at", forked.began)
            elif not now.forks or now.forks[p].bound is None:
                self.forks[p] = None
        if (before.forks and not now.forks) or any(fork.bound is None for fork in now.forks):
            self.excused = self.ticks + 2

    def _check_fork(self, p: int, forked: Forked, stands: int | None) -> None:
        own, bound, without = self.forks[p], forked.standing.bound, self.source.unreachable
        if forked.is_anew:
            own = self.source.there(p, None, stands, frozenset()) + self.source.there(p, stands, bound, without)
        elif own is not None:
            own = own + self.source.there(p, forked.began.bound, bound, without)
        self.forks[p] = own
        self.tentative += forked.results
        self.guessed_of += sum(self.source.is_guess(p, one) for one in own or ())
        self.anew += self.decision.begins_anew
        if own is None:
            return
        require(len(own) == forked.standing.ordinal, "a fork has", forked.standing.ordinal, "tuples of", len(own))
        silent = [one for one in own if forked.began.bound is not None and one.time < forked.began.bound]
        known = self.operator.expected(self.source.placed(p, silent), forked.began.bound).results
        right = self.operator.expected(self.source.placed(p, own), bound).results.slice(len(known))
        names = list(self.output.spec.columns)
        tables = [self.output.read_block(block).select(names) for block in forked.blocks]
        found = bits(pa.concat_tables([self.output.spec.arrow.empty_table(), *tables]))
        require(found.equals(right.combine_chunks()), "a fork says", found.to_pylist(), "and not", right.to_pylist())

    def _check_counted(self) -> None:
        """What counts is what an undo has left (3); where it must be so, there is nothing tentative (6)."""
        log, outage = self.output, self._outage()
        for p in range(self.partitions):
            if log.state.starts[p]:
                continue  # who reads it needs it no more, and has dropped the beginning
            told = [row for table in changes(log, p, columns=[log.spec.time]) for row in table.to_pylist()]
            stable, tentative = counted(Entry(row["_kind"], row) for row in told)
            if self.promise.failing == "suspend" or self.is_short:
                require(len(stable) == len(told), "there is something tentative, and should not be")
            require(len(tentative) == (outage.forks[p].tuples if outage.forks else 0), "another number counts")
            boundary = log.state.boundaries[p]
            ahead = [row for row in tentative if boundary is None or row[log.spec.time] >= boundary]
            read = [row for table in with_tentative(log, p, [log.spec.time]) for row in table.to_pylist()]
            for rows, is_tentative in ((stable, False), (ahead, True)):
                found = [row["_offset"] for row in read if row["_tentative"] is is_tentative]
                require(found == [row["_offset"] for row in rows], "readers get", found, "of", rows)

    def _check_promise(self) -> None:
        """Every tuple of an input that is not missing is in some result in time (4)."""
        outage, standings = self._outage(), self.output.state.standings
        for number, log in enumerate(self.inputs):
            if number in self.source.unreachable:
                continue
            _note(self.seen[number], log.state.boundary, self.ticks)
            guessed, undone = self.source.guessed(number)
            if guessed is None or undone != self.undone[number]:
                self.guessed[number], self.undone[number] = [], undone
            _note(self.guessed[number], guessed, self.ticks)
        is_promised = "suspend" not in (self.promise.failing, self.promise.stabilizing) and self.tuples_max > 30
        if not is_promised or self.ticks <= self.excused or not (self.is_fast or outage.forks):
            return
        for number in range(len(self.inputs)):
            if not self._is_missing(number) and number not in self.source.unreachable:
                for p in range(self.partitions):
                    self._check_in_time(number, p, standings[p].stands.bound if standings else None)

    def _is_missing(self, number: int) -> bool:
        """Whether tuples of others have waited for an input, as far as it is to be read or guessed."""
        if self.source.guessed(number)[0] is None and not self.guessed[number]:
            return number in self._outage().missing
        reach = max(boundary for boundary, _ in (*self.seen[number], *self.guessed[number], (-1, 0)))
        others = [own for i in range(len(self.inputs)) if i != number for own in (self.seen[i], self.guessed[i])]
        return any(boundary > reach and self.ticks - at >= self.bound for own in others for boundary, at in own)

    def _check_in_time(self, number: int, p: int, stands: int | None) -> None:
        fork = self.forks[p]
        if self._outage().forks and fork is None:
            return
        held = set(fork or ())
        for seen, is_guessed in ((self.seen[number], False), (self.guessed[number], True)):
            due = max((boundary for boundary, at in seen if self.ticks - at > self.bound), default=None)
            for one in self.source.there(p, stands, due, frozenset()):
                is_due = one.input == number and self.source.is_guess(p, one) == is_guessed
                require(not is_due or one in held, one, "is late, in partition", p, self._outage())

    # ------------------------------------------------------------------ and in the end

    def check_end(self) -> None:
        """Stable results are those of a run in which nothing failed (1), and there are no others (2)."""
        self._check_counted()
        log = Log.open(Folder(self.faulty.other_process(), self.name), self.clock)
        require(self._outage().state == "STABLE", "all is over, and it is", self._outage())
        for p in range(self.partitions):
            tuples = self.source.placed(p, self.source.there(p, None, END_OF_TIME, frozenset()))
            right = self.operator.expected(tuples, END_OF_TIME).results
            found, all_ = published_results(log, p), len(right)
            if log.state.starts[p]:
                right = right.slice(all_ - len(found))
            require(found.equals(right), "partition", p, "has", found.to_pylist(), "and not", right.to_pylist())
            read = [row for table in with_tentative(log, p, []) for row in table.to_pylist()]
            require(len(read) == len(found) and not any(row["_tentative"] for row in read), "something is tentative")
            require(log.state.standings[p].results == all_, "results are not counted right")


def _note(seen: list[tuple[int, int]], boundary: int | None, tick: int) -> None:
    """Notes a boundary that is new."""
    if boundary is not None and (not seen or boundary > seen[-1][0]):
        seen.append((boundary, tick))
