"""Places of a serialised input at which a replay can begin: numbers of tuples, each with the time that belongs to it.

An operator knows by number from which tuple on it needs its input again, while inputs are searched by time. A reader
of the input knows both at the end of every piece, also in a replay. Some of these places are kept: a replay begins at
the last one before the tuple that it needs.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from strandline.inputs.input import InputSlice, Piece, ReplayPlaces
from strandline.log.index.leaf import Ints
from strandline.log.operator_state.input_mark import Marks, Position
from strandline.log.operator_state.standing import Standing
from strandline.units import END_OF_TIME

EDGES_MAX = 256
_NOTHING = np.iinfo(np.int64).min
"""Nothing is before this time, as nothing is before none."""
_EMPTY = -1


class Edges(ReplayPlaces):
    """Positions in order, a bounded number of them, from the one at which a replay would begin now.

    >>> edges = Edges([Position(0, None), Position(10, 500), Position(20, 900)])
    >>> edges.before(19)
    Position(ordinal=10, bound=500)
    """

    def __init__(self, positions: Iterable[Position] = ()) -> None:
        self._positions = list(positions)

    def add(self, position: Position) -> None:
        """Adds one that is not before the last. Where there are too many, those go that lie closest together."""
        if self._positions and self._positions[-1].ordinal == position.ordinal:
            self._positions.pop()  # the same place, and the later time leaves less to read
        self._positions.append(position)
        if len(self._positions) > EDGES_MAX:
            self._thin()

    def add_all(self, positions: Iterable[Position]) -> None:
        """Adds some, in order."""
        for position in positions:
            self.add(position)

    @property
    def last(self) -> Position:
        """The one that was added last."""
        return self._positions[-1]

    def __iter__(self) -> Iterator[Position]:
        """Yields all places, in order."""
        return iter(self._positions)

    def _thin(self) -> None:
        first, *between, last = self._positions
        apart = (last.ordinal - first.ordinal) / (EDGES_MAX // 2)
        kept = [first]
        for position in between:
            if position.ordinal - kept[-1].ordinal >= apart:
                kept.append(position)
        self._positions = [*kept, last]

    def before(self, ordinal: int) -> Position:
        """Returns the last position that is not behind this place; forgets those before it."""
        at = bisect.bisect_right(self._positions, ordinal, key=lambda p: p.ordinal) - 1
        if at < 0:
            raise IndexError(f"no position before {ordinal} is known")
        del self._positions[:at]
        return self._positions[0]

    @property
    def words(self) -> Ints:
        """All of them, a row each, for the next step; always as many rows, of which the last ones may be empty."""
        rows = [(p.ordinal, _NOTHING if p.bound is None else p.bound) for p in self._positions]
        rows += [(_EMPTY, _NOTHING)] * (EDGES_MAX - len(rows))
        return np.array(rows, np.int64)

    @classmethod
    def of_words(cls, words: Ints) -> Edges:
        """Makes the edges of the result of `words`."""
        return cls(Position(int(m), None if b == _NOTHING else int(b)) for m, b in words if m != _EMPTY)

    # ------------------------------------------------------------------ as a step uses them

    def begin(self, position: Position) -> None:
        self.add(position)

    def passed(self, piece: Piece) -> None:
        self.add_all(piece.edges)
        if piece.is_edge:
            self.add(piece.position)

    def restored(self, words: Ints | None, before: Standing) -> bool:
        if words is None:
            return False
        self.add_all([*Edges.of_words(words), before.stands])
        return True

    def reached(self, boundary: int | None, time: int | None) -> tuple[int | None, int | None]:
        """Returns the time up to which tuples were taken in; no tuple among them is later."""
        until = self.last.bound
        return until, time if until == END_OF_TIME else until

    def noted(self, standing: Standing, taken: InputSlice) -> Standing:
        return replace(standing, marks=Marks(self.last, self.before(standing.oldest), taken.inputs))
