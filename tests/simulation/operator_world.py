"""One seed, one run: an operator over growing inputs, whose processes die anywhere and come back to whatever is left.

What may happen, as often as the seed says:

    a process dies before or after any storage call, at a named failpoint, twice in a row, or gets an error it dies of
    the state cache of a partition is kept, lost, or an old copy comes back
    the process of a worker, with the objects of users' classes in it, dies or lives on when the driver does not
    an attempt runs again and leaves its files without being accepted, before the batch is published or much later
    a driver freezes with its work done, and wants to publish when others have gone on
    input and output are compacted, collected, and truncated as far as the registered consumer and the operator allow;
    their commits are dropped, whoever has yet to read them
    an input is quiet for a while, and time goes on; in the end, or before the others, it is finished, or not
    of several inputs one is far behind, or all of what comes is in one of them; lateness is what it is in each
    an input gets another column
    a block of the output rots, with the footprints that it holds
    somebody asks for the open windows, and has the checkpoint checked
    the checkpoint policy changes from life to life, to one that lets go and back, too
    the clock moves at every look at it; steps stop in the middle of a commit, and close windows there
    what is measured is anything: nothing, a moment, a minute

What must hold: the results of each partition, values to the bit and order, are those of an operator that nothing ever
happened to, over several inputs of one that has them in one sequence; what cannot be computed is set aside once each;
open windows are those of that operator; extent and replay stay within what the policy allows; a checkpoint is what the
manifest says, unless it has rotted; nothing but what was injected goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, Literal
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc

from strandline import arrow_rows
from strandline.checkpoint import footprint_cost, saving
from strandline.checkpoint.policy import Policy, cec, instant, none
from strandline.clock import ManualClock
from strandline.errors import (
    CollectedError,
    ConflictError,
    CorruptBlockError,
    DroppedError,
    StorageError,
    TruncatedError,
)
from strandline.inputs import edges, one_stream, serialised_input
from strandline.inputs.input_of import input_of
from strandline.inputs.stream_definition import definition_of
from strandline.log.index import cuts, index
from strandline.log.operator_state.standing import Standing
from strandline.log.storage.storage import Storage
from strandline.log.stream import block as blocks_
from strandline.log.stream import block_sequence, block_slice, commit_kinds
from strandline.log.stream import log as log_module
from strandline.log.stream.commit import Commit
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.log.stream.partial_log import PartialLog
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep import consumer_registry
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.dropping import drop_commits
from strandline.log.upkeep.levels import Levels
from strandline.log.upkeep.retention import apply_retention, collect, truncate
from strandline.operators.aggregate import aggregate_operator
from strandline.operators.barrier import waiting_state
from strandline.operators.barrier.barrier_operator import BarrierOperator
from strandline.operators.join import join_operator, tuple_ring
from strandline.operators.open_windows import payloads
from strandline.operators.partition_wide import object_at_work, state_values
from strandline.operators.stateless.definition import StatelessOperator
from strandline.recovery import checkpoint_audit, recover
from strandline.recovery.window_report import current_windows
from strandline.running import step
from strandline.running import tick as ticks
from strandline.running.element import Element
from strandline.running.step import Done, Logs, Step
from strandline.running.tick import Tick, run_batch
from strandline.testing import Crash, FaultPlan, FaultyStorage, MemoryStorage
from strandline.units import END_OF_TIME
from tests.simulation.machines import Folder, Machine
from tests.simulation.simulated_classes import some_class
from tests.simulation.simulated_inputs import SimulatedInputs
from tests.simulation.simulated_keyed import some_keyed
from tests.simulation.simulated_operators import (
    SimulatedOperator,
    some_aggregate,
    some_operator_over_several,
    spec_of_output,
)
from tests.simulation.simulated_stateless import some_stateless
from tests.simulation.stopwatch import stopwatch
from tests.support.handle_on_blocks import handle_on
from tests.support.operator_streams import Row, bits, published_results

CONSUMER = "operator"
FAILPOINTS = ("between-blocks", "before-block", "after-block", "after-state", "before-output", "during-recovery")
PLAIN_EVERY = 8
"""So many runs are compared with the compiled operator for one that is compared with the plain one."""
_PUBLISH = Tick.publish


class Violation(BaseException):
    """A promise is broken; a `BaseException`, so that no code of the library swallows it."""


def require(holds: bool, *what: object) -> None:
    if not holds:
        raise Violation(" ".join(str(w) for w in what))


def run(
    seed: int, folder: Path | None = None, inputs: Literal["one", "several", "keyed", "class", "stateless"] = "one"
) -> list[pa.Table]:
    """Runs the seed; with a folder, the state cache is the real one. Returns the results of each partition."""
    rng = Random(seed)
    is_compared_with_plain = seed % PLAIN_EVERY == 0
    with small_index(Random(seed)), small_steps(Random(seed)), small_state(Random(seed)):
        operator: SimulatedOperator
        if inputs == "keyed":
            operator = some_keyed(rng)
        elif inputs == "class":
            operator = some_class(rng)
        elif inputs == "stateless":
            operator = some_stateless(rng)
        elif inputs == "several":
            operator = some_operator_over_several(rng, is_compared_with_plain)
        else:
            operator = some_aggregate(rng, 1, is_compared_with_plain)
        world = World(rng, operator, folder)
        with world.armed():
            world.run()
        return world.results


@contextmanager
def small_index(rng: Random) -> Iterator[None]:
    """Folds so often that an operator's standings come from snapshots, too."""
    sizes: dict[str, Any] = {
        "FOLD_EVERY": rng.choice([3, 5, 64]),
        "FANOUT": 2,
        "LEAF_ENTRIES_MAX": rng.choice([4, 1000]),
    }
    with (
        mock.patch.multiple(index, **sizes),
        mock.patch.multiple(cuts, TUPLES_MAX=rng.choice([5, 50]), TUPLES_MAX_PER_PARTITION=0),
        mock.patch.object(commit_kinds, "decode", _decode),
        mock.patch.object(StreamSpec, "from_json", _spec),
    ):
        yield


@contextmanager
def small_steps(rng: Random) -> Iterator[None]:
    """Tuples go in a few at a time, and steps stop after a few windows, as they do with millions."""
    rows = rng.choice([7, 25, 1 << 20])

    def few_bytes() -> int:
        return rng.choices([1, 300, 1 << 30], [1, 3, 16])[0]  # seldom: a tuple at a time takes its time

    with (
        mock.patch.multiple(aggregate_operator, _ROWS_MAX=rows, _WINDOWS_MAX=rows),
        mock.patch.multiple(join_operator, ROWS_MAX=rows, PAIRS_MAX=rng.choice([2, 16, 1024])),
        mock.patch.object(BarrierOperator, "rows_at_once", rows),
        mock.patch.object(StatelessOperator, "rows_at_once", rows),
        mock.patch.object(step, "WINDOWS_MAX", rng.choice([10, 1 << 20])),
        mock.patch.object(block_sequence, "ROWS_MAX", rng.choice([4, 1 << 21])),
        mock.patch.object(blocks_, "ROWS_PER_GROUP", rng.choices([3, 1 << 18], [1, 3])[0]),
        mock.patch.object(block_slice, "BYTES_HELD_MAX", rng.choice([0, 1 << 23])),
        mock.patch.object(one_stream, "PIECE_BYTES_MAX", few_bytes()),
        mock.patch.object(step, "ROWS_MIN", rng.choice([1, 1 << 12])),
        mock.patch.object(saving, "_SAMPLE_MIN", 10),
        mock.patch.object(footprint_cost, "FOOTPRINTS_MIN", 3),
        mock.patch.object(arrow_rows, "ARRAY_BYTES_MAX", few_bytes()),
        mock.patch.object(arrow_rows, "PORTION_BYTES_MAX", few_bytes()),
        mock.patch.object(payloads, "CHUNK_BYTES_MAX", few_bytes()),
    ):
        yield


@contextmanager
def small_state(rng: Random) -> Iterator[None]:
    """State is tidied up after a few tuples, as it is after thousands; a replay knows places a few tuples apart."""
    few = rng.random() < 0.5
    with (
        mock.patch.object(tuple_ring, "ROOM_MIN", 8 if few else 64),
        mock.patch.multiple(payloads, _MERGED_MIN=4 if few else 4096, CHUNKS_MAX=6 if few else 96),
        mock.patch.object(waiting_state, "_GARBAGE_MIN", 8 if few else 1 << 10),
        mock.patch.object(edges, "EDGES_MAX", 6 if few else 256),
        mock.patch.object(serialised_input, "_EDGE_EVERY", rng.choice([5, 1 << 14])),
        mock.patch.object(state_values, "CELL_BYTES_MAX", 20 if few else 1 << 20),
        mock.patch.object(object_at_work, "REPEATED_BYTES_MIN", 200 if few else 1 << 24),
    ):
        yield


# Every process reads the same files, and to decode one depends on its bytes alone; where they lie is said in errors.
_decoded = lru_cache(maxsize=2_000)(commit_kinds.decode)
_spec = lru_cache(maxsize=100)(StreamSpec.from_json)


def _decode(data: bytes, _where: str) -> Commit:
    return _decoded(data, "the simulation")


class World:
    """The disk, the clock, the machines, and one process at a time."""

    def __init__(self, rng: Random, operator: SimulatedOperator, folder: Path | None) -> None:
        self.rng = rng
        self.operator = operator
        self.definition = operator.definition
        self.clock = ManualClock(1_000_000, tick_us=rng.choice([0, 1, 3_000]))
        self.partitions = rng.randint(1, 3)
        self.faulty = FaultyStorage(MemoryStorage(self.clock), rng, clock=self.clock)
        self.source = SimulatedInputs(rng, operator, self.partitions, lambda spec: self._create(spec.id, spec))
        self.inputs = self.source.logs
        self.output = self._create("output", spec_of_output(operator, self.inputs))
        self.machines = [Machine(folder and folder / str(p), rng) for p in range(self.partitions)]
        self.is_calm = rng.random() < 0.1
        """Nothing dies and nothing is lost, so that the policy `none` does no harm."""
        self.may_rot = not self.is_calm and rng.random() < 0.15
        """Blocks of the output rot; streams are kept whole, so that there is something to replay."""
        self.is_rotten = False
        self.rotten: set[int] = set()
        """Partitions whose checkpoint may be rotten."""
        self.seen: list[list[pa.Table]] = [[] for _ in range(self.partitions)]
        self.seen_until = [0] * self.partitions
        self.aside: dict[int, Row] = {}
        """What was ever seen in the side log, by offset."""
        self.may_freeze = not self.is_calm
        self.frozen: list[Callable[[], None]] = []
        self.late: list[Callable[[], None]] = []
        self.names = 0
        self.failpoint: tuple[str, int] | None = None
        self.process: FaultyStorage = self.faulty
        self.results: list[pa.Table] = []
        self.measures = Random(rng.getstate()[1][0])
        """The source of what is measured, and of policies that go by it; other choices do not depend on it."""
        self.stopwatch_s = 0.0
        self.dearest_us = 0.0
        """The highest price of a footprint that any step has noted."""

    def _create(self, name: str, spec: StreamSpec) -> Log:
        return Log.create(Folder(self.faulty.other_process(), name), spec, self.clock)

    @contextmanager
    def armed(self) -> Iterator[None]:
        """Failpoints kill the process at hand; names of attempts are numbers."""
        with (
            stopwatch(self._measure),
            mock.patch.object(step, "failpoint", self._pass),
            mock.patch.object(block_sequence, "failpoint", self._pass),
            mock.patch.object(ticks, "failpoint", self._pass),
            mock.patch.object(Tick, "publish", lambda tick, writer: self._publish(writer, tick)),
            mock.patch.object(recover, "failpoint", self._pass),
            mock.patch.object(log_module, "failpoint", self._pass),
            mock.patch.object(ticks, "uuid", mock.Mock(uuid4=lambda: mock.Mock(hex=self.unique()))),
        ):
            yield

    def _pass(self, name: str) -> None:
        if self.failpoint is not None and self.failpoint[0] == name:
            self.failpoint = (name, self.failpoint[1] - 1)
            if self.failpoint[1] == 0:
                self.process.crashed = True
                raise Crash(name)

    def _measure(self) -> float:
        """A stopwatch that shows any seconds, though never fewer than before."""
        self.stopwatch_s += self.measures.choice([0.0, 1e-7, 1e-5, 1e-3, 60.0])
        return self.stopwatch_s

    def unique(self) -> str:
        self.names += 1
        return f"attempt{self.names}"

    # ------------------------------------------------------------------ lives

    def run(self) -> None:
        self._register()  # or the input might be dropped before the operator has ever seen it
        self._feed()
        for _ in range(self.rng.randint(1, 5)):
            self._live_and_perhaps_die()
            self._between_lives()
        while self.source.commits_left:
            self._feed()
        self.may_freeze = False
        self._start(FaultPlan())
        self._work(self._policy(), batches=1 << 20)
        for frozen in self.frozen:
            self._wake(frozen)
        self._check()

    def _let_go_for_a_while(self) -> None:
        """A life under `none`, and one under another policy until that has saved everything anew; nothing dies."""
        self.failpoint, self.may_freeze = None, False
        self._start(FaultPlan())
        self._work(none(), batches=self.rng.randint(1, 3))
        policy = self._policy()
        while any(s.mode == "none" for s in self.output.state.standings):
            if not self.source.commits_left:  # nothing wakes the operator any more: from here on a loss would be one
                self.is_calm = True
                return
            self._feed()
            self._work(policy, batches=1)
        self.may_freeze = True

    def _live_and_perhaps_die(self) -> None:
        rng = self.rng
        # A second attempt would take an object with it; and an operator without state has no policy.
        may_let_go = self.definition.keeps_state and not self.definition.lives_in_process
        if not self.is_calm and not self.may_rot and may_let_go and rng.random() < 0.15:
            self._let_go_for_a_while()
        policy = self._policy()
        chance = 1.0 if self.is_calm else rng.random()
        self.failpoint = None
        faults = FaultPlan()
        if chance < 0.4:
            faults = FaultPlan(crash_at_call=rng.randint(1, 60), crash_after=rng.random() < 0.5)
        elif chance < 0.7:
            self.failpoint = (rng.choice(FAILPOINTS), rng.randint(1, 4))
        elif chance < 0.8:
            faults = FaultPlan(transient=0.02, ambiguous=0.05, repeated=0.1)
        elif chance < 0.9:
            faults = FaultPlan(repeated=0.3)  # of which nothing may be noticed
        try:
            self._start(faults)
            self._work(policy, batches=rng.randint(1, 5))
        except Crash:
            pass
        except StorageError as problem:
            require(problem.todo == "an injected fault", "an error of its own:", problem)
        self.failpoint = None
        if not self.is_calm and rng.random() < 0.3:
            self.faulty.power_loss()

    def _start(self, faults: FaultPlan) -> None:
        """A new process, which knows what is on the disk."""
        block_slice._known.clear()
        if self.definition.lives_in_process:
            self._lose_objects()
        self.process = self.faulty.other_process(faults)
        self.inputs = self._open_inputs(self.process)
        self.output = Log.open(Folder(self.process, "output"), self.clock)
        input_of(self.definition, self.inputs).require_same(self.output.state.standings)
        asked = self.operator.again_over([log.spec for log in self.inputs])
        require(asked.continuing(self.output.spec.operator) == self.definition, "another operator with another column")
        self._register()

    def _lose_objects(self) -> None:
        """Workers die with the process, or live on; some of them do."""
        for machine in self.machines:
            if self.rng.random() < 0.5:
                machine.end_processes()

    def _open_inputs(self, storage: Storage) -> tuple[Log, ...]:
        return tuple(Log.open(Folder(storage, log.spec.id), self.clock) for log in self.inputs)

    def _work(self, policy: Policy, batches: int) -> None:
        for number in range(batches):
            self.clock.advance(self.rng.choice([0.001, 0.02]))
            for log in self.inputs:
                log.refresh()
            self.dearest_us = max(
                [self.dearest_us, *(s.footprint_cost / 1e3 for s in self.output.state.standings if s)]
            )
            done = run_batch(
                Element(self.definition, policy, "set_aside", self.rng.choice([1, 60, 100_000])),
                self.inputs,
                self.output,
                lambda steps: self._run_steps(steps, policy),
                Writer("query", f"run{self.names}", number),
                self.clock,
            )
            if not done:
                break
            for p, d in enumerate(done):
                self._check_bounds(p, d, policy)
            if self.rng.random() < 0.5:
                self.rng.choice(self.machines).copy()
            if self.rng.random() < 0.3:
                self._register()
            if self.rng.random() < 0.4:
                self._feed()
            if self.rng.random() < 0.25:
                self._tidy_up()
            if self.late and self.rng.random() < 0.3:
                self.late.pop()()

    def _policy(self) -> Policy:
        rng = self.rng
        if not self.definition.keeps_state:
            return cec()
        if self.definition.lives_in_process:
            return instant(rng.choice(["1 us", "10 ms", "100 ms", "1 s"]))
        choices = [
            cec(),
            cec(extent=rng.choice([0, 7, 30])),
            cec(replay=rng.choice([0, 10, 50])),
            cec(extent=rng.choice(["1x", "1.5x"]), replay=rng.choice([20, 200])),
            cec(extent=5, interval=rng.choice(["1 us", "3 us"]), period="1 ms"),
            cec(recover_within="160 ms"),
            cec(slow=rng.choice([1, 5, 20]), every=rng.choice([1, 3, 15]), at_most=rng.choice([1, 5, 1_000])),
            cec(replay=rng.choice([20, 100]), slow=rng.choice([2, 10]), every=rng.choice([1, 10])),
            instant(rng.choice(["1 us", "10 ms", "100 ms"])),
        ]
        if self.is_calm:
            choices += [none(), none()]
        chosen = rng.choice(choices)
        return self._by_measures() if self.measures.random() < 0.2 and chosen.kind == "cec" else chosen

    def _by_measures(self) -> Policy:
        """Policies whose footprints depend on what is measured, and results do not."""
        pick = self.measures.choice
        return pick(
            [
                cec(extent=pick([0, 5]), interval=pick(["1 us", "1 ms", "100 ms"]), period=pick(["100 ms", "10 s"])),
                cec(replay=pick([0, 20]), slow=5, interval=pick(["1 us", "3 ms"]), period="3 ms"),
                cec(recover_within=pick(["1 us", "150 ms", "2 s", "1 min"])),
                cec(failures_per_day=pick([1e-3, 1, 1e9]), balance=pick([1, 1e3])),
                cec(extent="1x", failures_per_day=1e6, interval="2 us", period="1 ms"),
            ]
        )

    def _run_steps(self, steps: Sequence[Step], policy: Policy) -> list[Done]:
        done = [self._run_step(s, policy, self.output, self.inputs) for s in steps]
        for s in steps:
            if self.rng.random() < 0.1:
                self._zombie(s, policy)
        return done

    def _run_step(self, s: Step, policy: Policy, output: Log, inputs: tuple[Log, ...]) -> Done:
        cache = self.machines[s.partition].cache()
        chosen = input_of(self.definition, inputs).blocks(s.slice, s.partition)
        shares = tuple(PartialLog(log.storage, log.spec, blocks) for log, blocks in zip(inputs, chosen, strict=True))
        if self.rng.random() < 0.02:
            self._compact_away()
        try:
            logs = Logs(PartialLog(output.storage, output.spec), shares, lambda: (output, inputs))
            return step.run(s, Element(self.definition, policy, "set_aside"), logs, cache, self.clock)
        finally:
            cache.close()

    def _zombie(self, s: Step, policy: Policy) -> None:
        """Runs the step once more, now or much later, and leaves what it made without being accepted."""
        name = self.unique()
        again = Step(**{**{f: getattr(s, f) for f in Step.__slots__}, "attempt": f"{name}-{s.partition}"})
        storage = self.faulty.other_process()
        output = handle_on(Folder(storage, "output"), self.output.spec, self.output.state)

        def run() -> None:
            failpoint, self.failpoint = self.failpoint, None
            try:
                with suppress(TruncatedError):  # what it needs may be gone by now
                    live = Log.open(output.storage, self.clock)
                    self._run_step(again, policy, live, self._open_inputs(storage))
            finally:
                self.failpoint = failpoint

        if self.rng.random() < 0.5:
            run()
        else:
            self.late.append(run)

    def _publish(self, writer: Writer, tick: Tick) -> Any:
        """Publishes, or freezes right before; whoever starts meanwhile does not know of it."""
        if self.may_freeze and self.rng.random() < 0.03:
            self.frozen.append(lambda: self._publish_late(tick))
            self.process.crashed = True
            raise Crash("frozen")
        return _PUBLISH(tick, writer)

    def _publish_late(self, tick: Tick) -> None:
        """A driver that was frozen wakes up. It may only succeed if nobody has published since."""
        live = Log.open(Folder(self.faulty.other_process(), "output"), self.clock)
        tick._output = awake = handle_on(live.storage, live.spec, tick._base)
        nobody = live.state.standings == awake.state.standings
        try:
            _PUBLISH(tick, Writer("query", "frozen", 0))
        except (CollectedError, DroppedError):
            pass
        except ConflictError:
            require(not nobody, "refused, though nobody has published since")
        else:
            require(nobody, "two drivers have published the same batch")

    def _wake(self, frozen: Callable[[], None]) -> None:
        self.failpoint = None
        frozen()

    # ------------------------------------------------------------------ around it

    def _feed(self) -> None:
        """One more commit of one of the inputs, by a process to which nothing happens."""
        failpoint, self.failpoint = self.failpoint, None
        storage = self.faulty.other_process()
        self.source.feed(lambda number: Log.open(Folder(storage, self.inputs[number].spec.id), self.clock))
        self.failpoint = failpoint

    def _register(self) -> None:
        """As the driver does."""
        for number, log in enumerate(self.inputs):
            needs = input_of(self.definition, self.inputs).needs(number, self.output.state.standings, None)
            consumer_registry.register(log, CONSUMER, needs)

    def _tidy_up(self) -> None:
        """Somebody else compacts, truncates, collects and drops commits, while the process at hand works."""
        rng = self.rng
        failpoint, self.failpoint = self.failpoint, None
        storage = self.faulty.other_process()
        input_ = rng.choice(self._open_inputs(storage))
        output = Log.open(Folder(storage, "output"), self.clock)
        with ExitStack() as may_fail:
            if self.is_rotten:
                may_fail.enter_context(suppress(CorruptBlockError))
            if rng.random() < 0.7:
                compact(output, target_bytes=rng.choice([100, 100_000]), blocks_min=2, unique=self.unique)
            if rng.random() < 0.5:
                compact(input_, target_bytes=rng.choice([100, 100_000]), blocks_min=2, unique=self.unique)
            for log in (input_, output):
                if rng.random() < 0.5:
                    Levels(log, target_bytes=rng.choice([100, 100_000]), blocks_min=2, unique=self.unique).step()
        if not self.may_rot:
            self._truncate(input_, output)
        if rng.random() < 0.2:
            collect(rng.choice([input_, output]), grace_us=0)
        if rng.random() < 0.4:
            self._drop_commits(input_)
        self.failpoint = failpoint

    def _truncate(self, input_: Log, output: Log) -> None:
        rng = self.rng
        if rng.random() < 0.5:
            truncate(input_, before_offset=rng.choice([20, 1 << 40]), yield_to_consumers=True)
        if rng.random() < 0.3:
            self._see(output)
            truncate(output, before_offset=rng.choice([20, 1 << 40]))
        if rng.random() < 0.3:
            self._see(output)
            apply_retention(output, keep=rng.choice([0, 10, 1_000]))

    def _drop_commits(self, log: Log) -> None:
        log.fold()
        drop_commits(log, keep_commits=self.rng.choice([0, 4]), keep_us=0, every=2, unique=self.unique)

    def _compact_away(self) -> None:
        """While a task is on its way, the blocks that it is to read are put into others, and deleted."""
        failpoint, self.failpoint = self.failpoint, None
        for log in self._open_inputs(self.faulty.other_process()):
            compact(log, target_bytes=100_000, blocks_min=2, unique=self.unique)
            for _ in range(2):
                collect(log, grace_us=0)
        self.failpoint = failpoint

    def _between_lives(self) -> None:
        rng = self.rng
        output = Log.open(Folder(self.faulty.other_process(), "output"), self.clock)
        if self.may_rot:
            if rng.random() < 0.6:
                self._rot(output)
        elif rng.random() < 0.3:  # not while a batch is under way: with none kept, it would be as good as frozen
            self._drop_commits(output)
        if rng.random() < 0.2:
            self._look(output)
        if rng.random() < 0.4:
            self._tidy_up()
        if rng.random() < 0.5:
            self._feed()
        if self.frozen and rng.random() < 0.5:
            self._wake(self.frozen.pop(rng.randrange(len(self.frozen))))
        if self.late and rng.random() < 0.5:
            self.late.pop(rng.randrange(len(self.late)))()
        for machine in self.machines:
            chance = 1.0 if self.is_calm else rng.random()
            if chance < 0.3:
                machine.lose()
            elif chance < 0.6:
                machine.go_back()

    def _rot(self, output: Log) -> None:
        """One bit of a block is wrong from now on; what it held of results was seen before."""
        self._see(output)
        blocks = [block for p in range(self.partitions) for block in output.blocks(p)]
        if blocks:
            block = self.rng.choice(blocks)
            self.faulty.flip_bit(f"output/{block.file}", self.rng.randrange(8 * 16))
            self.is_rotten = True
            self.rotten.add(block.partition)

    # ------------------------------------------------------------------ what must hold

    def _check_bounds(self, partition: int, done: Done, policy: Policy) -> None:
        now = done.standing
        if done.recovery is not None and done.recovery.is_older:
            require(partition in self.rotten, "a recovery had to look for an older checkpoint")
            self.rotten.discard(partition)  # everything was saved anew
        if done.seconds == 0.0 or now.mode != "eventual":  # nobody ran it, or it is bounded by time
            return
        is_saved_once = self.definition.replays_windows
        limits = policy.asked(now.open, 0, None, tuples=0 if is_saved_once else done.tuples).limits
        if policy.budget is not None:
            require(now.credit_us is not None and now.credit_us <= policy.budget.interval_us, "credit", now.credit_us)
            forgiven_us = max(100 * policy.budget.interval_us, self.dearest_us)  # one may be written however dear
            require(now.credit_us >= -forgiven_us, "more is owed than is forgiven", now.credit_us)
        if policy.recover_within_us is None and policy.interval_us is None:
            require(now.replay <= limits.replay, "replay", now.replay, "is above", limits.replay)
            if self.definition.kind == "barrier" and now.replay:
                return  # the results since the oldest tuple without a footprint are read, too
            # At worst every window was saved in this step.
            require(now.extent <= max(limits.extent, now.open), "extent", now.extent, "is above", limits.extent)

    def _see(self, log: Log) -> None:
        """Remembers results, before they are dropped."""
        for p in range(self.partitions):
            self.seen[p].append(published_results(log, p, max(self.seen_until[p], log.state.starts[p])))
            require(log.state.starts[p] <= self.seen_until[p], "results were dropped that nobody had seen")
            self.seen_until[p] = log.state.ends[p]
        self.aside |= _set_aside(log)

    def _look(self, output: Log) -> None:
        """Somebody who is no part of it looks at the open windows, and tries out whether a recovery would work."""
        standings, inputs = output.state.standings, self._open_inputs(self.faulty.other_process())
        if any(standing.lets_go for standing in standings):
            return
        known = definition_of(output.spec, "output", [log.spec for log in inputs])
        require(known.to_json() == self.definition.to_json(), "another operator than stream.json says")
        failpoint, self.failpoint = self.failpoint, None
        if known.can_compute:  # a user's function is not known to others
            self._compare_windows(current_windows(output, inputs), standings)
        if not self.is_rotten:
            with mock.patch.object(checkpoint_audit, "_inputs_of", return_value=inputs):
                problems = checkpoint_audit.audit(output).problems
            require(not problems, "a checkpoint is not what the manifest says:", problems)
        self.failpoint = failpoint

    def _compare_windows(self, windows: pa.Table, standings: Sequence[Standing]) -> None:
        """The open windows as somebody sees them are those that the specification has open."""
        for p, standing in enumerate(standings):
            bound = standing.stands.bound if standing.marks is not None else None
            expected = self.operator.expected(self.source.serialised(p, bound), bound).windows
            found = windows.filter(pc.equal(windows.column("_partition"), p)).drop_columns(["_partition"])
            require(len(found) == standing.open, len(found), "windows are shown,", standing.open, "are open")
            if expected is not None:
                right = pa.Table.from_pylist(expected, schema=found.schema)
                require(bits(found).equals(bits(right)), "open windows: " + _difference(p, found, right))

    def _check(self) -> None:
        log = Log.open(Folder(self.faulty.other_process(), "output"), self.clock)
        inputs = self._open_inputs(self.faulty.other_process())
        self._see(log)
        aside: list[Row] = []
        is_finished = all(input_.state.finished for input_ in inputs)
        require(log.state.finished == is_finished, "the end of the inputs was not passed on")
        for p in range(self.partitions):
            boundary = self.source.boundary(inputs, p)
            tuples = self.source.serialised(p, boundary)
            taken = log.state.standings[p].input if log.state.standings else 0
            require(taken == len(tuples), "input is left over:", taken, "of", len(tuples), "tuples were taken in")
            told = END_OF_TIME if is_finished else self.definition.result_boundary(boundary, taken)
            is_told = not log.state.standings or log.state.boundaries[p] == told
            require(is_told, "the boundary is", log.state.boundaries[p], "and not", told)
            found = pa.concat_tables(self.seen[p]).combine_chunks()
            expected = self.operator.expected(tuples, boundary)
            aside += expected.aside
            require(found.equals(expected.results), _difference(p, found, expected.results))
            self.results.append(found)
        names = aside[0].keys() if aside else ()
        kept = [{name: row[name] for name in names} for row in self.aside.values()]
        require(sorted(kept, key=repr) == sorted(aside, key=repr), len(kept), "are set aside, it should be", len(aside))


def _set_aside(log: Log) -> dict[int, Row]:
    """What the side log holds, by offset."""
    found = ((row, block.reason) for block in log.blocks(log.spec.late) for row in log.read_block(block).to_pylist())
    return {row.pop("_offset"): {**row, "_reason": reason} for row, reason in found}


def _difference(partition: int, found: pa.Table, expected: pa.Table) -> str:
    ours, theirs = found.to_pylist(), expected.to_pylist()
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    return (
        f"partition {partition} has {len(ours)} results, {len(theirs)} are right; result {at} is "
        f"{ours[at : at + 1]} and should be {theirs[at : at + 1]}"
    )
