"""What the driver of an operator with a bound decides in a tick: a function of what it sees, and of nothing else.

The stable lineage moves whenever it can; nobody decides that. What is decided is the state, how far the fork goes, when
its guesses are undone, and when it is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from strandline.log.operator_state.outage import Outage, State
from strandline.running.promise import Mode, Promise
from strandline.running.watch import Watch

_BEFORE_ALL = float("-inf")


@dataclass(frozen=True, slots=True)
class Situation:
    """What there is to decide about."""

    now_us: int
    """By the clock of the watch, which never jumps."""
    watch: Watch
    before: Outage
    """As the last append says."""
    taken: int | None
    """The time up to which the stable lineage has taken in tuples, in every partition; None if it has not begun."""
    moves: bool
    """Whether it moves in this tick."""
    catches_up: bool
    """Whether it has taken in all that it can after this tick, as far as that can be said before."""
    wall_us: int | None = None
    """What the clock on the wall says, for `since_us`: others read it. None if it is the same clock."""

    @property
    def since_us(self) -> int:
        """Since when a state is that begins now."""
        return self.now_us if self.wall_us is None else self.wall_us


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens in this tick."""

    outage: Outage
    """What the append says; forks as they were."""
    undoes: bool
    """Whether what is tentative is void, before all else."""
    begins_anew: bool
    """Whether the fork is made of the stable state again: it has left out what has come since."""
    ends: bool
    """Whether the fork is dropped behind all else, if the stable lineage comes as far as was said."""
    fork_until: int | None
    """The time up to which the fork takes in tuples, unless the stable lineage gets there; None: it stands still."""
    left_out: tuple[int, ...] = ()
    """The inputs that are not complete up to there: what comes of them, or corrects their guesses, comes too late."""


def decide(situation: Situation, promise: Promise) -> Decision:
    """What to do now."""
    before, now_us = situation.before, situation.now_us
    missing = situation.watch.missing(now_us, promise.bound_us, situation.taken)
    if not before.forks:
        outage = _now(before, Outage("UP_FAILURE" if missing else "STABLE", situation.since_us, missing))
        until = _until(situation, promise, promise.failing) if missing else None
        left_out = _left_out(situation, until)
        return Decision(outage, undoes=False, begins_anew=False, ends=False, fork_until=until, left_out=left_out)
    is_first = situation.moves and before.state != "STABILIZATION"
    target = _target(before) if is_first else before.target
    state: State = "STABILIZATION" if situation.moves else before.state
    outage = _now(before, Outage(state, situation.since_us, missing, before.left_out, target, before.forks))
    # What is past the target is another failure: its fork begins in the next tick, with what is stable by then.
    is_past = state == "STABILIZATION" and _is_past(situation, target)
    # And what came too late for the fork is to take its place, not to leave a gap until it has waited for the bound.
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
    """After the fork was dropped: all is well, or what is missing is another failure."""
    return Outage("UP_FAILURE" if outage.missing else "STABLE", now_us, outage.missing)


def _now(before: Outage, outage: Outage) -> Outage:
    """The same, in this state since it came into it."""
    return replace(outage, since_us=before.since_us) if before.state == outage.state else outage


def _target(before: Outage) -> int | None:
    return max((fork.bound for fork in before.forks if fork.bound is not None), default=None)


def _is_past(situation: Situation, target: int | None) -> bool:
    """Whether the stable lineage, which takes in all that it can, comes up to the target."""
    return target is None or min(situation.watch.reach(situation.taken)) >= target


def _is_left_out(situation: Situation, promise: Promise) -> bool:
    """Whether tuples have waited for the bound that came after the fork had passed their time, of an input that is back
    while others are missing, or has corrected its guesses."""
    now = (situation.now_us, promise.bound_us, situation.taken)
    return bool(situation.watch.late(*now) - set(situation.watch.missing_for_fork(*now)))


def _left_out(situation: Situation, until: int | None) -> tuple[int, ...]:
    """The inputs that the stable lineage would wait for before it went as far."""
    if until is None:
        return ()
    return tuple(n for n, own in enumerate(situation.watch.reach(situation.taken)) if own < until)


def _until(situation: Situation, promise: Promise, mode: Mode) -> int | None:
    """How far the fork goes: at most as far as those are complete that are not missing, with what they guess."""
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
