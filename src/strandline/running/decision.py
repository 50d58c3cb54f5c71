"""The decision that the driver of an operator with a bound makes in a tick: a pure function of what the driver sees.

The stable lineage moves whenever it can, without a decision. The driver decides the state of the outage, how far the
fork goes, when the guesses of the fork are undone, and when the fork is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from strandline.log.operator_state.outage import Outage, State
from strandline.running.promise import Mode, Promise
from strandline.running.watch import Watch
from strandline.units import latest

_BEFORE_ALL = float("-inf")


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts on which a decision rests."""

    now_us: int
    """The time by the clock of the watch, which never jumps."""
    watch: Watch
    before: Outage
    """The outage as the last append states it."""
    taken: int | None
    """The time up to which the stable lineage has taken in tuples, in every partition; None if it has not begun."""
    moves: bool
    """True if the stable lineage moves in this tick."""
    catches_up: bool
    """True if the stable lineage will have taken in all that it can after this tick, as far as is known before it."""
    since_us: int
    """The `since_us` of a state that begins now: the time by the wall clock, because other processes read it."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions of this tick."""

    outage: Outage
    """The outage that the append states, with the forks as they were."""
    undoes: bool
    """True if the tick first undoes all tentative tuples."""
    begins_anew: bool
    """True if the fork is made of the stable state again, because it left out tuples that have come since."""
    ends: bool
    """True if the tick drops the fork at its end, provided that the stable lineage comes as far as expected."""
    fork_until: int | None
    """The time up to which the fork takes in tuples, unless the stable lineage gets there; None: it takes in none."""
    left_out: tuple[int, ...] = ()
    """The inputs that are not complete up to `fork_until`: their later tuples, or corrections, come too late."""


def decide(situation: Situation, promise: Promise) -> Decision:
    """Returns the actions of this tick."""
    before, now_us = situation.before, situation.now_us
    missing = situation.watch.missing(now_us, promise.bound_us, situation.taken)
    if not before.forks:
        outage = _now(before, Outage("UP_FAILURE" if missing else "STABLE", situation.since_us, missing))
        until = _until(situation, promise, promise.failing) if missing else None
        left_out = _left_out(situation, until)
        return Decision(outage, undoes=False, begins_anew=False, ends=False, fork_until=until, left_out=left_out)
    is_first = situation.moves and before.state != "STABILIZATION"
    target = latest(*(fork.bound for fork in before.forks)) if is_first else before.target
    state: State = "STABILIZATION" if situation.moves else before.state
    outage = _now(before, Outage(state, situation.since_us, missing, before.left_out, target, before.forks))
    # An input missing past the target is another failure: its fork begins in the next tick, with the then stable state.
    reached = min(situation.watch.reach(situation.taken))
    is_past = state == "STABILIZATION" and (target is None or reached >= target)
    # Tuples that came too late for the fork must replace it, and not leave a gap until they have waited for the bound.
    is_over = not missing and not situation.watch.late(now_us, 0, situation.taken)
    ends = situation.catches_up and (is_past or is_over)
    mode = promise.stabilizing if situation.moves else promise.failing
    is_anew = mode != "suspend" and _is_left_out(situation, promise)
    known = replace(situation, before=replace(before, forks=())) if is_anew else situation
    until = _until(known, promise, mode)
    left_out = _left_out(situation, until)
    undoes = is_first or is_anew
    return Decision(outage, undoes=undoes, begins_anew=is_anew, ends=ends, fork_until=until, left_out=left_out)


def ended(outage: Outage, now_us: int) -> Outage:
    """Returns the outage after the fork was dropped: STABLE, or another failure if inputs are missing."""
    return Outage("UP_FAILURE" if outage.missing else "STABLE", now_us, outage.missing)


def _now(before: Outage, outage: Outage) -> Outage:
    """Returns the outage; if its state is the one before, `since_us` stays as it was."""
    return replace(outage, since_us=before.since_us) if before.state == outage.state else outage


def _is_left_out(situation: Situation, promise: Promise) -> bool:
    """Returns whether tuples that came too late for the fork have waited for the bound.

    Their input is back while others are missing, or has corrected its guesses. The fork had passed their time before.
    """
    now = (situation.now_us, promise.bound_us, situation.taken)
    return bool(situation.watch.late(*now) - set(situation.watch.missing_for_fork(*now)))


def _left_out(situation: Situation, until: int | None) -> tuple[int, ...]:
    """Returns the inputs that the stable lineage would wait for before it went as far as `until`."""
    if until is None:
        return ()
    return tuple(n for n, own in enumerate(situation.watch.reach(situation.taken)) if own < until)


def _until(situation: Situation, promise: Promise, mode: Mode) -> int | None:
    """Returns the time up to which the fork goes; None if it stands still.

    The fork goes at most as far as all inputs that are not missing are complete, guesses included.
    """
    if mode == "suspend":
        return None
    missing = situation.watch.missing_for_fork(situation.now_us, promise.bound_us, situation.taken)
    reach = situation.watch.fork_reach(situation.taken)
    until = min(own for number, own in enumerate(reach) if number not in missing)
    if mode == "delay":
        overdue = situation.watch.overdue(situation.now_us, promise.bound_us, situation.taken)
        until = min(until, max(overdue.values(), default=_BEFORE_ALL) + 1)
    stands = min((_or_before_all(fork.bound) for fork in situation.before.forks), default=_BEFORE_ALL)
    return int(until) if until > max(stands, _or_before_all(situation.taken)) else None


def _or_before_all(bound: int | None) -> float:
    return _BEFORE_ALL if bound is None else bound
