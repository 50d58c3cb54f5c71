"""One step of an operator on one partition: input tuples of some commits in, blocks out. Tasks run steps.

A step publishes nothing. It writes blocks under names of its own and leaves its state in the cache. The driver that
publishes the manifest decides whether either counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from strandline.checkpoint.footprint_cost import FootprintCost
from strandline.checkpoint.missed_target import MissedTarget
from strandline.checkpoint.saving import Occasion, after_a_pause, save, standing_after, with_costs
from strandline.clock import Clock, stopwatch_s
from strandline.errors import StreamMismatchError
from strandline.failpoint import failpoint
from strandline.inputs.input import InputSlice, Piece, ReplayPlaces
from strandline.inputs.position import after_silence
from strandline.log.operator_state import loss_record
from strandline.log.operator_state.standing import EXTENT_NS, REPLAY_NS, Standing, towards
from strandline.log.stream.block import Block
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.operators.kernels.kernel_cache import TALLY
from strandline.operators.operator import Operator, OtherVersionError
from strandline.recovery.recover import Recovery, Stand, recover
from strandline.recovery.without_replay import recover_without_replay
from strandline.running.element import Element
from strandline.running.state.live_operators import LiveOperator
from strandline.running.state.state_cache import StateCache
from strandline.running.step_output import StepOutput
from strandline.units import is_before
from strandline.wording import plural

WINDOWS_MAX = 1 << 20
"""The number of windows that a step opens and closes before it stops: this bounds its state and its duration."""
ROWS_MIN = 1 << 12
"""The least size of a piece: a step of fewer tuples still takes in so many, if there are; smaller pieces do not pay."""
ASIDE_BYTES_MAX = 16 << 20
"""The size of the set-aside tuples at which a step stops: all of them go through the driver."""


@dataclass(frozen=True, slots=True)
class Step:
    """The task of a step: to take in a slice of the input, or a good part of it."""

    partition: int
    before: Standing | None
    """The standing of the operator before the step; None if it has never worked."""
    output_end: int
    slice: InputSlice
    """The tuples to take in."""
    attempt: str
    """A name that is used once, for the block and the state that this attempt leaves."""
    elapsed_us: int
    """The time since the step before."""
    host: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a step."""

    blocks: tuple[Block, ...]
    standing: Standing
    boundary: int | None
    tuples: int
    results: int
    opened: int
    checked: int
    state_bytes: int
    """The size of the state left for the next step."""
    seconds: float
    checkpoint_s: float
    recovery: Recovery | None
    aside: Mapping[str, Sequence[pa.Table]] = field(default_factory=dict)
    """The set-aside tuples, which could not be computed, by reason; columns that a table does not have are null."""
    taken: int = 0
    """The number of results among the input tuples: all tuples except the footprints of the upstream operator."""
    footprint_s: float = 0.0
    """The seconds that went into G-checks, writing them included."""
    missed: tuple[MissedTarget, ...] = ()
    """The targets of the policy that cannot be met."""

    @classmethod
    def idle(cls, standing: Standing, boundary: int | None) -> Done:
        """Returns the outcome of no step: the operator has this standing, and its results have this boundary."""
        return cls((), standing, boundary, 0, 0, 0, 0, 0, 0.0, 0.0, None)


@dataclass(frozen=True, slots=True)
class Logs:
    """The logs that a step reads and writes. They may know only the blocks of this step."""

    output: Log
    inputs: tuple[Log, ...]
    opened: Callable[[], tuple[Log, tuple[Log, ...]]] | None = None
    """Opens the logs as recovery can search them; None if they are these logs."""

    def whole(self) -> tuple[Log, tuple[Log, ...]]:
        """Returns output and inputs as recovery can search them."""
        return self.opened() if self.opened is not None else (self.output, self.inputs)


def run(step: Step, element: Element, logs: Logs, cache: StateCache, clock: Clock) -> Done:
    """Runs the step: writes its blocks, leaves its state in the cache, publishes nothing."""
    began_s = stopwatch_s()
    input_, begin = element.input(logs.inputs), step.slice.begin
    places = input_.edges()
    operator, recovery = operator_before(step, element, logs, cache, places)
    operator.begin()
    if element.definition.lives_in_process and begin.bound is not None:
        operator.advance(begin.bound)  # time may have passed without a step
    recovered_s = stopwatch_s()
    first = operator.input_end
    output = StepOutput(logs.output, step.partition, step.output_end, step.attempt)
    rows = min(operator.rows_at_once, max(step.slice.tuples_max, ROWS_MIN))
    pieces = input_.ahead(step.slice, step.partition, first, rows)
    boundary, taken = _feed(operator, step.slice, pieces, output, places)
    time, largest = places.reached(boundary, step.slice.time)
    for columns in operator.aside.closed:
        output.add(Kind.CLOSED, columns)
    fed_s, feed_s = stopwatch_s(), stopwatch_s() - recovered_s - output.write_s
    tuples, kernels_s = operator.input_end - first, TALLY.seconds
    now_us, is_other = clock.now_us(), recovery is not None and recovery.is_other
    occasion = Occasion(step.before, now_us, step.elapsed_us, is_other, largest, tuples)
    saved = save(operator, element.policy, occasion, output.end)
    operator.end()
    saved_s, kernels_s = stopwatch_s(), TALLY.seconds - kernels_s
    output.add(Kind.G_OPEN, saved.footprints.opened)
    output.add(Kind.G_CHECK, saved.footprints.checked)
    blocks = output.finish()
    standing = standing_after(operator, element.policy, step.before, (step.output_end, output.end), saved)
    counted = step.before.results if step.before else 0
    results = None if counted is None else counted + output.count(Kind.RESULT)
    standing = replace(standing, attempt=step.attempt, host=step.host, results=results)
    standing = places.noted(standing, step.slice)
    aside = _with(operator.aside.tables, recovery)
    if recovery is not None and recovery.losses:
        losses = [replace(loss, at_us=now_us) for loss in recovery.losses]
        recovery = replace(recovery, losses=tuple(losses), aside={})
        standing = replace(standing, losses=loss_record.add(logs.output.storage, step.attempt, standing.losses, losses))
    left = _leave(operator, step, cache, places, whole=recovery is not None or step.before is None)
    failpoint("after-state")
    work = _Work(tuples, feed_s, output.rows, output.write_s, recovery)
    checked, save_s = output.count(Kind.G_CHECK), max(0.0, saved_s - fed_s - kernels_s)
    cost = FootprintCost(saved.footprints.rows, checked, output.rows, save_s, output.write_s, output.store_s)
    return Done(
        blocks,
        with_costs(work.priced(standing, step.before), element.policy, occasion, cost),
        element.definition.result_boundary(time, operator.input_end),
        tuples,
        output.count(Kind.RESULT),
        output.count(Kind.G_OPEN),
        checked,
        left,
        stopwatch_s() - began_s,
        saved_s - fed_s,
        recovery,
        aside,
        taken,
        cost.checked_s,
        saved.missed,
    )


def _leave(operator: Operator, step: Step, cache: StateCache, places: ReplayPlaces, *, whole: bool) -> int:
    """Leaves the operator to the next step, in this process or as arrays on disk; returns how many bytes it wrote."""
    if not operator.definition.keeps_state:
        return 0
    if operator.definition.lives_in_process:
        cache.leave_operator(LiveOperator(step.attempt, operator, places.kept()))
        return 0
    parent = step.before.attempt if step.before else ""
    return cache.leave(step.attempt, parent, places.stored(operator.image()), whole=whole)


def _with(aside: Mapping[str, Sequence[pa.Table]], recovery: Recovery | None) -> Mapping[str, Sequence[pa.Table]]:
    """Returns the tuples that the step set aside, behind those of the recovery with which it began."""
    if recovery is None or not recovery.aside:
        return aside
    before = recovery.aside
    return {reason: [*before.get(reason, ()), *aside.get(reason, ())] for reason in {**before, **aside}}


def _feed(
    operator: Operator, slice_: InputSlice, pieces: Iterator[Piece], output: StepOutput, places: ReplayPlaces
) -> tuple[int | None, int]:
    """Takes in tuples until all are in, or enough; returns up to which time windows are closed, and how many tuples."""
    first, boundary, taken = operator.input_end, slice_.begin.bound, 0
    for piece in pieces:
        for columns in operator.feed(piece.tables):
            output.add(Kind.RESULT, columns)
        operator.input_end = piece.end
        taken += piece.tuples
        places.passed(piece)
        if not piece.is_edge:
            continue
        boundary = _close(operator, piece.boundary, boundary, output)
        is_much = output.rows + operator.opened >= WINDOWS_MAX or operator.aside.nbytes >= ASIDE_BYTES_MAX
        if is_much or piece.end - first >= slice_.tuples_max:
            break
    if operator.input_end == slice_.end:
        boundary = _close(operator, slice_.until, boundary, output)
    return boundary, taken


def _close(operator: Operator, boundary: int | None, before: int | None, output: StepOutput) -> int | None:
    """Closes windows up to the boundary, if it is later than the one before; returns the later of the two."""
    if boundary is None or not is_before(before, boundary):
        return before
    if operator.definition.has_times and (due := operator.advance(boundary)):
        output.add(Kind.RESULT, due)
    return boundary


def operator_before(
    step: Step, element: Element, logs: Logs, cache: StateCache, places: ReplayPlaces
) -> tuple[Operator, Recovery | None]:
    """Returns the operator as it stood before the step: new, from the local state, or recovered from the logs.

    An operator without state is always new: its place in the input is all that the step before has left.

    Notes in `places` where a replay can begin.
    """
    before, definition = step.before, element.definition
    if before is None or not definition.keeps_state:
        operator = definition.fresh(element.on_error)
        operator.input_end = step.slice.begin.ordinal
        places.begin(step.slice.begin)
        return operator, None
    if definition.lives_in_process:
        if (operator_here := _in_process(step, element, cache, places)) is not None:
            return operator_here, None
        return _recovered(step, element, logs, places)
    try:
        found = cache.open(before.attempt)
        if found is not None and (loaded := places.loaded(found)) is not None:
            kept, arrays = loaded
            operator = definition.revived(arrays, element.on_error)
            if operator.input_end == before.input:
                places.restored(kept, before)
                return operator, None
    except OtherVersionError as other:
        if not before.replays and before.open:
            cache.close()
            raise _nothing_to_judge_by(
                before, f"{logs.output.storage.url}, partition {step.partition}", other
            ) from None
    except ValueError:
        pass  # the state of another operator, or of none
    cache.close()
    return _recovered(step, element, logs, places)


def _in_process(step: Step, element: Element, cache: StateCache, places: ReplayPlaces) -> Operator | None:
    """Returns the operator that the step before left in this process; None if there is none."""
    before = step.before
    found = None if before is None else cache.take_operator(before.attempt)
    if before is None or found is None:
        return None
    operator = found.operator
    if operator.definition != element.definition or operator.input_end != before.input:
        return None
    operator.on_error = element.on_error
    places.restored(found.edges, before)
    return operator


def _recovered(step: Step, element: Element, logs: Logs, places: ReplayPlaces) -> tuple[Operator, Recovery]:
    """Returns the operator, recovered from the logs, and the account of the recovery."""
    before, definition = step.before, element.definition
    assert before is not None
    began_s = stopwatch_s()
    output, inputs = logs.whole()
    open_s = stopwatch_s() - began_s
    stand = Stand(step.partition, before, step.output_end, step.slice.begin.bound)
    if before.replays:
        operator, done = recover(output, element.input(inputs), definition, stand, element.on_error, places)
    else:
        operator, done = recover_without_replay(output, definition, stand, element.on_error)
    places.begin(before.stands)
    return operator, replace(done, open_s=open_s)


def _nothing_to_judge_by(before: Standing, where: str, other: OtherVersionError) -> StreamMismatchError:
    return StreamMismatchError(
        f"{plural(before.open, 'tuple')} that the operator keeps cannot be taken over by another version: {other}, and "
        f"with {before.mode}() there is no replay in which to judge anew",
        where=where,
        todo="run the version before once with cec() or instant(): its next batch saves what it keeps; then change it",
    )


def unchanged(step: Step, element: Element) -> Done | None:
    """Returns the outcome of a step without tuples, at a time that closes no window; None if a task has to run it."""
    before, slice_ = step.before, step.slice
    if before is None or slice_.end != before.input:
        return None
    if element.policy.replays and not before.replays:
        return None  # from now on a failure must do no harm
    until, definition = slice_.reaches, element.definition
    closes = definition.has_times and until is not None and until != slice_.begin.bound
    if closes and before.open and (before.due is None or until is None or before.due <= until):
        return None
    standing = after_a_pause(after_silence(before, slice_.until), element.policy, step.elapsed_us)
    return Done.idle(standing, definition.result_boundary(until, before.input))


@dataclass(frozen=True, slots=True)
class _Work:
    """The amount and the duration of the work of a step, to price a recovery."""

    tuples: int
    feed_s: float
    written: int
    write_s: float
    recovery: Recovery | None

    def priced(self, standing: Standing, before: Standing | None) -> Standing:
        """Returns the standing with the cost of a tuple of extent and of replay, as far as it is known."""
        extent_ns, replay_ns = (before.extent_ns, before.replay_ns) if before else (0.0, 0.0)
        open_s, start_s = (before.open_s, before.start_s) if before else (0.0, 0.0)
        r = self.recovery
        if r is None:
            extent, extent_s, replay, replay_s = self.written, self.write_s, self.tuples, self.feed_s
            recovered = before.recovered if before else None
        else:  # a recovery is the best measure of the cost of a recovery
            extent, extent_s, replay, replay_s = r.extent, r.load_s, r.read, r.replay_s
            recovered = {
                "at_input": before.input if before else 0,
                **r.costs,
                **({"skipped": sum(loss.tuples for loss in r.losses)} if r.losses else {}),
            }
            open_s = round(r.open_s, 4) if r.open_s else open_s
        if extent >= _SAMPLE_MIN:
            extent_ns = towards(extent_ns or EXTENT_NS, extent_s * 1e9 / extent)
        if replay >= _SAMPLE_MIN:
            replay_ns = towards(replay_ns or REPLAY_NS, replay_s * 1e9 / replay)
        return replace(
            standing,
            extent_ns=round(extent_ns, 1),
            replay_ns=round(replay_ns, 1),
            open_s=open_s,
            start_s=start_s,
            recovered=recovered,
        )


_SAMPLE_MIN = 1_000
