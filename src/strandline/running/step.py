"""One step of an operator on one partition: input tuples of some commits in, blocks out. Tasks run steps.

A step publishes nothing. It writes blocks under names of its own and leaves its state in the cache. The driver that
publishes the manifest decides whether either counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from strandline.checkpoint.footprint_cost import FootprintCost
from strandline.checkpoint.missed_target import MissedTarget
from strandline.checkpoint.saving import Occasion, after_a_pause, save, standing_after
from strandline.clock import Clock, stopwatch_s
from strandline.errors import StreamMismatchError
from strandline.failpoint import failpoint
from strandline.inputs.input import InputSlice, Piece, ReplayPlaces
from strandline.log.operator_state import loss_record
from strandline.log.operator_state.input_mark import Position
from strandline.log.operator_state.standing import Standing
from strandline.log.storage.storage import Storage, create_once
from strandline.log.stream.block import Block
from strandline.log.stream.block_sequence import BlockSequence
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.operators.kernels.kernel_cache import TALLY
from strandline.operators.operator import Operator, StateImage
from strandline.operators.versions import OtherVersionError
from strandline.recovery.recover import Recovery, Stand, recover
from strandline.recovery.without_replay import recover_without_replay
from strandline.running.element import Element
from strandline.running.state.live_operators import LiveOperator
from strandline.running.state.state_cache import StateCache
from strandline.running.state.state_file import Arrays
from strandline.units import is_before
from strandline.wording import plural

WINDOWS_MAX = 1 << 20
"""The number of windows that a step opens and closes before it stops: this bounds its state and its duration."""
ROWS_MIN = 1 << 12
"""The least size of a piece: a step of fewer tuples still takes in so many, if there are; smaller pieces do not pay."""
Emit = Callable[[list[pa.Array]], object]
"""Takes the columns of results."""
_EDGES = "input_edges"
"""The name of the places of several streams in the local state (`ReplayPlaces.words`), beside the operator's arrays."""
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
    """The outcome of a step; without blocks and numbers, that of a partition in which none ran."""

    blocks: tuple[Block, ...]
    standing: Standing
    boundary: int | None
    tuples: int = 0
    results: int = 0
    opened: int = 0
    checked: int = 0
    state_bytes: int = 0
    """The size of the state left for the next step."""
    seconds: float = 0.0
    checkpoint_s: float = 0.0
    recovery: Recovery | None = None
    aside: Mapping[str, Sequence[pa.Table]] = field(default_factory=dict)
    """The set-aside tuples, which could not be computed, by reason; columns that a table does not have are null."""
    taken: int = 0
    """The number of results among the input tuples: all tuples except the footprints of the upstream operator."""
    footprint_s: float = 0.0
    """The seconds that went into G-checks, writing them included."""
    missed: tuple[MissedTarget, ...] = ()
    """The targets of the policy that cannot be met."""


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

    def written(self, partition: int, first: int, attempt: str) -> BlockSequence:
        """Returns the blocks that an attempt writes to a partition from the offset `first` on, none so far."""
        return BlockSequence(self.output.spec, partition, first, attempt, partial(create_once, self.output.storage))


def run(step: Step, element: Element, logs: Logs, cache: StateCache, clock: Clock) -> Done:
    """Runs the step: writes its blocks, leaves its state in the cache, publishes nothing."""
    began_s = stopwatch_s()
    element = element.in_partition(step.partition)
    input_, begin = element.input(logs.inputs), step.slice.begin
    places = input_.edges()
    operator, recovery = operator_before(step, element, logs, cache, places)
    operator.begin()
    if element.definition.lives_in_process and begin.bound is not None:
        operator.advance(begin.bound)  # time may have passed without a step
    recovered_s = stopwatch_s()
    first = operator.input_end
    output = logs.written(step.partition, step.output_end, step.attempt)
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
    blocks = finished(output)
    rows, checked, save_s = output.counts.total(), output.counts[Kind.G_CHECK], max(0.0, saved_s - fed_s - kernels_s)
    cost = FootprintCost(saved.footprints.rows, checked, rows, save_s, output.write_s, output.store_s)
    # A recovery is the best measure of the cost of a recovery.
    samples = ((rows, output.write_s), (tuples, feed_s)) if recovery is None else recovery.samples
    ends = step.output_end, output.end
    standing = standing_after(operator, element.policy, occasion, ends, saved, cost, samples)
    counted = step.before.results if step.before else 0
    results = None if counted is None else counted + output.counts[Kind.RESULT]
    standing = replace(standing, attempt=step.attempt, host=step.host, results=results)
    standing = places.noted(standing, step.slice)
    aside = operator.aside.tables
    if recovery is not None:
        aside = {why: [*recovery.aside.get(why, ()), *aside.get(why, ())] for why in {**recovery.aside, **aside}}
        standing, recovery = _recovered_at(now_us, standing, step, recovery, logs.output.storage)
    left = _leave(operator, step, cache, places, whole=recovery is not None or step.before is None)
    failpoint("after-state")
    return Done(
        blocks,
        standing,
        element.definition.result_boundary(time, operator.input_end),
        tuples=tuples,
        results=output.counts[Kind.RESULT],
        opened=output.counts[Kind.G_OPEN],
        checked=checked,
        state_bytes=left,
        seconds=stopwatch_s() - began_s,
        checkpoint_s=saved_s - fed_s,
        recovery=recovery,
        aside=aside,
        taken=taken,
        footprint_s=cost.checked_s,
        missed=saved.missed,
    )


def _recovered_at(
    now_us: int, standing: Standing, step: Step, recovery: Recovery, storage: Storage
) -> tuple[Standing, Recovery]:
    """Returns the standing with what a recovery has cost and lost, and the recovery with the time of its losses."""
    skipped = {"skipped": sum(loss.tuples for loss in recovery.losses)} if recovery.losses else {}
    recovered = {"at_input": step.before.input if step.before else 0, **recovery.costs, **skipped}
    open_s = round(recovery.open_s, 4) if recovery.open_s else standing.open_s
    standing = replace(standing, open_s=open_s, recovered=recovered)
    if not recovery.losses:
        return standing, recovery
    losses = [replace(loss, at_us=now_us) for loss in recovery.losses]
    standing = replace(standing, losses=loss_record.add(storage, step.attempt, standing.losses, losses))
    return standing, replace(recovery, losses=tuple(losses), aside={})


def _leave(operator: Operator, step: Step, cache: StateCache, places: ReplayPlaces, *, whole: bool) -> int:
    """Leaves the operator to the next step, in this process or as arrays on disk; returns how many bytes it wrote."""
    if not operator.definition.keeps_state:
        return 0
    if operator.definition.lives_in_process:
        cache.leave_operator(LiveOperator(step.attempt, operator, places.words))
        return 0
    parent, state, edges = step.before.attempt if step.before else "", operator.image(), places.words
    if edges is not None:
        changed = None if state.changed is None else {**state.changed, _EDGES: slice(0, len(edges))}
        state = StateImage({**state.arrays, _EDGES: edges}, changed)
    return cache.leave(step.attempt, parent, state, whole=whole)


def finished(output: BlockSequence) -> tuple[Block, ...]:
    """Returns all blocks, durable, under names that no other attempt uses; none if there is nothing to write."""
    failpoint("before-block")
    output.finish()
    failpoint("after-block")
    return tuple(output.blocks)


def _feed(
    operator: Operator, slice_: InputSlice, pieces: Iterator[Piece], output: BlockSequence, places: ReplayPlaces
) -> tuple[int | None, int]:
    """Takes in tuples until all are in, or enough; returns up to which time windows are closed, and how many tuples."""
    first, boundary, taken, emit = operator.input_end, slice_.begin.bound, 0, partial(output.add, Kind.RESULT)
    for piece in pieces:
        for columns in operator.feed(piece.tables):
            emit(columns)
        operator.input_end = piece.end
        taken += piece.tuples
        places.passed(piece)
        if not piece.is_edge:
            continue
        boundary = close(operator, piece.boundary, boundary, emit)
        is_much = output.counts.total() + operator.opened >= WINDOWS_MAX or operator.aside.nbytes >= ASIDE_BYTES_MAX
        if is_much or piece.end - first >= slice_.tuples_max:
            break
    if operator.input_end == slice_.end:
        boundary = close(operator, slice_.until, boundary, emit)
    return boundary, taken


def close(operator: Operator, boundary: int | None, before: int | None, emit: Emit) -> int | None:
    """Closes windows up to the boundary, if it is later than the one before; returns the later of the two."""
    if boundary is None or not is_before(before, boundary):
        return before
    if operator.definition.has_times and (due := operator.advance(boundary)):
        emit(due)
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
        left = cache.take_operator(before.attempt)
        if left is not None and left.operator.definition == definition and left.operator.input_end == before.input:
            left.operator.on_error = element.on_error
            if places.restored(left.edges, before):
                return left.operator, None
        return _recovered(step, element, logs, places)
    try:
        if (found := cache.open(before.attempt)) is not None:
            operator = definition.revived(of_operator(found), element.on_error)
            if operator.input_end == before.input and places.restored(found.get(_EDGES), before):
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


def of_operator(arrays: Arrays) -> Arrays:
    """Returns the arrays of the operator, out of those that were left."""
    return {name: array for name, array in arrays.items() if name != _EDGES}


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
        f"{before.mode}() replays no input with which the new version could decide",
        where=where,
        todo="run the old version once with cec() or instant(): its next batch saves what it keeps. Then start the "
        "new one",
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
    standing = after_a_pause(_after_silence(before, slice_.until), element.policy, step.elapsed_us)
    return Done((), standing, definition.result_boundary(until, before.input))


def _after_silence(standing: Standing, until: int | None) -> Standing:
    """Returns the standing when no tuple came before this time in any of several inputs."""
    marks = standing.marks
    if marks is None or until is None:
        return standing
    stands = Position(marks.stands.ordinal, until)
    oldest = stands if marks.oldest.ordinal == stands.ordinal else marks.oldest
    return replace(standing, marks=replace(marks, stands=stands, oldest=oldest))
