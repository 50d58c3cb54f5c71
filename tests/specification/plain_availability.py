"""The specification of availability in plain Python: two lineages over lists, and what their log says to readers.

An operator is a function from the tuples that it has taken in, and the time before which no other follows, to all its
results so far; taking in more only adds to them. The stable lineage gets all tuples before a time at which they are
complete, the fork those that happen to be there. What is published is one list of entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

EntryKind = Literal["stable", "tentative", "undo", "rec_done"]


class Arrived(NamedTuple):
    """A tuple where it stands; these compare as the serialised order has them."""

    time: int
    input: int
    offset: int


class Entry(NamedTuple):
    """One tuple of the log that is no footprint."""

    kind: EntryKind
    value: Any = None


Compute = Callable[[Sequence[Arrived], int], Sequence[Any]]
"""All results of an operator that has taken in these tuples and knows that none before this time follows."""


@dataclass
class Lineage:
    """An operator at work: what it has taken in, and how many of its results were published."""

    taken: list[Arrived] = field(default_factory=list)
    bound: int | None = None
    results: int = 0

    def take_in(self, there: Iterable[Arrived], until: int, compute: Compute) -> list[Any]:
        """Takes in what is there from its bound up to a time; the results that are new."""
        ahead = (one for one in there if one.time < until and (self.bound is None or one.time >= self.bound))
        self.taken += sorted(ahead)
        self.bound = until
        every = compute(self.taken, until)
        new = list(every[self.results :])
        self.results = len(every)
        return new

    def forked(self) -> Lineage:
        """Another one that goes on from here."""
        return Lineage(list(self.taken), self.bound, self.results)


@dataclass
class PlainAvailability:
    """One partition of an operator over several inputs, with what is there of them, and what it has published."""

    compute: Compute
    there: list[Arrived] = field(default_factory=list)
    log: list[Entry] = field(default_factory=list)
    stable: Lineage = field(default_factory=Lineage)
    fork: Lineage | None = None
    is_undone: bool = False
    """Whether the stable lineage has moved since the fork began."""

    def advance(self, until: int) -> None:
        """The stable lineage takes in what is there before a time; nothing before it may follow in any input."""
        if self.fork is not None and not self.is_undone:
            self._undo()
            self.is_undone = True
        self.log += [Entry("stable", r) for r in self.stable.take_in(self.there, until, self.compute)]

    def guess(self, until: int) -> None:
        """The fork takes in what is there before a time; it is made of the stable lineage if that is ahead."""
        if self.fork is None or (self.stable.bound is not None and _bound(self.fork) < self.stable.bound):
            self.fork = self.stable.forked()
        if until > _bound(self.fork):
            self.log += [Entry("tentative", r) for r in self.fork.take_in(self.there, until, self.compute)]

    def reconcile(self) -> None:
        """Drops the fork: nothing tentative counts any more."""
        self._undo()
        if self.log and any(entry.kind == "tentative" for entry in since_reconciliation(self.log)):
            self.log.append(Entry("rec_done"))
        self.fork, self.is_undone = None, False

    def _undo(self) -> None:
        if counted(self.log)[1]:
            self.log.append(Entry("undo"))


def counted(log: Iterable[Entry]) -> tuple[list[Any], list[Any]]:
    """The stable results, and the tentative ones that no undo has voided."""
    stable: list[Any] = []
    tentative: list[Any] = []
    for kind, value in log:
        if kind == "stable":
            stable.append(value)
        elif kind == "tentative":
            tentative.append(value)
        elif kind == "undo":
            tentative.clear()
    return stable, tentative


def since_reconciliation(log: Sequence[Entry]) -> Sequence[Entry]:
    """The entries behind the last reconciliation."""
    ends = [at for at, entry in enumerate(log) if entry.kind == "rec_done"]
    return log[ends[-1] + 1 :] if ends else log


def _bound(lineage: Lineage) -> float:
    """For comparing: nothing is before what has not begun."""
    return float("-inf") if lineage.bound is None else lineage.bound
