"""Operators in plain Python that lose what a recovery without a replay loses, and nothing else.

At a gap from one place to another the specification goes back to how it was at the first, keeps of its windows those
that were still open at the second, lets time pass, and goes on there.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tests.simulation.simulated_keyed import SimulatedKeyed
from tests.simulation.simulated_operators import Placed, SimulatedAggregate, SimulatedBarrier, SimulatedJoin
from tests.specification.plain_aggregate import PlainOperator
from tests.specification.plain_barrier import BarrierTuple, PlainBarrier, result_row
from tests.specification.plain_join import PlainJoin
from tests.specification.plain_keyed import PlainKeyed
from tests.support.operator_streams import SCHEMA, Row


class Gap(NamedTuple):
    """Tuples that are in no window which was open when the operator failed, and the time up to which it had closed."""

    first: int
    until: int
    boundary: int | None
    is_empty: bool
    """Whether there was no checkpoint: nothing was open at the first place."""


@dataclass
class Outcome:
    """What an operator makes of some tuples, gaps and all."""

    results: list[Row] = field(default_factory=list)
    incomplete: list[Row] = field(default_factory=list)
    """Windows that closed in a recovery."""
    aside: list[Any] | None = None
    """What else is set aside, if the specification knows it."""


class Specification(Protocol):
    """One partition of an operator in plain Python."""

    def feed(self, tuples: Placed) -> list[Row]: ...
    def advance(self, boundary: int) -> list[Row]: ...
    def keep(self, later: Any) -> None:
        """Keeps what is open in the other one, too, which has gone on."""

    def aside(self) -> list[Any] | None: ...


class PlainAggregate:
    def __init__(self, operator: SimulatedAggregate) -> None:
        self.plain = PlainOperator(operator.definition, "set_aside", SCHEMA)

    def feed(self, tuples: Placed) -> list[Row]:
        return self.plain.feed(row for _, row in tuples)

    def advance(self, boundary: int) -> list[Row]:
        return self.plain.advance(boundary)

    def keep(self, later: PlainAggregate) -> None:
        is_session = self.plain.definition.is_session
        for key, mine in self.plain._windows.items():
            theirs = later.plain._windows.get(key, [])
            self.plain._windows[key] = [
                w
                for w in mine
                if any(o.start <= w.start and w.end <= o.end if is_session else o.start == w.start for o in theirs)
            ]

    def aside(self) -> None:
        return None  # of tuples, the plain operator keeps no account


class PlainKeys:
    def __init__(self, operator: SimulatedKeyed) -> None:
        self.plain = PlainKeyed(operator.definition)

    def feed(self, tuples: Placed) -> list[Row]:
        return self.plain.feed(row for _, row in tuples)

    def advance(self, boundary: int) -> list[Row]:
        return self.plain.advance(boundary)

    def keep(self, later: PlainKeys) -> None:
        theirs = {name: key.opened for name, key in later.plain._keys.items()}
        self.plain._keys = {n: key for n, key in self.plain._keys.items() if theirs.get(n) == key.opened}
        self.plain.aside = list(later.plain.aside)

    def aside(self) -> list[Any]:
        return [{"_input": offset} for offset in self.plain.aside]


class PlainPairs:
    def __init__(self, operator: SimulatedJoin) -> None:
        self.plain = PlainJoin(operator.definition, None if operator.condition is None else operator.condition.plain)

    def feed(self, tuples: Placed) -> list[Row]:
        return self.plain.feed(tuples)

    def advance(self, boundary: int) -> list[Row]:
        return self.plain.advance(boundary)

    def keep(self, later: PlainPairs) -> None:
        """All of it: what is over by time goes when time passes; what came after it does not count."""

    def aside(self) -> list[Any]:
        return []


class PlainSets:
    def __init__(self, operator: SimulatedBarrier) -> None:
        self.operator = operator
        self.plain = PlainBarrier(operator.inputs, operator.at_most)

    def feed(self, tuples: Placed) -> list[Row]:
        key = self.operator.key
        fed = (BarrierTuple(row["_offset"], i, tuple(row[c] for c in key), row) for i, row in tuples)
        return [result_row(self.operator.definition, members) for members in self.plain.feed(fed)]

    def advance(self, boundary: int) -> list[Row]:
        return []

    def keep(self, later: PlainSets) -> None:
        waiting = {one.place for one in later.plain.waiting}
        for queues in self.plain.queues.values():
            for queue in queues:
                queue[:] = [one for one in queue if one.place in waiting]
        self.plain.dropped = list(later.plain.dropped)

    def aside(self) -> list[Any]:
        d = self.operator.definition
        return [{**result_row(d, [one]), "_input": at} for one, at in self.plain.dropped]


def specification_of(operator: Any) -> Specification:
    """The operator in plain Python, to which nothing has happened yet."""
    plain: dict[type, Any] = {
        SimulatedAggregate: PlainAggregate,
        SimulatedKeyed: PlainKeys,
        SimulatedJoin: PlainPairs,
        SimulatedBarrier: PlainSets,
    }
    made: Specification = plain[type(operator)](operator)
    return made


def with_gaps(operator: Any, tuples: Placed, boundary: int | None, gaps: Sequence[Gap]) -> Outcome:
    """What the operator makes of these tuples, when nothing before the boundary follows."""
    now, at = specification_of(operator), 0
    found = Outcome()
    for gap in gaps:
        if gap.is_empty:
            saved = specification_of(operator)
        else:
            assert gap.first >= at, "what was lost is lost again"
            found.results += now.feed(tuples[at : gap.first])
            saved, at = copy.deepcopy(now), gap.first
        found.results += now.feed(tuples[at : gap.until])
        if gap.boundary is not None:
            found.results += now.advance(gap.boundary)
        saved.keep(now)
        if gap.boundary is not None:
            due = saved.advance(gap.boundary)
            found.incomplete += due if not operator.definition.replays_windows else []
        now, at = saved, gap.until
    found.results += now.feed(tuples[at:])
    if boundary is not None:
        found.results += now.advance(boundary)
    found.aside = now.aside()
    return found
