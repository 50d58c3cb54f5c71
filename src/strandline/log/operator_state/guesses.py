"""The tentative tuples that a stream offers to operators with a bound: those that count, and up to which time.

The offsets and the time are those of one state of the log, so that a reader reads the same a moment later, though an
undo may have been published meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from strandline.log.operator_state.outage import ForkStanding
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.units import latest


class Passed(NamedTuple):
    """A place among the tentative tuples of a partition: none that counts before it has this time, or a later one."""

    offset: int
    time: int


@dataclass(frozen=True, slots=True)
class Guesses:
    """The tentative tuples of a partition that count."""

    first: int
    """None before this offset: it was undone, or dropped."""
    end: int
    since: int | None
    """None before this time, up to which all results are there; None: there is no such time."""
    passed: tuple[Passed, ...] = ()
    """Known places among them, so that a reader that has come far need not look through all."""

    def first_at(self, time: int | None) -> int:
        """Returns an offset before which no tuple of this time or a later one stands."""
        known = (one.offset for one in self.passed if time is not None and one.time <= time)
        return max(known, default=self.first)


def guesses_of(log: Log, partition: int) -> Guesses | None:
    """Returns the tentative tuples of a partition that count as of the log's last refresh; None if there are none."""
    state = log.state
    fork = state.outage.forks[partition] if state.outage and state.outage.forks else None
    if fork is None or not fork.tuples:
        return None
    return Guesses(max(fork.first, state.starts[partition]), state.ends[partition], state.boundaries[partition])


def passed_by(state: LogState) -> tuple[Passed | None, ...]:
    """Returns, per partition, what the end of the log says of the times of its tentative tuples, if there are any."""
    forks: Sequence[ForkStanding] = state.outage.forks if state.outage else ()
    return tuple(
        None if fork.latest is None else Passed(state.ends[p], fork.latest + 1) for p, fork in enumerate(forks)
    )


def guessed_until(state: LogState) -> int | None:
    """Returns the time before which no results follow, not even tentative ones, if it is after the boundary."""
    if state.outage is None or not state.outage.forks:
        return None
    pairs = zip(state.boundaries, state.outage.forks, strict=True)
    known = [latest(boundary, fork.boundary) for boundary, fork in pairs]
    until = min((one for one in known if one is not None), default=None)
    if until is None or None in known or (state.boundary is not None and until <= state.boundary):
        return None
    return until


def undone_until(state: LogState) -> tuple[int, ...]:
    """Returns, per partition, the offset behind the last undo, and how often its fork has begun again. Empty without a
    fork.

    These change whenever guesses are void, or others follow than the boundary has said.
    """
    return tuple(number for fork in state.outage.forks for number in (fork.first, fork.begun)) if state.outage else ()
