"""Events that may happen to an operator on its way through its input, as data; and the results that follow.

A script is a list of events, each at a place: before the tuple of that number. Between two events tuples go in as one
table. Nothing in a script may change a result of an operator that keeps to its contract.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

import numpy as np
import pyarrow as pa

from strandline.control_columns import OFFSET
from strandline.operators.operator import Definition, Operator, Saved

Happening = Literal["cut", "advance", "save", "crash", "stranger"]
"""A table ends; time is told to have passed; the state is saved; the object is lost, restored from what was saved last,
and has the tuples since again; another object of the class takes in the same tuples meanwhile."""
Script = tuple[tuple[int, Happening], ...]
_EVENTS_MAX = 12
_ALONE_MAX = 256
"""So many tuples go in one by one, each in a table of its own."""


@dataclass(frozen=True)
class Scripted:
    """An operator and the tuples that it takes in, with their offsets."""

    definition: Definition
    tuples: pa.Table
    last_boundary: int
    """Told at the end: no tuple follows any more."""

    def first(self, many: int) -> Scripted:
        """Returns the same operator over the first tuples only."""
        return Scripted(self.definition, self.tuples.slice(0, many), self.last_boundary)

    def in_one_go(self) -> pa.Table:
        """Returns the results of a run without events."""
        return self.results(())

    def results(self, script: Script) -> pa.Table:
        """Returns the results of a run with these events; raises what the operator's methods raise."""
        return _Run(self).results(script)

    def boundary_at(self, place: int) -> int:
        """Returns the largest time before which no tuple follows from this place on."""
        times = self.tuples.column(self.definition.times[0]).cast(pa.int64())[place:]
        return int(np.min(times.to_numpy())) if len(times) else self.last_boundary


class _Run:
    """One way through the tuples."""

    def __init__(self, scripted: Scripted) -> None:
        self._scripted = scripted
        definition = scripted.definition
        self._names = [name for name, _ in definition.result_columns]
        self._all_names = [*self._names, *(name for name, _ in definition.control_columns)]
        self._operator = self._new()
        self._saved: tuple[int, pa.Table | None] = (0, None)
        """Up to which tuple, and the footprints."""
        self._told: int | None = None
        self._found: list[pa.Table] = []

    def _new(self) -> Operator:
        operator = self._scripted.definition.fresh()
        operator.begin()
        return operator

    def results(self, script: Script) -> pa.Table:
        tuples, at = self._scripted.tuples, 0
        for place, happening in in_order(script):
            self._feed(tuples.slice(at, place - at))
            at = place
            self._happens(happening, at)
        self._feed(tuples.slice(at))
        self._advance(self._scripted.last_boundary)
        empty = pa.table([[]] * len(self._names), names=self._names)
        return pa.concat_tables(self._found).combine_chunks() if self._found else empty

    def _feed(self, tuples: pa.Table) -> None:
        if tuples.num_rows:
            for columns in self._operator.feed([tuples]):
                self._found.append(pa.table(columns, names=self._names))

    def _advance(self, boundary: int) -> None:
        if self._scripted.definition.has_times and (self._told is None or boundary > self._told):
            self._told = boundary
            if columns := self._operator.advance(boundary):
                self._found.append(pa.table(columns, names=self._names))

    def _happens(self, happening: Happening, at: int) -> None:
        if happening == "advance":
            self._advance(self._scripted.boundary_at(at))
        elif happening == "save":
            self._save(at)
        elif happening == "crash":
            self._crash(at)
        elif happening == "stranger":
            other, tuples = self._new(), self._scripted.tuples
            for _ in other.feed([tuples]) if tuples.num_rows else ():
                pass

    def _save(self, at: int) -> None:
        saved = self._operator.save_all(0)
        parts = [pa.table(columns, names=self._all_names) for columns in (saved.opened, saved.checked)]
        table = pa.concat_tables(parts)
        self._saved = at, table.append_column(OFFSET, pa.array(np.arange(table.num_rows)))

    def _crash(self, at: int) -> None:
        self._operator = self._new()
        first, footprints = self._saved
        if footprints is not None:
            self._operator.load([Saved(footprints.slice(0, 0), footprints)])
        self._operator.aside.ignore()
        if at > first:
            self._operator.repeat([self._scripted.tuples.slice(first, at - first)])
        if self._told is not None:
            self._operator.advance(self._told)
        self._operator.begin()


def scripts(rng: Random, tuples: int, runs: int) -> list[Script]:
    """Draws scripts: tuples one by one, a crash after each of some, then any events."""
    alone: Script = tuple((place, "cut") for place in range(1, min(tuples, _ALONE_MAX)))
    some = range(1, min(tuples, _EVENTS_MAX))
    crashes: Script = tuple((place, what) for place in some for what in _SAVED)
    told: Script = tuple((place, "advance") for place in range(1, min(tuples, _ALONE_MAX)))
    beside: Script = ((tuples // 2, "stranger"),)
    return [alone, told, crashes, beside, *(_any(rng, tuples) for _ in range(runs))]


_SAVED: Sequence[Happening] = ("crash", "save")
_HAPPENINGS: Sequence[Happening] = ("cut", "advance", "save", "crash", "stranger")


def _any(rng: Random, tuples: int) -> Script:
    return in_order([(rng.randint(0, tuples), rng.choice(_HAPPENINGS)) for _ in range(rng.randint(1, _EVENTS_MAX))])


def in_order(events: Iterable[tuple[int, Happening]]) -> Script:
    """Sorts events by their places; events at one place keep their order."""
    return tuple(sorted(events, key=lambda event: event[0]))


def script_text(script: Script, tuples: int) -> str:
    """Describes a script in words.

    >>> script_text(((2, "save"), (5, "crash")), 9)
    'tuples 0 to 1; saved; tuples 2 to 4; lost, restored, tuples 2 to 4 again; tuples 5 to 8'
    """
    said, at, saved = [], 0, 0
    for place, happening in in_order(script):
        if place > at:
            said.append(_stretch(at, place))
        at = place
        again = f", {_stretch(saved, at)} again" if at > saved else ""
        saved = at if happening == "save" else saved
        said.append({**_WORDS, "crash": f"lost, restored{again}"}[happening])
    if tuples > at:
        said.append(_stretch(at, tuples))
    return "; ".join(word for word in said if word)


_WORDS = {"cut": "", "advance": "advance", "save": "saved", "stranger": "another object takes in all tuples"}


def _stretch(first: int, end: int) -> str:
    return f"tuple {first}" if end == first + 1 else f"tuples {first} to {end - 1}"
