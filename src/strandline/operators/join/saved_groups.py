"""Groups of kept tuples whose footprints were written together, in the order of their footprints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from strandline.operators.join.join_windows import SIDES
from strandline.operators.join.tuple_ring import TupleRing
from strandline.operators.kernels.kernel_arrays import Int64s

ROOM_MIN: Final = 64


class SavedGroup(NamedTuple):
    """Tuples of a side with numbers from `first` to before `end`; the first footprint stands at `position`."""

    side: int
    first: int
    end: int
    position: int


class SavedGroups:
    """A queue of groups, oldest first. Groups of which nothing is kept any more are passed over."""

    def __init__(self, rings: Sequence[TupleRing], table: Int64s | None = None) -> None:
        self._rings = rings
        groups = map(SavedGroup._make, [] if table is None else table.tolist())
        self._groups = [group for group in groups if group.end > group.first]
        self._begin = 0
        """Groups before this one are gone."""
        self.room = max(ROOM_MIN, 0 if table is None else len(table))

    @property
    def table(self) -> Int64s:
        """The groups, a row each; rows without tuples are none."""
        self._groups, self._begin = self._groups[self._begin :], 0
        while self.room < len(self._groups):
            self.room *= 2
        table = np.zeros((self.room, 4), np.int64)
        for i, group in enumerate(self._groups):
            table[i] = group
        return table

    def oldest(self) -> SavedGroup | None:
        """Returns the oldest group of which a tuple is kept."""
        while self._begin < len(self._groups):
            group = self._groups[self._begin]
            if len(self._rings[group.side].live(group.first, group.end, 1)):
                return group
            self._begin += 1
        return None

    def add(self, group: SavedGroup) -> None:
        """Adds the newest group."""
        self._groups.append(group)

    def move_oldest(self, position: int, room: int) -> tuple[int, Int64s]:
        """Moves the oldest group, or its first `room` tuples, to this position; returns side and tuples."""
        group = self._groups[self._begin]
        live = self._rings[group.side].live(group.first, group.end)
        chosen = live[:room]
        if len(live) > room:
            self._groups[self._begin] = group._replace(first=int(live[room]))
        else:
            self._begin += 1
        self.add(SavedGroup(group.side, int(chosen[0]), int(chosen[-1]) + 1, position))
        return group.side, chosen

    def clear(self) -> None:
        """Drops all groups."""
        self._groups, self._begin = [], 0

    def renumber(self, side: int, numbers: Int64s) -> None:
        """Gives the tuples of a side that had these numbers new ones, from 0 on."""
        for i, g in enumerate(self._groups):
            if g.side == side:
                first, end = np.searchsorted(numbers, [g.first, g.end]).tolist()
                self._groups[i] = g._replace(first=first, end=end)

    def set_loaded(self, found: Sequence[tuple[Int64s, Int64s]], group: int) -> None:
        """Groups of tuples that were loaded: of each side numbers, and the positions of their footprints.

        A group goes on with the next tuple of its side, if that was written behind it and not far away.
        """
        self.clear()
        sides = np.concatenate([np.full(len(found[s][0]), s) for s in SIDES])
        ranks = np.concatenate([np.arange(len(found[s][0])) for s in SIDES])
        numbers, positions = (np.concatenate([found[s][i] for s in SIDES]) for i in range(2))
        order = np.argsort(positions, kind="stable")
        sides, ranks, numbers, positions = sides[order], ranks[order], numbers[order], positions[order]
        is_break = (np.diff(sides) != 0) | (np.diff(ranks) != 1)
        breaks = np.append(np.flatnonzero(is_break) + 1, len(order))
        first = 0
        while first < len(order):
            far = int(np.searchsorted(positions, positions[first] + 2 * group))
            end = min(first + group, far, int(breaks[np.searchsorted(breaks, first, side="right")]))
            last = int(numbers[end - 1])
            self.add(SavedGroup(int(sides[first]), int(numbers[first]), last + 1, int(positions[first])))
            first = end
