"""The specification of stateless operators in plain Python: each tuple by itself, in the order in which it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
PlainWork = Callable[[Row], Row | None]
"""Makes a result of a tuple, or None if the tuple is left out; raises ZeroDivisionError if it cannot be computed."""


@dataclass
class PlainStateless:
    """The work on the tuples of each input, then that on all tuples."""

    before: Sequence[PlainWork]
    work: PlainWork
    aside: list[Row] = field(default_factory=list)
    """Tuples that cannot be computed, as the first step has them that fails."""

    def feed(self, tuples: Iterable[tuple[int, Row]]) -> list[Row]:
        """Returns the results of tuples, each with the number of its input."""
        found = []
        for number, row in tuples:
            made: Row | None = row
            for step in (self.before[number], self.work):
                try:
                    made = None if made is None else step(made)
                except ZeroDivisionError:
                    self.aside.append(row)
                    made = None
            if made is not None:
                found.append(made)
        return found
