"""Which kept tuples get a footprint, and when: the part of a join that its policy asks for.

Tuples that can be replayed need none. What is kept of a side is in footprints up to some tuple (SAVED) and in the input
from there on, whatever the keys; so a recovery need not be told what is saved: everything up to the last tuple that it
loads. Written again for the sake of the extent, a group says nothing about younger tuples, and that stays true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.operators.join.join_columns import footprints_of
from strandline.operators.join.join_windows import LEFT, RIGHT
from strandline.operators.join.saved_groups import SavedGroup, SavedGroups
from strandline.operators.join.tuple_record import HEAD, INPUT, LIVE, SAVED, TAIL
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.operator import Extent, Footprints, Limits, Operator

if TYPE_CHECKING:
    from strandline.operators.join.definition import JoinDefinition
    from strandline.operators.join.tuple_ring import TupleRing


class JoinSaving(Operator):
    """Footprints of a join."""

    definition: JoinDefinition
    rings: tuple[TupleRing, TupleRing]
    groups: SavedGroups
    _save_every: bool = False

    @property
    def input_end(self) -> int:
        return self.rings[LEFT][INPUT]

    @input_end.setter
    def input_end(self, place: int) -> None:
        self.rings[LEFT][INPUT] = place

    @property
    def open_windows(self) -> int:
        """N: the tuples that are kept, of both sides."""
        return self.rings[LEFT][LIVE] + self.rings[RIGHT][LIVE]

    @property
    def in_footprints(self) -> int:
        """The number of kept tuples that are in footprints; all others come back with the replay."""
        return sum(len(ring.live(ring[HEAD], ring[SAVED])) for ring in self.rings)

    def save(self, position: int, limits: Limits) -> Footprints:
        """Returns footprints of the oldest tuples without one, and of groups whose own are too old, as limits ask."""
        written = _WrittenGroup()
        if self._save_every:
            self._save_unsaved(position, written)
        self._save_oldest(position, limits, written)
        if limits.slow is not None:
            self._save_slow(position, limits, written)
            self._save_oldest(position, limits, written)  # of a longer output
        return self._footprints(written)

    def _save_oldest(self, begin: int, limits: Limits, written: _WrittenGroup) -> None:
        while written.rows < limits.budget:
            end = begin + written.rows
            room = min(self.definition.group, limits.budget - written.rows)
            oldest, unsaved = self.groups.oldest(), self._first_unsaved()
            back = end - oldest.position if oldest else 0
            replay = self.input_end - unsaved[0] if unsaved else 0
            to_save, to_move = replay > limits.replay, back > limits.extent
            costs = replay * limits.replay_cost, back * limits.extent_cost
            if not to_save and not to_move and sum(costs) > limits.cost:
                to_save, to_move = costs[0] >= costs[1], costs[0] < costs[1]
            if to_save and unsaved:
                written.add(unsaved[1], self._save_group(unsaved[1], end, room))
            elif to_move and oldest is not None and oldest.position < begin:
                written.add(*self.groups.move_oldest(end, room))
            else:
                break

    def _save_slow(self, position: int, limits: Limits, written: _WrittenGroup) -> None:
        """Saves tuples that were kept for long: those without a footprint, and groups that are due again.

        Groups are written again in the order of their footprints only: with an older one of another group before it, a
        recovery would have to read as much.
        """
        assert limits.slow is not None
        opened_before, before = limits.slow.opened_before, min(limits.slow.written_before, position)
        left = limits.slow_budget(written.rows)
        while left > 0:
            end, room = position + written.rows, min(self.definition.group, left)
            unsaved, oldest = self._first_unsaved(), self.groups.oldest()
            if unsaved is not None and unsaved[0] < opened_before:
                side, ring = unsaved[1], self.rings[unsaved[1]]
                room = self._older(side, ring.live(ring[SAVED], ring[TAIL], room), opened_before)
                written.add(side, self._save_group(side, end, room))
            elif oldest is not None and oldest.position < before:
                live = self.rings[oldest.side].live(oldest.first, oldest.end, room)
                room = self._older(oldest.side, live, opened_before)
                if not room:
                    break
                written.add(*self.groups.move_oldest(end, room))
            else:
                break
            left -= room

    def _older(self, side: int, numbers: Int64s, place: int) -> int:
        """Returns how many of these tuples, which are in the order of their arrival, came before the place."""
        return int(np.searchsorted(self.rings[side].read(numbers)[0], place))

    def save_all(self, position: int) -> Footprints:
        self.mark_unsaved(every=True)
        written = _WrittenGroup()
        self._save_unsaved(position, written)
        return self._footprints(written)

    def save_nothing(self) -> Footprints:
        return self._footprints(_WrittenGroup())

    def mark_unsaved(self, *, every: bool = False) -> None:
        """Lets the next `save` write all tuples without a footprint; with `every`, those with one too."""
        self._save_every = True
        if every:
            self.groups.clear()
            for ring in self.rings:
                ring[SAVED] = ring[HEAD]

    def extent(self, position: int) -> Extent:
        unsaved, oldest = self._first_unsaved(), self.groups.oldest()
        return Extent(
            self.open_windows, unsaved[0] if unsaved else self.input_end, oldest.position if oldest else position
        )

    def oldest_footprint(self) -> tuple[int, int] | None:
        """Returns None: the footprints of a join do not say where replay begins, and loaded tuples may be over."""
        return None

    def windows(self, *, now: bool = False) -> list[pa.Array]:
        """Returns every kept tuple in the columns of a footprint, left first."""
        written = _WrittenGroup()
        for side, ring in enumerate(self.rings):
            written.add(side, ring.live(ring[HEAD], ring[TAIL]))
        return self._footprints(written).checked

    def _first_unsaved(self) -> tuple[int, int] | None:
        """Returns place and side of the oldest tuple that no footprint holds."""
        found = []
        for side, ring in enumerate(self.rings):
            number = ring.first_unsaved()
            if number is not None:
                found.append((int(ring.read(np.array([number]))[0, 0]), side))
        return min(found, default=None)

    def _save_unsaved(self, position: int, written: _WrittenGroup) -> None:
        for side, ring in enumerate(self.rings):
            while ring.first_unsaved() is not None:
                written.add(side, self._save_group(side, position + written.rows, self.definition.group))
        self._save_every = False

    def _save_group(self, side: int, position: int, room: int) -> Int64s:
        ring = self.rings[side]
        numbers = ring.live(ring[SAVED], ring[TAIL], room)
        ring[SAVED] = int(numbers[-1]) + 1
        self.groups.add(SavedGroup(side, int(numbers[0]), ring[SAVED], position))
        return numbers

    def _footprints(self, written: _WrittenGroup) -> Footprints:
        nothing = self.definition.no_footprints
        if not written.rows:
            return Footprints(nothing, nothing)
        return Footprints(nothing, footprints_of(self, *written.arrays()))  # type: ignore[arg-type]


class _WrittenGroup:
    """Tuples in the order in which their footprints stand."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Int64s]] = []
        self.rows = 0

    def add(self, side: int, numbers: Int64s) -> None:
        self._parts.append((side, numbers))
        self.rows += len(numbers)

    def arrays(self) -> tuple[Int64s, Int64s]:
        """Returns their sides and numbers."""
        sides = [np.full(len(numbers), side, np.int64) for side, numbers in self._parts]
        return np.concatenate(sides), np.concatenate([numbers for _, numbers in self._parts])
