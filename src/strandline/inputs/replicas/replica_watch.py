"""How far replicas had come, and when a reader saw it: who has been behind others for long.

By the reader's own clock, one that never jumps, and by what was published, never by what others' clocks say. Replicas
that all stand still are not behind each other, however long it lasts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from strandline.log.stream.log_state import LogState
from strandline.units import latest

Times = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Reach:
    """The place in each partition to which a replica, or the furthest of several, has come."""

    results: tuple[int, ...]
    stable: Times
    """No stable result before this time will follow."""
    guessed: Times
    """Nor a tentative one, before this."""

    @classmethod
    def of(cls, state: LogState) -> Reach:
        """Returns the reach of a replica."""
        forks = state.outage.forks if state.outage else ()
        guessed = (latest(b, forks[p].boundary if forks else None) for p, b in enumerate(state.boundaries))
        return cls(results_of(state), state.boundaries, tuple(guessed))

    def joined(self, other: Reach) -> Reach:
        """Returns the furthest of both."""
        results = (max(a, b) for a, b in zip(self.results, other.results, strict=True))
        return Reach(tuple(results), _latest(self.stable, other.stable), _latest(self.guessed, other.guessed))

    def has_more_than(self, other: Reach) -> bool:
        """Returns whether it has come further in some partition with what is stable."""
        both = self.joined(other)
        return (both.results, both.stable) != (other.results, other.stable)

    def has_guessed_more_than(self, other: Reach) -> bool:
        """Returns whether it has come further in some partition, guesses included."""
        return _latest(self.guessed, other.guessed) != other.guessed


@dataclass(frozen=True, slots=True)
class ReplicaWatch:
    """The furthest reach of all replicas, and since when; it holds no more looks than the patience is long."""

    patience_us: int
    furthest: tuple[tuple[int, Reach], ...] = ()
    moved: Mapping[int, tuple[Reach, int]] = field(default_factory=dict)
    """By replica: where it is, and since when."""

    def looked(self, reaches: Sequence[Reach | None], now_us: int) -> ReplicaWatch:
        """Returns the watch after one more look; None stands for a replica that cannot be read."""
        moved, found = dict(self.moved), list(self.furthest)
        for number, reach in enumerate(reaches):
            if reach is None:
                continue
            if number not in moved or moved[number][0] != reach:
                moved[number] = reach, now_us
            joined = reach if not found else found[-1][1].joined(reach)
            if not found or joined != found[-1][1]:
                found.append((now_us, joined))
        old = [one for one in found if one[0] <= now_us - self.patience_us]
        return ReplicaWatch(self.patience_us, (*old[-1:], *found[len(old) :]), moved)

    def is_behind(self, number: int, now_us: int) -> bool:
        """Returns whether others had results, longer ago than the patience, that this one does not have now.

        The same goes for guesses, but only if it has not moved since: who has all inputs has nothing to guess.
        """
        if number not in self.moved or not self.furthest or now_us - self.furthest[0][0] < self.patience_us:
            return False
        (reach, since_us), known = self.moved[number], self.furthest[0][1]
        stands_still = now_us - since_us >= self.patience_us
        return known.has_more_than(reach) or (stands_still and known.has_guessed_more_than(reach))


def results_of(state: LogState) -> tuple[int, ...]:
    """Returns how many results a stream has, per partition."""
    return tuple(s.results or 0 for s in state.standings) or (0,) * len(state.boundaries)


def _latest(ours: Times, theirs: Times) -> Times:
    return tuple(latest(a, b) for a, b in zip(ours, theirs, strict=True))
