"""Which of several replicas a reader reads: a function of what it sees of them, and of nothing else.

All of them have the same results, so the choice is about time only: who has nothing to take back, and who is ahead.
A change without need shows guesses that another replica would not have made; so a reader keeps a good one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from strandline.log.operator_state.outage import State


@dataclass(frozen=True, slots=True)
class ReplicaSight:
    """One replica that can be read."""

    results: tuple[int, ...]
    """How many it has published, per partition."""
    state: State = "STABLE"
    is_behind: bool = False
    """Others have been ahead of it for longer than a reader's patience: it is dead, or catching up."""

    def has(self, results: Sequence[int]) -> bool:
        """Returns whether it has at least as many in every partition."""
        return all(own >= other for own, other in zip(self.results, results, strict=True))


def choose(sights: Sequence[ReplicaSight | None], read: Sequence[int], current: int | None = None) -> int | None:
    """Returns the number of the replica to read on from; None if none has what was read.

    `sights` has None for those that cannot be read, `read` says how many results were read of each partition, and
    `current` is the one that was read so far. STABLE ones come first, of these the most advanced; then whichever has
    the most results. One that others are ahead of for long is used if there is nothing else.
    """
    usable = {i: sight for i, sight in enumerate(sights) if sight is not None and sight.has(read)}
    others = {i: sight for i, sight in usable.items() if i == current or _has_caught_up(sight, usable.values())}
    if not others:
        return None
    best = min(others, key=lambda i: _rank(i, others[i]))
    if current not in usable or current is None:
        return best
    return best if _is_worth_it(usable[current], others[best]) else current


def _has_caught_up(sight: ReplicaSight, every: Iterable[ReplicaSight]) -> bool:
    """Returns whether a STABLE replica has what failing ones have, which stand still: a new one is STABLE, too."""
    return sight.state != "STABLE" or all(other.state == "STABLE" or sight.has(other.results) for other in every)


def _rank(number: int, sight: ReplicaSight) -> tuple[bool, bool, int, bool, int]:
    return sight.is_behind, sight.state != "STABLE", -sum(sight.results), sight.state == "UP_FAILURE", number


def _is_worth_it(current: ReplicaSight, best: ReplicaSight) -> bool:
    """Returns whether to leave a replica that can still be read for the best of them."""
    if current.is_behind != best.is_behind:
        return current.is_behind
    if current.state == "STABLE" or best.state == "STABLE":
        return current.state != "STABLE"
    # One that is being corrected moves on by itself; one that fails stands still.
    return current.state == "UP_FAILURE" and best.has(current.results) and best.results != current.results
