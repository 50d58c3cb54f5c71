"""What a driver has seen of its inputs, and when: tuples that wait, and for whom.

A tuple has arrived when the driver saw the boundary of its own input pass it. From then on only others hold it up: an
input whose boundary is not behind it. Who holds up a tuple for longer than the bound is missing, for whatever reason.
Clocks of others are not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strandline.log.outage import Outage

_BEFORE_ALL = float("-inf")


@dataclass(frozen=True, slots=True)
class Sight:
    """One input, as one look finds it."""

    boundary: int | None
    """Of all its partitions; None as long as there is none."""
    latest: int | None = None
    """No tuple between the boundary of the look before and this one is later; None if there is none."""
    is_reachable: bool = True


@dataclass(frozen=True, slots=True)
class Arrival:
    """A boundary that an input has reached."""

    boundary: int
    seen_us: int
    latest: int | None
    """The time of the last tuple that arrived with it, at most; None if none did."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Of each input, the boundaries that still matter, in order. It grows with the bound, not with time."""

    arrivals: tuple[tuple[Arrival, ...], ...]
    unreachable: frozenset[int] = frozenset()

    @classmethod
    def fresh(cls, inputs: int) -> Watch:
        """Before the first look."""
        return cls(((),) * inputs)

    @classmethod
    def resumed(cls, boundaries: Sequence[int | None], outage: Outage | None, now_us: int, bound_us: int) -> Watch:
        """Before the first look of a driver that goes on where another one died: what its fork had, has waited.

        `boundaries` are those that the inputs have now. Those that the fork has left out have arrived with this look.
        """
        reached = [fork.bound for fork in outage.forks if fork.bound is not None] if outage else []
        if outage is None or not reached:
            return cls.fresh(len(boundaries))
        found: list[tuple[Arrival, ...]] = []
        for number, boundary in enumerate(boundaries):
            if boundary is None or number in outage.missing or number in outage.left_out:
                found.append(())
            else:
                until = min(boundary, max(reached))
                found.append((Arrival(until, now_us - bound_us, until - 1),))
        return cls(tuple(found))

    def boundary(self, number: int) -> int | None:
        """The last boundary that was seen of an input."""
        return self.arrivals[number][-1].boundary if self.arrivals[number] else None

    def looked(self, sights: Sequence[Sight], now_us: int, taken: int | None, bound_us: int) -> Watch:
        """After one more look. All tuples before `taken` are in the stable lineage: they wait no more."""
        found = []
        for own, sight in zip(self.arrivals, sights, strict=True):
            is_new = sight.boundary is not None and (not own or sight.boundary > own[-1].boundary)
            new = [Arrival(sight.boundary, now_us, sight.latest)] if is_new and sight.boundary is not None else []
            found.append(_that_matter((*own, *new), now_us - bound_us, taken))
        unreachable = frozenset(i for i, sight in enumerate(sights) if not sight.is_reachable)
        return Watch(tuple(found), unreachable)

    def reach(self, taken: int | None) -> list[float]:
        """The time before which each input is complete, as far as it can be read."""
        known = [taken if i in self.unreachable else self.boundary(i) for i in range(len(self.arrivals))]
        return [_BEFORE_ALL if one is None else one for one in known]

    def overdue(self, now_us: int, bound_us: int, taken: int | None) -> dict[int, int]:
        """By input that can be read, the time of the last tuple that has waited for the bound, where there is one."""
        found: dict[int, int] = {}
        for number, own in enumerate(self.arrivals):
            if number in self.unreachable:
                continue
            times = [a.latest for a in own if a.latest is not None and now_us - a.seen_us >= bound_us]
            if times and (taken is None or max(times) >= taken):
                found[number] = max(times)
        return found

    def missing(self, now_us: int, bound_us: int, taken: int | None) -> tuple[int, ...]:
        """The inputs for which a tuple of another one has waited for the bound."""
        overdue, reach = self.overdue(now_us, bound_us, taken), self.reach(taken)
        return tuple(
            number
            for number, own in enumerate(reach)
            if any(other != number and time >= own for other, time in overdue.items())
        )


def _that_matter(arrivals: tuple[Arrival, ...], aged_us: int, taken: int | None) -> tuple[Arrival, ...]:
    """The last one; of those whose tuples have waited for the bound, the last; of others, those that still wait."""
    if not arrivals:
        return ()
    *before, last = (a if _waits(a, taken) else Arrival(a.boundary, a.seen_us, None) for a in arrivals)
    aged = [a for a in before if a.latest is not None and a.seen_us <= aged_us]
    younger = [a for a in before if a.latest is not None and a.seen_us > aged_us]
    return (*aged[-1:], *younger, last)


def _waits(arrival: Arrival, taken: int | None) -> bool:
    return arrival.latest is not None and (taken is None or arrival.latest >= taken)
