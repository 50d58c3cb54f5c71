"""A tick of an operator, without Spark: one look, one decision, both lineages, at most one commit.

An operator without a bound waits for its inputs for ever: it has only a stable lineage, and needs no decision.

Spark's driver uses the same parts. There, the work of a partition is a task.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace

from strandline.clock import Clock
from strandline.errors import StorageError
from strandline.failpoint import failpoint
from strandline.inputs.input import Input, InputBatch, InputSlice
from strandline.inputs.replicas.replica_set import MISSING
from strandline.log.operator_state.input_mark import Marks
from strandline.log.operator_state.outage import ForkStanding, Outage
from strandline.log.stream.append_commit import Append
from strandline.log.stream.block import Block
from strandline.log.stream.block_sequence import control_block
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.operators.versions import version_in
from strandline.running import fork as forks_
from strandline.running import step as steps_
from strandline.running.batch import set_aside
from strandline.running.decision import Decision, Situation, decide, ended
from strandline.running.element import Element
from strandline.running.fork import Caches, Forked, ForkStep
from strandline.running.inputs_at_sight import look
from strandline.running.promise import Promise
from strandline.running.step import Done, Logs, Step, unchanged
from strandline.running.watch import Watch
from strandline.units import latest

PROBLEM_CHARS_MAX = 500
"""The greatest length of the problem that an append states for a fork that failed."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work in one partition: the stable lineage first, then the fork, whose tuples follow behind."""

    partition: int
    first: int
    """The offset of the first tuple that is written."""
    stable: Step | None
    fork: ForkStep | None


@dataclass(frozen=True, slots=True)
class Worked:
    """The outcome of the work in one partition."""

    stable: Done | None
    fork: Forked | None
    problem: str = ""
    """The reason why the fork could not go on; the blocks that it wrote before do not count."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """The outcome of a tick."""

    watch: Watch
    done: tuple[Done, ...] = ()
    """The outcome of the stable lineage per partition; empty if the tick published nothing."""
    forked: tuple[Forked | None, ...] = ()


def run(
    work: Work, element: Element, logs: Logs, caches: Caches, clock: Clock, fork_logs: Logs | None = None
) -> Worked:
    """Does the work of one partition, as a task does. Publishes nothing. A fork may have logs of its own."""
    done = None if work.stable is None else steps_.run(work.stable, element, logs, caches.stable, clock)
    first = done.blocks[-1].end if done is not None and done.blocks else work.first
    fork = work.fork
    if fork is not None and work.stable is not None and done is not None:
        fork = fork.behind(work.stable, done.standing)
    if fork is None or (fork.silent_until is not None and fork.until <= fork.silent_until):
        return Worked(done, None)
    try:
        return Worked(done, forks_.run(fork, first, element, fork_logs or logs, caches))
    except StorageError:
        if not fork.unreachable:
            raise
        return Worked(done, None)  # to make the fork anew, the step would have to read an input that cannot be read
    except Exception as problem:  # a guess that fails must not prevent results
        replicas = [(fork_logs or logs).inputs[number].storage.url for number in element.replicas]
        if isinstance(problem, MISSING) and any(map(problem.lies_in, replicas)):
            raise  # another replica has the same tuples
        return Worked(done, None, f"{type(problem).__name__}: {problem}"[:PROBLEM_CHARS_MAX])
    finally:
        caches.stable.close()
        caches.fork.close()


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator over its inputs and with its output."""

    element: Element
    promise: Promise | None
    """The bound and the modes; None: there is no bound."""
    input: Input
    output: Log
    clock: Clock
    unreadable: frozenset[int] = frozenset()
    """The inputs that a tick does not refresh: a task just failed to read them, or no replica has what was taken in."""

    def tick(self, watch: Watch, run_all: Callable[[Sequence[Work]], Sequence[Worked]], writer: Writer) -> Ticked:
        """Looks, decides, does the work and publishes it; returns the watch that the driver has to remember."""
        watch, tick = self.next(watch)
        if tick is None:
            return Ticked(watch)
        tick.run(run_all)
        return Ticked(watch, *tick.publish(writer))

    @property
    def due(self) -> frozenset[int]:
        """The partitions whose state has to be saved by now, although no tuple has come."""
        base, now_us = self.output.state, self.clock.now_us()
        at_risk = () if base.finished else enumerate(base.standings)
        return frozenset(p for p, standing in at_risk if self.element.policy.is_overdue(standing, now_us))

    def next(self, watch: Watch) -> tuple[Watch, Tick | None]:
        """Looks and decides; returns the watch that the driver has to remember, and the tick, None without work."""
        base, many = self.output.state, self.element.tuples_max
        if self.promise is None:  # all that has come is taken in, and nothing else has to be decided
            due = self.due
            new = self.input.next(base, many) or (self.input.nothing(base, many) if due else None)
            return watch, None if new is None else Tick(self, _STABLE, new, watch, must_save=due)
        wall_us, now_us = self.clock.now_us(), self.clock.steady_us()
        marks = self.input.places(base, self.unreadable)
        watch, sights = look(self.input.logs, marks, watch, self.unreadable)
        taken = self.input.taken_until(base)
        watch = watch.looked(sights, now_us, taken, self.promise.bound_us, base.outage)
        before = base.outage or Outage(since_us=wall_us)
        is_stuck = watch.unreachable or not self.input.is_behind(base)
        batch = None if is_stuck else self.input.next(base, many)
        catches_up = not watch.unreachable and (batch is None or batch.takes_all)
        situation = Situation(now_us, watch, before, taken, batch is not None, catches_up, wall_us)
        decision = decide(situation, self.promise)
        if decision.begins_anew:
            watch = watch.all_eaten()
        is_news = decision.outage != base.outage or decision.ends or decision.fork_until is not None
        if base.finished or (batch is None and not is_news):
            return watch, None
        return watch, Tick(self, decision, batch, watch, marks)


_STABLE = Decision(Outage(), undoes=False, begins_anew=False, ends=False, fork_until=None)
"""The decision of an operator without a bound."""


class Tick:
    """The work of one tick, from its decision to its commit."""

    def __init__(
        self,
        operation: Operation,
        decision: Decision,
        batch: InputBatch | None,
        watch: Watch,
        marks: Sequence[Marks] = (),
        must_save: Set[int] = frozenset(),
    ) -> None:
        """Takes the `marks` of an operator with a bound; partitions in `must_save` run a step in any case."""
        self._operation = operation
        self._element = operation.element
        self._output = operation.output
        self._base = operation.output.state
        self._decision = decision
        self._marks = marks
        self._batch = batch
        self.watch = watch
        """The watch that the driver has to remember once this tick is published."""
        self._must_save = must_save
        self._name = uuid.uuid4().hex if operation.promise else ""
        self._partitions = operation.output.spec.partitions
        mode = operation.element.policy.mode
        self._standings = list(self._base.standings) or (operation.input.beginning(mode) if marks else [])
        begun = [ForkStanding(None, 0, None, end) for end in self._base.ends[: self._partitions]]
        self._forks = list(decision.outage.forks) or begun
        self._blocks: list[list[Block]] = [[] for _ in range(self._partitions)]
        """The blocks per partition, in the order of offsets."""

    # ------------------------------------------------------------------ the work

    def run(self, run_all: Callable[[Sequence[Work]], Sequence[Worked]]) -> None:
        """Runs the work of both lineages, as decided."""
        if self._decision.undoes:
            self._undo()
            failpoint("after-undo")
        if self._decision.begins_anew:
            self._forks = [fork.begun_anew(fork.problem) for fork in self._forks]
        base, steps, idle = self._base, dict[int, Step](), dict[int, Done]()
        if self._batch is None:  # the stable lineage stands still
            idle = {p: Done((), standing, None) for p, standing in enumerate(self._standings)}
        else:
            name = uuid.uuid4().hex
            elapsed_us = max(0, self._operation.clock.now_us() - base.published_us) if base.published_us else 0
            # In the first step of a later version all partitions run: no partition goes back behind that version.
            is_revision = version_in(self._element.definition.revised) != version_in(base.revised)
            for p, taken in enumerate(self._batch.slices):
                before = self._standings[p] if base.standings else None
                step = Step(p, before, self._end(p), taken, f"{name}-{p}", elapsed_us)
                outcome = None if is_revision or p in self._must_save else unchanged(step, self._element)
                if outcome is None:
                    steps[p] = step
                else:
                    idle[p] = outcome
        works = [Work(p, self._end(p), steps.get(p), self._fork_step(p, steps.get(p))) for p in range(self._partitions)]
        due = [work for work in works if work.stable is not None or work.fork is not None]
        worked = {work.partition: own for work, own in zip(due, run_all(due) if due else (), strict=True)}
        every = [worked.get(p, Worked(None, None)) for p in range(self._partitions)]
        self.done = [own.stable or idle[p] for p, own in enumerate(every)]
        if self._batch is not None:
            standings = self._batch.noted([d.standing for d in self.done])
            self.done = [replace(d, standing=standing) for d, standing in zip(self.done, standings, strict=True)]
        self.forked = tuple(own.fork for own in every)
        for p, own in enumerate(every):
            self._blocks[p] += self.done[p].blocks
            if own.fork is not None:
                self._blocks[p] += own.fork.blocks
                self._forks[p] = own.fork.standing
                self.done[p] = replace(self.done[p], standing=self.done[p].standing.behind(own.fork.results))
            if own.problem:
                self._end_fork(p, own.problem)

    def _end_fork(self, p: int, problem: str) -> None:
        """Ends a fork that has failed: undoes its tuples. It writes no more until the stable lineage moves."""
        fork = self._forks[p]
        if fork.tuples:
            self._write(p, [Kind.UNDO], "failed")
            self.done[p] = replace(self.done[p], standing=self.done[p].standing.behind(1))
            fork = fork.undone(self._end(p))
        self._forks[p] = fork.begun_anew(problem)

    def _undo(self) -> None:
        """Undoes all tentative tuples."""
        for p, fork in enumerate(list(self._forks)):
            if fork.tuples:
                self._write(p, [Kind.UNDO], "undo")
                self._standings[p] = self._standings[p].behind(1)
                self._forks[p] = fork.undone(self._end(p))

    def _fork_step(self, p: int, stable: Step | None) -> ForkStep | None:
        """Returns the step of the fork, behind that of the stable lineage; None if it has nothing to take in."""
        fork, promise, until = self._forks[p], self._operation.promise, self._decision.fork_until
        if until is None or (fork.problem and not self._moves(p)):
            return None
        silent = self._complete_until(p) if stable is None else self._marks[p].stands.bound
        come = latest(fork.bound, silent)
        if come is not None and until <= come:
            return None
        own = self._marks[p]
        base = Step(
            partition=p,
            before=self._base.standings[p] if self._base.standings else None,
            output_end=self._base.ends[p],
            slice=InputSlice(own.stands, None, None, self._element.tuples_max, inputs=own.inputs),
            attempt="",
            elapsed_us=0,
        )
        return ForkStep(
            base,
            fork,
            until,
            silent,
            f"{self._name}-fork-{p}",
            self.watch.unreachable,
            tuple(log.state.seq for log in self._operation.input.logs),
            tuple(self.watch.guesses_of(number, log, p) for number, log in enumerate(self._operation.input.logs)),
            takes_over=promise is not None and promise.reconcile == "undo" and self._batch is None,
            complete_until=self._complete_until(p),
            results_from=own.inputs[0].first if self._standings[p].marks is None else 0,
        )

    def _complete_until(self, p: int) -> int | None:
        """Returns the time before which the stable lineage has all tuples, if it takes in all of its slice."""
        return self._marks[p].stands.bound if self._batch is None else self._batch.complete_until(p)

    def _moves(self, p: int) -> bool:
        """Returns whether the stable lineage moves in a partition."""
        if self._batch is None:
            return False
        taken = self._batch.slices[p]
        has_tuples = taken.end is not None and taken.end > taken.begin.ordinal
        return has_tuples or self._batch.complete_until(p) != self._marks[p].stands.bound

    # ------------------------------------------------------------------ the commit

    def publish(self, writer: Writer) -> tuple[tuple[Done, ...], tuple[Forked | None, ...]]:
        """Publishes the work, if there is any; returns the outcomes of both lineages per partition.

        If an operator without a bound once had an outage, and nothing is tentative, that outage stays on record.
        """
        base, output, has_bound = self._base, self._output, self._operation.promise is not None
        outage = self._decision.outage
        if outage.forks or any(self.forked) or any(fork.problem for fork in self._forks):
            kept = () if self._decision.begins_anew else outage.left_out
            left_out = sorted({*kept, *self._decision.left_out}) if any(self.forked) else outage.left_out
            outage = replace(outage, forks=tuple(self._forks), left_out=tuple(left_out))
        is_over = self._decision.ends and (self._batch is None or self._batch.is_done([d.standing for d in self.done]))
        if is_over:
            self._end_reconciliation()
            outage = ended(outage, self._operation.clock.now_us())
        if self._batch is None and outage == base.outage:
            return (), ()
        failpoint("before-output")
        done = tuple(replace(d, blocks=tuple(own)) for d, own in zip(self.done, self._blocks, strict=True))
        standings = [d.standing for d in done]
        on_record = base.outage if base.outage is not None and base.outage.state == "STABLE" else None
        batch = Append(
            [*(b for d in done for b in d.blocks), *set_aside(output, base, done)],
            writer=writer,
            standings=standings,
            boundaries=[latest(b, d.boundary) for b, d in zip(base.boundaries, done, strict=True)],
            revised=base.revised if self._batch is None else self._element.definition.revised,
            finished=self._batch is not None and self._batch.is_last(standings),
            outage=outage if has_bound else on_record,
            durability=self._element.durability,
        )
        output.append(batch, base)
        if has_bound:
            failpoint("after-reconciliation" if is_over else f"after-{outage.state}")
        return done, self.forked

    def _end_reconciliation(self) -> None:
        """Undoes all tentative tuples, and marks them all as corrected."""
        for p, fork in enumerate(self._forks):
            kinds = [*([Kind.UNDO] if fork.tuples else ()), *([Kind.REC_DONE] if fork.published else ())]
            if kinds:
                self._write(p, kinds, "done")
                self.done[p] = replace(self.done[p], standing=self.done[p].standing.behind(len(kinds)))

    def _write(self, partition: int, kinds: Sequence[Kind], word: str) -> None:
        """Writes control tuples behind all tuples that are written so far."""
        attempt = f"{self._name}-{word}-{partition}"
        self._blocks[partition].append(control_block(self._output, partition, self._end(partition), kinds, attempt))

    def _end(self, partition: int) -> int:
        """Returns the offset behind all tuples that are written so far."""
        own = self._blocks[partition]
        return own[-1].end if own else self._base.ends[partition]


def run_batch(
    element: Element,
    inputs: Sequence[Log],
    output: Log,
    run_steps: Callable[[Sequence[Step]], Sequence[Done]],
    writer: Writer,
    clock: Clock,
) -> list[Done]:
    """Takes in some of the new tuples of the inputs and publishes the results.

    Returns an empty list if no tuple is new, and no state has to be saved by now (see `overdue`).
    """

    def run_all(works: Sequence[Work]) -> list[Worked]:
        return [Worked(done, None) for done in run_steps([work.stable for work in works if work.stable is not None])]

    return list(
        Operation(element, None, element.input(inputs), output, clock).tick(Watch.fresh(0), run_all, writer).done
    )
