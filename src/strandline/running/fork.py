"""The tentative lineage in one partition: a copy of the stable state takes in the tuples that are there.

The results of a fork are guesses. A fork begins with a private view of the state that the stable lineage has left on
the machine, and leaves its own state beside that one. The state of a fork is never recovered. If a step does not find
it, the step makes the fork anew, and publishes nothing up to the place where the fork was.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import NamedTuple

from strandline.inputs.input import InputSlice
from strandline.inputs.serialised_union import SerialisedUnion
from strandline.log.operator_state.guesses import Guesses
from strandline.log.operator_state.input_mark import Position
from strandline.log.operator_state.outage import ForkStanding
from strandline.log.operator_state.standing import Standing
from strandline.log.stream.block import Block
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.partial_log import PartialLog
from strandline.operators.operator import Definition, Operator
from strandline.running.element import Element
from strandline.running.state.live_operators import LiveOperator
from strandline.running.state.state_cache import StateCache
from strandline.running.step import (
    ROWS_MIN,
    WINDOWS_MAX,
    Emit,
    Logs,
    Step,
    close,
    finished,
    of_operator,
    operator_before,
)
from strandline.units import is_before, latest


class Caches(NamedTuple):
    """The places of the states of both lineages of a partition on this machine."""

    stable: StateCache
    fork: StateCache


@dataclass(frozen=True, slots=True)
class ForkStep:
    """The task of a fork: to take in the tuples that are there before `until`, or a good part of them."""

    stable: Step
    """The place of the stable lineage before this tick."""
    before: ForkStanding
    until: int
    silent_until: int | None
    """After this tick, the stable lineage has all tuples before this time."""
    attempt: str
    """A name that is used once, for the block and the state that this attempt leaves."""
    unreachable: frozenset[int] = frozenset()
    """The inputs that cannot be read."""
    seen: tuple[int, ...] = ()
    """The last commit of each input that the driver has seen; empty if the step sees what the driver saw."""
    guesses: tuple[Guesses | None, ...] = ()
    """The tentative tuples of each input that count, as the driver has seen them."""
    takes_over: bool = False
    """True if a fork that begins gets the state of the stable lineage, which is then rebuilt from the log."""
    base_moves: bool = False
    """True if the stable lineage moves in this tick: a state left as changes of the old one would be lost."""
    complete_until: int | None = None
    """Over one stream, `silent_until` if the stable lineage takes in all of its slice in this tick."""
    results_from: int = 0
    """Over one stream, the offset before which the stable lineage has all results, whatever their times."""
    repeats: InputSlice | None = None
    """Over one stream, the tuples that the stable lineage takes in in this tick, in the order of their offsets."""

    def behind(self, step: Step, standing: Standing) -> ForkStep:
        """Returns the step behind a step of the stable lineage, which has left it at this standing."""
        if standing.marks is not None:
            return replace(self, silent_until=standing.stands.bound, base_moves=True)
        is_whole = step.slice.end is not None and standing.input >= step.slice.end
        silent = self.complete_until if is_whole else self.silent_until
        return replace(self, silent_until=silent, base_moves=True, results_from=standing.input, repeats=step.slice)

    def input(self, definition: Definition, inputs: tuple[Log, ...]) -> SerialisedUnion:
        """Returns the input of the fork: results, and tuples that the inputs guess."""
        guesses = tuple(None if number in self.unreachable else one for number, one in enumerate(self.guesses))
        there = (
            PartialLog(log.storage, log.spec) if number in self.unreachable else log  # without tuples
            for number, log in enumerate(inputs)
        )
        results_from = (self.results_from,) if self.results_from else ()
        return SerialisedUnion(definition, tuple(there), guesses=guesses, results_from=results_from)


@dataclass(frozen=True, slots=True)
class Forked:
    """The outcome of a step of a fork."""

    blocks: tuple[Block, ...]
    standing: ForkStanding
    began: Position
    """The place where the fork began to guess: this step took in earlier tuples silently, or not at all."""
    results: int
    is_anew: bool
    """True if the fork was made of the stable state, for the first time or again."""


def run(fork: ForkStep, first: int, element: Element, logs: Logs, caches: Caches) -> Forked:
    """Runs the step: writes tentative tuples from the offset `first` on, leaves the state, publishes nothing."""
    element = element.in_partition(fork.stable.partition)
    found = _found(fork, element, caches)
    at_work = found or _anew(fork, element, logs, caches)
    operator, began = at_work.operator, at_work.position
    output = logs.written(fork.stable.partition, first, fork.attempt)
    position = _take_in(fork, operator, began, fork.until, logs, lambda found: output.add(Kind.TENTATIVE, found))
    operator.save_nothing()
    operator.end()
    blocks, results = finished(output), output.counts[Kind.TENTATIVE]
    if element.definition.lives_in_process:
        caches.fork.leave_operator(LiveOperator(fork.attempt, operator))
    elif element.definition.keeps_state:
        caches.fork.leave(fork.attempt, at_work.parent, operator.image(), whole=not at_work.parent)
    caches.stable.close()
    standing = replace(
        fork.before,
        bound=position.bound,
        ordinal=position.ordinal,
        boundary=element.definition.result_boundary(position.bound, position.ordinal),
        tuples=fork.before.tuples + results,
        published=fork.before.published + results,
        attempt=fork.attempt,
        problem="",
        latest=latest(fork.before.latest, *(block.time_max for block in blocks)),
    )
    return Forked(blocks, standing, began, results, found is None)


class _AtWork(NamedTuple):
    """A fork that has begun a step."""

    operator: Operator
    position: Position
    parent: str
    """The attempt to whose state the step leaves its changes; empty if it has to leave its whole state."""


def _found(fork: ForkStep, element: Element, caches: Caches) -> _AtWork | None:
    """Returns the fork as its last step left it; None if it is not here, or the stable lineage has overtaken it."""
    before = fork.before
    if not before.attempt or before.bound is None or is_before(before.bound, fork.silent_until):
        return None
    operator, parent = None, before.attempt
    if not element.definition.keeps_state:  # its last step left nothing but a place in the input
        operator, parent = element.definition.fresh("set_aside"), ""
        operator.input_end = before.ordinal
    elif element.definition.lives_in_process:
        left = caches.fork.take_operator(before.attempt)
        if left is not None and left.operator.definition == element.definition:
            operator = left.operator
    else:
        arrays = caches.fork.open(before.attempt)
        if arrays is None and (arrays := caches.fork.open_over(before.attempt, caches.stable)) is not None:
            parent = ""
        with contextlib.suppress(ValueError):  # the state of another operator, or of none
            operator = None if arrays is None else element.definition.revived(of_operator(arrays), "set_aside")
    if operator is None or operator.input_end != before.ordinal:
        caches.fork.close()
        caches.stable.close()
        return None
    operator.begin()
    return _AtWork(operator, Position(before.ordinal, before.bound), parent)


def _anew(fork: ForkStep, element: Element, logs: Logs, caches: Caches) -> _AtWork:
    """Returns a new fork of the stable state, silently brought to where it was, or to where the stable lineage goes.

    The state is the one before this tick, because that of this tick counts only once it is published.

    If the stable state lies on this machine, the fork reads and copies only the parts that it touches. An object of a
    user's class has no views: the fork takes the object over, and the stable lineage makes another one from the log.
    """
    stable, cache = fork.stable, caches.stable
    if fork.takes_over and stable.before is not None:
        caches.fork.take_over(caches.stable, stable.before.attempt)
        cache = caches.fork
    places = element.input(logs.inputs).edges()
    operator, recovery = operator_before(stable, replace(element, on_error="set_aside"), logs, cache, places)
    position = stable.slice.begin
    known = latest(fork.before.bound, fork.silent_until)
    operator.begin()
    if fork.repeats is not None:
        position = _repeat(fork, fork.repeats, operator, element, logs)
    if known is not None and is_before(position.bound, known):
        position = _take_in(fork, operator, position, known, logs, lambda _: None, at_once=True)
    is_view = recovery is None and not fork.base_moves
    return _AtWork(operator, position, stable.before.attempt if is_view and stable.before else "")


def _repeat(fork: ForkStep, taken: InputSlice, operator: Operator, element: Element, logs: Logs) -> Position:
    """Takes in what the stable lineage takes in in this tick, and says nothing; returns the place behind it."""
    if not operator.definition.lives_in_process:
        operator.aside.ignore()
    rows = min(operator.rows_at_once, max(taken.tuples_max, ROWS_MIN))
    closed = taken.begin.bound
    pieces = element.input(logs.inputs).ahead(taken, fork.stable.partition, operator.input_end, rows)
    for piece in pieces:
        for _ in operator.feed(piece.tables):
            pass
        operator.input_end = piece.end
        closed = close(operator, piece.boundary, closed, lambda _: None)
        if piece.end >= fork.results_from:
            break
    if operator.input_end == taken.end:
        closed = close(operator, taken.until, closed, lambda _: None)
    # Without times in the operator it may be no time up to which windows are closed.
    return Position(operator.input_end, latest(fork.silent_until, closed if operator.definition.has_times else None))


def _take_in(
    fork: ForkStep,
    operator: Operator,
    position: Position,
    until: int,
    logs: Logs,
    emit: Emit,
    *,
    at_once: bool = False,
) -> Position:
    """Takes in tuples from a place up to a time, or as many as a step may; returns the place that it has reached.

    The fork does not go back: it never takes in tuples that come later with a time before that place.
    """
    stable, definition = fork.stable, operator.definition
    if not definition.lives_in_process:  # an object would take this for a recovery, whose results are there already
        operator.aside.ignore()
    rows = min(operator.rows_at_once, max(stable.slice.tuples_max, ROWS_MIN))
    taken, first = replace(stable.slice, begin=position, until=until), position.ordinal
    for piece in fork.input(definition, logs.inputs).ahead(taken, stable.partition, first, rows):
        for columns in operator.feed(piece.tables):
            emit(columns)
        operator.input_end = piece.end
        if not piece.is_edge:
            continue
        close(operator, piece.boundary, position.bound, emit)
        position = piece.position
        is_much = operator.opened >= WINDOWS_MAX or position.ordinal - first >= taken.tuples_max
        if is_much and not at_once:
            break
    return position
