"""Places of a serialised input at which a replay can begin: numbers of tuples, each with the time that belongs to it.

An operator knows by number from which tuple on it needs its input again, while inputs are searched by time. Whoever
reads the input passes places of which both are known, at the end of every piece, also in a replay. Some of them are
kept: a replay begins at the last one before the tuple that it needs.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable

import numpy as np

from strandline.log.input_mark import Position
from strandline.log.leaf import Ints

EDGES_MAX = 256
_NOTHING = np.iinfo(np.int64).min
"""Nothing is before this time, as nothing is before none."""


class Edges:
    """Positions in order, a bounded number of them, from the one at which a replay would begin now.

    >>> edges = Edges([Position(0, None), Position(10, 500), Position(20, 900)])
    >>> edges.before(19)
    Position(ordinal=10, bound=500)
    """

    def __init__(self, positions: Iterable[Position]) -> None:
        self._positions = list(positions)

    def add(self, position: Position) -> None:
        """Adds one that is not before the last. Where there are too many, those go that lie closest together."""
        if self._positions and self._positions[-1].ordinal == position.ordinal:
            self._positions.pop()  # the same place, and the later time leaves less to read
        self._positions.append(position)
        if len(self._positions) > EDGES_MAX:
            self._thin()

    def _thin(self) -> None:
        first, *between, last = self._positions
        apart = (last.ordinal - first.ordinal) / (EDGES_MAX // 2)
        kept = [first]
        for position in between:
            if position.ordinal - kept[-1].ordinal >= apart:
                kept.append(position)
        self._positions = [*kept, last]

    def before(self, ordinal: int) -> Position:
        """The last position that is not behind this place; those before it are forgotten."""
        at = bisect.bisect_right(self._positions, ordinal, key=lambda p: p.ordinal) - 1
        if at < 0:
            raise IndexError(f"no position before {ordinal} is known")
        del self._positions[:at]
        return self._positions[0]

    @property
    def words(self) -> Ints:
        """All of them, a row each, for the local state."""
        rows = [(p.ordinal, _NOTHING if p.bound is None else p.bound) for p in self._positions]
        return np.array(rows, np.int64).reshape(-1, 2)

    @classmethod
    def of_words(cls, words: Ints) -> Edges:
        """What `words` gave."""
        return cls(Position(int(m), None if b == _NOTHING else int(b)) for m, b in words)
