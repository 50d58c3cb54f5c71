"""A driver's record of the boundaries that it has seen of its inputs, and when: which tuples wait, and for which input.

A tuple has arrived when the driver saw the boundary of its own input pass it. From then on only other inputs hold it
up: those whose boundary is not behind the tuple. An input that holds up a tuple for longer than the bound is missing,
for whatever reason. The driver asks no other machine's clock. Times here are those of a steady clock, which is never
set (`Clock.steady_us`): a bound runs out when so much time has passed, whatever the wall clock says.

An input that is itself an operator with a bound may have guesses: tentative tuples, complete up to a boundary of their
own. They arrive as other tuples do. For the stable lineage such an input is missing, for the fork it is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from strandline.log.operator_state.guesses import Guesses, Passed, guessed_until, guesses_of, undone_until
from strandline.log.operator_state.outage import Outage
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.units import latest

_BEFORE_ALL = float("-inf")
_PLACES_MAX = 16
"""The greatest number of places that the driver remembers per partition; of more it forgets every second one."""

Places = tuple[Passed, ...]
"""Places in the guesses of a partition, by offset and by time, so that a step of a fork reads only new guesses.

An input's appends say the latest time of its tentative tuples. A reader that has seen an end of the log, and later asks
for times behind that time, begins there. However long a failure lasts, it does not look through earlier guesses again.
"""


@dataclass(frozen=True, slots=True)
class Sight:
    """One input, as one look of the driver finds it."""

    boundary: int | None
    """The boundary over all its partitions; None as long as there is none."""
    latest: int | None = None
    """The latest time that a tuple between the boundary of the look before and this one can have; None: no tuple."""
    is_reachable: bool = True
    guessed: int | None = None
    """The boundary of its guesses; None if it has none beyond the stable boundary."""
    latest_guess: int | None = None
    """The latest time that a tuple between that boundary at the look before and now can have; None: no tuple."""
    undone: tuple[int, ...] = ()
    """The place of its last undo: if that changes, all guesses are others."""
    passed: tuple[Passed | None, ...] = ()
    """The bounds that its ends set on the times of its guesses, per partition."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A boundary that an input has reached."""

    boundary: int
    seen_us: int
    latest: int | None
    """The latest time that a tuple which arrived with the boundary can have; None if no tuple did."""
    is_late: bool = False
    """True if the fork had passed times of such tuples before they arrived."""


@dataclass(frozen=True, slots=True)
class Watch:
    """The boundaries of each input that still matter, in order. A watch grows with the bound, not with time."""

    arrivals: tuple[tuple[Arrival, ...], ...]
    unreachable: frozenset[int] = frozenset()
    guesses: tuple[tuple[Arrival, ...], ...] = ()
    """The boundaries of each input's guesses that no undo has voided; empty if no input has ever had any."""
    undone: tuple[tuple[int, ...], ...] = ()
    """The place of the last undo of each input."""
    passed: tuple[tuple[Places, ...], ...] = ()
    """Places in the guesses of each input, per partition."""
    streams: tuple[str, ...] = ()
    """The stream of each input at the last look; empty before the first look."""

    @classmethod
    def fresh(cls, inputs: int) -> Watch:
        """Returns the watch before the first look."""
        return cls(((),) * inputs)

    @classmethod
    def resumed(
        cls,
        boundaries: Sequence[int | None],
        outage: Outage | None,
        now_us: int,
        bound_us: int,
        states: Sequence[LogState] = (),
    ) -> Watch:
        """Returns the watch before the first look of a driver that goes on where another one died.

        `boundaries` are the present boundaries of the inputs, `states` the states of their logs. Tuples that the fork
        had have waited for the bound. Tuples that the fork left out arrive with this look. Guesses have waited, but may
        be others by now: the fork must take them in anew.
        """
        reached = [fork.bound for fork in outage.forks if fork.bound is not None] if outage else []
        if outage is None or not reached:
            return cls.fresh(len(boundaries))

        def waited(boundary: int | None, *, is_late: bool = False) -> tuple[Arrival, ...]:
            if boundary is None:
                return ()
            until = min(boundary, max(reached))
            return (Arrival(until, now_us - bound_us, until - 1, is_late),)

        gone = {*outage.missing, *outage.left_out}
        found = (waited(None if number in gone else boundary) for number, boundary in enumerate(boundaries))
        guesses = (waited(guessed_until(state), is_late=True) for state in states)
        return cls(tuple(found), guesses=tuple(guesses), undone=tuple(undone_until(state) for state in states))

    def boundary(self, number: int) -> int | None:
        """Returns the last boundary that the driver has seen of an input; None if it has seen none."""
        return self.arrivals[number][-1].boundary if self.arrivals[number] else None

    def guessed(self, number: int, undone: tuple[int, ...]) -> int | None:
        """Returns the last boundary seen of an input's guesses; None if there is none, or an undo has voided them."""
        if not self.guesses or not self.guesses[number] or self.undone[number] != undone:
            return None
        return self.guesses[number][-1].boundary

    def guesses_of(self, number: int, log: Log, partition: int) -> Guesses | None:
        """Returns the guesses of an input that count as of its last refresh, with known places; None if none count."""
        found = guesses_of(log, partition)
        if found is None or not self.passed or self.undone[number] != undone_until(log.state):
            return found
        places = self.passed[number]
        return replace(found, passed=places[partition]) if places else found

    def looked(
        self,
        sights: Sequence[Sight],
        now_us: int,
        taken: int | None,
        bound_us: int,
        before: Outage | None = None,
    ) -> Watch:
        """Returns the watch after one more look. Tuples before `taken` are in the stable lineage: they wait no more.

        `before` is the outage of the last append: a tuple that arrives at a time which its forks have passed is late.
        """
        passed = latest(*(fork.bound for fork in before.forks)) if before else None
        known = self.all_eaten() if passed is None else self
        left_out = before.left_out if before else ()
        look = _Look(now_us, now_us - bound_us, taken, passed)
        found, guesses, places = [], [], []
        for number, sight in enumerate(sights):
            own = known.arrivals[number]
            old = known.guesses[number] if self.guessed(number, sight.undone) is not None else ()
            if number in self.unreachable and number in left_out:
                # The forks have passed tuples that they could not read.
                own, old = (tuple(replace(one, is_late=passed is not None) for one in seen) for seen in (own, old))
            since = own[-1].boundary if own else None
            found.append(look.added(own, since, sight.boundary, sight.latest))
            places.append(self._places(number, sight, before))
            if not sight.is_reachable and known.guesses:
                guesses.append(known.guesses[number])
            elif sight.guessed is None:
                guesses.append(())
            else:
                since = old[-1].boundary if old else sight.boundary
                guesses.append(look.added(old, since, sight.guessed, sight.latest_guess, sight.boundary))
        unreachable = frozenset(i for i, sight in enumerate(sights) if not sight.is_reachable)
        undone = [
            sight.undone if sight.is_reachable or not self.undone else self.undone[number]
            for number, sight in enumerate(sights)
        ]
        return Watch(tuple(found), unreachable, tuple(guesses), tuple(undone), tuple(places), self.streams)

    def changed_over(self, number: int, arrivals: tuple[Arrival, ...]) -> Watch:
        """Returns the watch with an input that is now another replica, which has these arrivals.

        It forgets the guesses of the replica before: they say nothing of the guesses of this one.
        """

        def without(every: tuple[tuple[Any, ...], ...], now: tuple[Any, ...] = ()) -> tuple[tuple[Any, ...], ...]:
            return (*every[:number], now, *every[number + 1 :]) if every else ()

        return replace(
            self,
            arrivals=without(self.arrivals, arrivals),
            guesses=without(self.guesses),
            undone=without(self.undone),
            passed=without(self.passed),
        )

    def _places(self, number: int, sight: Sight, before: Outage | None) -> tuple[Places, ...]:
        """Returns the places in an input's guesses that are of use after one more look."""
        known = self.passed[number] if self.passed else ()
        if not sight.is_reachable:
            return known
        forks = before.forks if before else ()
        came = [fork.bound for fork in forks] or [None] * len(sight.passed)
        needed = [min((time for time in (bound, sight.guessed) if time is not None), default=None) for bound in came]
        if not self.undone or self.undone[number] != sight.undone or not known:
            known = ((),) * len(sight.passed)  # an undo has voided the known guesses
        triples = zip(known, sight.passed, needed, strict=True) if sight.passed else ()
        return tuple(_places_kept(own, place, time) for own, place, time in triples)

    def all_eaten(self) -> Watch:
        """Returns the watch for a fork that is made of the stable state and takes in all tuples: none is late."""

        def eaten(every: tuple[tuple[Arrival, ...], ...]) -> tuple[tuple[Arrival, ...], ...]:
            return tuple(tuple(replace(one, is_late=False) for one in own) for own in every)

        return replace(self, arrivals=eaten(self.arrivals), guesses=eaten(self.guesses))

    def reach(self, taken: int | None) -> list[float]:
        """Returns the time before which each input is complete, as far as it can be read."""
        known = [taken if i in self.unreachable else self.boundary(i) for i in range(len(self.arrivals))]
        return [_BEFORE_ALL if one is None else one for one in known]

    def fork_reach(self, taken: int | None) -> list[float]:
        """Returns the time before which each input is complete for a fork, which also takes in guesses."""
        return [
            max(own, self._guesses_of(number)[-1].boundary) if self._guesses_of(number) else own
            for number, own in enumerate(self.reach(taken))
        ]

    def overdue(self, now_us: int, bound_us: int, taken: int | None) -> dict[int, int]:
        """Returns, by readable input, the time of the last tuple that has waited for the bound, if there is one."""
        return _overdue(self._readable(), now_us - bound_us, taken)

    def missing(self, now_us: int, bound_us: int, taken: int | None) -> tuple[int, ...]:
        """Returns the inputs for which a tuple of another input, or a guess of their own, has waited for the bound."""
        reach, guessed = self.reach(taken), {n: self._guesses_of(n) for n in range(len(self.arrivals))}
        guesses = _overdue(guessed, now_us - bound_us, taken)
        waited = self._waited_for(reach, now_us, bound_us, taken)
        return tuple(n for n, own in enumerate(reach) if n in waited or (n in guesses and guesses[n] >= own))

    def missing_for_fork(self, now_us: int, bound_us: int, taken: int | None) -> tuple[int, ...]:
        """Returns the inputs without guesses for a time at which a tuple of another input has waited for the bound."""
        return self._waited_for(self.fork_reach(taken), now_us, bound_us, taken)

    def _waited_for(self, reach: Sequence[float], now_us: int, bound_us: int, taken: int | None) -> tuple[int, ...]:
        """Returns the inputs that do not reach a tuple of another input which has waited for the bound."""
        overdue = self.overdue(now_us, bound_us, taken).items()
        return tuple(n for n, own in enumerate(reach) if any(other != n and time >= own for other, time in overdue))

    def late(self, now_us: int, bound_us: int, taken: int | None) -> frozenset[int]:
        """Returns the readable inputs with tuples that have waited for the bound and came too late for the fork."""
        late = {n: tuple(one for one in own if one.is_late) for n, own in self._readable().items()}
        return frozenset(_overdue(late, now_us - bound_us, taken))

    def _readable(self) -> dict[int, tuple[Arrival, ...]]:
        """Returns, by readable input, all arrivals, those of guesses included."""
        numbers = (n for n in range(len(self.arrivals)) if n not in self.unreachable)
        return {n: (*self.arrivals[n], *self._guesses_of(n)) for n in numbers}

    def _guesses_of(self, number: int) -> tuple[Arrival, ...]:
        """Returns the arrivals of an input's guesses; none if it cannot be read."""
        return self.guesses[number] if self.guesses and number not in self.unreachable else ()


@dataclass(frozen=True, slots=True)
class _Look:
    """The time of a look, and the reach of both lineages then."""

    now_us: int
    aged_us: int
    taken: int | None
    passed: int | None
    """The time up to which the forks have come; None if there is none."""

    def added(
        self,
        own: tuple[Arrival, ...],
        since: int | None,
        boundary: int | None,
        last: int | None,
        stable: int | None = None,
    ) -> tuple[Arrival, ...]:
        """Returns the arrivals that matter, and one more if the boundary has moved; guesses matter from `stable` on."""
        if boundary is not None and (not own or boundary > own[-1].boundary):
            is_late = self.passed is not None and (since is None or since < self.passed)
            own = (*own, Arrival(boundary, self.now_us, last, is_late))
        return _that_matter(own, self.aged_us, latest(self.taken, stable))


def _places_kept(known: Places, seen: Passed | None, needed: int | None) -> Places:
    """Returns the places that are of use after a look, for a fork that will ask for guesses from `needed` on."""
    if seen is not None:
        known = (*(one for one in known if one.time < seen.time), seen)
    used = [one for one in known if needed is not None and one.time <= needed]
    kept = (*used[-1:], *known[len(used) :])
    return kept if len(kept) <= _PLACES_MAX else (*kept[:-1:2], kept[-1])


def _overdue(arrivals: Mapping[int, Sequence[Arrival]], aged_us: int, taken: int | None) -> dict[int, int]:
    found: dict[int, int] = {}
    for number, own in arrivals.items():
        times = [a.latest for a in own if a.latest is not None and a.seen_us <= aged_us]
        if times and (taken is None or max(times) >= taken):
            found[number] = max(times)
    return found


def _that_matter(arrivals: tuple[Arrival, ...], aged_us: int, taken: int | None) -> tuple[Arrival, ...]:
    """Returns the arrivals that still matter.

    These are the last arrival, and all whose tuples still wait, but not yet for the bound. Of those whose tuples have
    waited for the bound, these are the last, and the last that was late.
    """
    if not arrivals:
        return ()
    *before, last = (
        a if a.latest is not None and (taken is None or a.latest >= taken) else replace(a, latest=None, is_late=False)
        for a in arrivals
    )
    aged = [a for a in before if a.latest is not None and a.seen_us <= aged_us]
    late = [a for a in aged[:-1] if a.is_late]
    younger = [a for a in before if a.latest is not None and a.seen_us > aged_us]
    return (*late[-1:], *aged[-1:], *younger, last)
