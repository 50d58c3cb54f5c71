"""What the user of a reader of replicas has made of one partition, and what must hold of what is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from tests.simulation.operator_world import require


@dataclass
class Shown:
    """Kept together with the reader's place."""

    stable: list[pa.Table] = field(default_factory=list)
    many: int = 0
    guesses: list[int] = field(default_factory=list)
    """Times of the tentative results that count."""
    is_open: bool = False
    floor: int | None = None
    """The latest time of a guess that counted when the replica was changed."""

    def change_over(self) -> None:
        """What is told from here on comes from another replica."""
        self.floor = max(self.guesses, default=None)

    def take(self, table: pa.Table, columns: Sequence[str], time: str) -> None:
        """Takes in what is told next."""
        kinds, before = table.column("_kind").to_pylist(), table.column("_result").to_pylist()
        times = table.column(time).cast(pa.int64()).to_pylist()
        for at, kind in enumerate(kinds):
            require(before[at] == self.many, kind, "stands behind", before[at], "results;", self.many, "were shown")
            if kind == "stable":
                require(self.floor is None, "a result, and the guesses of another replica are not undone")
                self.stable.append(table.slice(at, 1).select(columns))
                self.many += 1
            elif kind == "tentative":
                require(self.floor is None or times[at] >= self.floor, "a guess for", times[at], "behind", self.floor)
                self.guesses.append(times[at])
                self.is_open = True
            elif kind == "undo":
                require(bool(self.guesses), "an undo of nothing")
                self.guesses, self.floor = [], None
            else:
                require(self.is_open and not self.guesses, "reconciliation is done, and", self)
                self.is_open = False

    def check_end(self) -> None:
        """All is over: nothing is tentative."""
        require(not self.is_open and not self.guesses, "all is over, and something is tentative", self.guesses)
