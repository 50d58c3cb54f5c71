"""One step of an operator on one partition: input tuples of a few commits in, one block out. What a task runs.

A step publishes nothing. It writes a block under a name of its own and leaves its state in the cache; whether either
counts is decided by whoever publishes the manifest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa

from strandline.checkpoint.policy import Policy
from strandline.clock import Clock, stopwatch_s
from strandline.failpoint import failpoint
from strandline.log import block as blocks_
from strandline.log.block import Block, Kind
from strandline.log.log import Log
from strandline.log.standing import EXTENT_NS, REPLAY_NS, Standing
from strandline.log.storage import create_once
from strandline.operators.operator import Footprints, Operator
from strandline.operators.plan import Plan
from strandline.operators.record import INPUT
from strandline.recovery.recover import Recovery, recover, results_of
from strandline.recovery.state_cache import StateCache


@dataclass(frozen=True, slots=True)
class Step:
    """What to do: take in the input up to `input_end`, from where the operator stands."""

    partition: int
    before: Standing | None
    """Where the operator stands; None if it has never worked."""
    output_end: int
    output_boundary: int | None
    input_start: int
    """Where an operator that has never worked begins."""
    input_end: int
    input_commit: int
    boundary: int | None
    """No tuple before this time follows the input tuples of this step."""
    attempt: str
    """Used once: names the block and the state that this attempt leaves."""
    elapsed_us: int
    """Since the step before."""
    host: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """What a step made of it."""

    block: Block | None
    standing: Standing
    boundary: int | None
    tuples: int
    results: int
    opened: int
    checked: int
    state_bytes: int
    """Left for the next step."""
    seconds: float
    checkpoint_s: float
    recovery: Recovery | None


def run(
    step: Step,
    plan: Plan,
    policy: Policy,
    output: Log,
    input_: Log,
    cache: StateCache,
    clock: Clock,
    whole_logs: Callable[[], tuple[Log, Log]] | None = None,
) -> Done:
    """Runs the step; `output` and `input_` are read only, but for the new block.

    They may know nothing but the blocks of this step: `whole_logs` gives the two that recovery can search.
    """
    began_s = stopwatch_s()
    operator, recovery = _operator(step, plan, whole_logs or (lambda: (output, input_)), cache)
    operator.begin()
    recovered_s = stopwatch_s()
    first = operator.input_end
    tables = _Tables()
    for table in results_of(input_, plan, step.partition, first, step.input_end):
        for columns in operator.feed(table):
            tables.add(Kind.RESULT, columns)
    operator.state.arrays.header[INPUT] = step.input_end
    if plan.window.has_times and step.boundary is not None and (due := operator.close_until(step.boundary)):
        tables.add(Kind.RESULT, due)
    fed_s = stopwatch_s()
    position = step.output_end + tables.rows
    saved = _save(operator, policy, step, position, clock)
    if saved is not None:
        tables.add(Kind.G_OPEN, saved.opened)
        tables.add(Kind.G_CHECK, saved.checked)
    saved_s = stopwatch_s()
    failpoint("before-block")
    block = tables.write(output, step)
    failpoint("after-block")
    written_s = stopwatch_s()
    end = step.output_end + tables.rows
    standing = _standing(operator, policy, step, end, clock)
    whole = recovery is not None or step.before is None
    left = cache.leave(step.attempt, step.before.attempt if step.before else "", operator.state, whole=whole)
    failpoint("after-state")
    tuples = step.input_end - first
    work = _Work(tuples, fed_s - recovered_s, tables.rows, written_s - saved_s, recovery)
    return Done(
        block,
        work.priced(standing, step.before),
        step.boundary if plan.window.has_times else step.input_end,
        tuples,
        tables.count(Kind.RESULT),
        tables.count(Kind.G_OPEN),
        tables.count(Kind.G_CHECK),
        left,
        stopwatch_s() - began_s,
        saved_s - fed_s,
        recovery,
    )


def _operator(
    step: Step, plan: Plan, whole_logs: Callable[[], tuple[Log, Log]], cache: StateCache
) -> tuple[Operator, Recovery | None]:
    before = step.before
    if before is None:
        operator = Operator.new(plan)
        operator.state.arrays.header[INPUT] = step.input_start
        return operator, None
    state = cache.open(before.attempt, plan.width, timed=plan.window.has_times)
    if state is not None and state.arrays.header[INPUT] == before.input:
        return Operator(plan, state), None
    cache.close()
    output, input_ = whole_logs()
    return recover(output, input_, plan, step.partition, before, step.output_end, step.output_boundary)


def unchanged(step: Step) -> Done | None:
    """What a step makes of no tuples and a boundary that closes no window: nothing, so that nobody has to run it."""
    before, boundary = step.before, step.output_boundary
    if before is None or step.input_end != before.input:
        return None
    if step.boundary is not None and (boundary is None or step.boundary > boundary):
        if before.open and (before.due is None or before.due <= step.boundary):
            return None
        boundary = step.boundary
    standing = replace(before, commit=step.input_commit)
    return Done(None, standing, boundary, 0, 0, 0, 0, 0, 0.0, 0.0, None)


def _save(operator: Operator, policy: Policy, step: Step, position: int, clock: Clock) -> Footprints | None:
    if policy.kind == "none":
        return None
    if policy.kind == "instant":
        return operator.save_all(position) if policy.whole_is_due(step.before, clock.now_us()) else None
    if step.before is not None and step.before.mode != "eventual":
        operator.mark_unsaved()
    limits = policy.limits(operator.state.open_windows, step.elapsed_us, step.before)
    return operator.save(position, limits)


def _standing(operator: Operator, policy: Policy, step: Step, end: int, clock: Clock) -> Standing:
    extent = operator.extent(end)
    standing = Standing(
        input=step.input_end,
        commit=step.input_commit,
        open=extent.open_windows,
        oldest=extent.oldest_input,
        extent=end - extent.oldest_output,
        replay=step.input_end - extent.oldest_input,
        mode=policy.mode,
        attempt=step.attempt,
        host=step.host,
        due=operator.due,
    )
    if policy.kind == "none":
        return replace(standing, oldest=step.input_end, extent=0, replay=0)
    if policy.kind == "instant":
        return _since_the_last_whole(standing, policy, step, end, clock)
    return standing


def _since_the_last_whole(standing: Standing, policy: Policy, step: Step, end: int, clock: Clock) -> Standing:
    if policy.whole_is_due(step.before, clock.now_us()):
        saved = standing.open
        return replace(standing, oldest=step.input_end, extent=saved, replay=0, saved=saved, saved_us=clock.now_us())
    assert step.before is not None
    before = step.before
    return replace(
        standing,
        oldest=before.oldest,
        extent=before.extent + end - step.output_end,
        replay=step.input_end - before.oldest,
        saved=before.saved,
        saved_us=before.saved_us,
    )


class _Tables:
    """What a step has to write, kind by kind."""

    def __init__(self) -> None:
        self._parts: list[tuple[Kind, list[pa.Array]]] = []
        self.rows = 0

    def add(self, kind: Kind, columns: list[pa.Array]) -> None:
        if len(columns[0]):
            self._parts.append((kind, columns))
            self.rows += len(columns[0])

    def count(self, kind: Kind) -> int:
        return sum(len(columns[0]) for k, columns in self._parts if k is kind)

    def write(self, output: Log, step: Step) -> Block | None:
        """The block, durable, under a name that nobody else uses; None if there is nothing to write."""
        if not self.rows:
            return None
        spec = output.spec
        data = blocks_.encode_parts(self._parts, spec, step.output_end)
        file = spec.file(step.partition, step.output_end, step.attempt)
        block = blocks_.describe(data, spec, step.partition, step.output_end, file)
        create_once(output.storage, file, data)
        return block


@dataclass(frozen=True, slots=True)
class _Work:
    """What was done and how long it took, to price a recovery."""

    tuples: int
    feed_s: float
    written: int
    write_s: float
    recovery: Recovery | None

    def priced(self, standing: Standing, before: Standing | None) -> Standing:
        """The standing with what a tuple of extent and replay costs, as far as it is known."""
        extent_ns, replay_ns = before.unit_costs if before else (EXTENT_NS, REPLAY_NS)
        r = self.recovery
        if r is None:
            extent, extent_s, replay, replay_s = self.written, self.write_s, self.tuples, self.feed_s
            recovered = before.recovered if before else None
        else:  # nothing prices a recovery as well as a recovery
            extent, extent_s, replay, replay_s = r.extent, r.load_s, r.replayed, r.replay_s
            recovered = {
                "at_input": before.input if before else 0,
                "extent": r.extent,
                "replayed": r.replayed,
                "load_s": round(r.load_s, 4),
                "replay_s": round(r.replay_s, 4),
            }
        if extent >= _SAMPLE_MIN:
            extent_ns = _towards(extent_ns, extent_s * 1e9 / extent)
        if replay >= _SAMPLE_MIN:
            replay_ns = _towards(replay_ns, replay_s * 1e9 / replay)
        return replace(standing, extent_ns=round(extent_ns, 1), replay_ns=round(replay_ns, 1), recovered=recovered)


def _towards(estimate: float, sample: float) -> float:
    """A little nearer to what was measured; the first run of a kernel, which compiles it, says nothing."""
    return estimate + _WEIGHT * (min(sample, _OUTLIER * estimate) - estimate)


_OUTLIER = 3.0
_SAMPLE_MIN = 1_000
_WEIGHT = 0.3
