"""The join in plain Python: what the kernels compute, said as simply as possible.

Tuples, results and footprints are dictionaries. A property test holds `JoinOperator` against it.

The rules, each in one place below:

- A tuple first lets go of what is over at its time, then meets the kept tuples of the other side, oldest first, then
  is kept itself.
- A tuple of an outer side that met nothing comes out when its reach is over: in the order of the time at which it is,
  then of arrival. Before a tuple of time t comes what was over before t. So no cut changes the order.
- A stream that is joined with itself has each tuple on both sides, on the right first. It does not meet itself.
- A key with a null in it matches nothing. With match="any" keys do not matter at all.
- A pair for which the condition raises is no result; it is set aside once, not again in a replay.
- What is kept of a side is in footprints up to some tuple, and in the input from there on. The first tuple that is not
  in a footprint is where replay begins. A recovery keeps no tuple that is not behind the last one it has loaded.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from strandline.operators.join.definition import (
    INPUT_COLUMN,
    OPEN_COLUMN,
    ORDINAL_COLUMN,
    RESULT_TIME,
    SIDE_COLUMN,
    JoinDefinition,
)
from strandline.operators.join.join_windows import LEFT, RIGHT, SIDES
from strandline.operators.operator import Extent, Limits

Row = dict[str, Any]
_US = dt.timedelta(microseconds=1)


@dataclass(eq=False)
class _Tuple:
    """One that is kept."""

    side: int
    ordinal: int
    time: int
    row: Row
    key: tuple[Any, ...]
    is_matched: bool = False
    is_settled: bool = False
    """Outer: it came out, or never will."""


@dataclass(eq=False)
class _Group:
    """Tuples whose footprints were written together, the first of them at this output offset."""

    tuples: list[_Tuple]
    position: int


@dataclass
class PlainJoin:
    """A join with the tuples that it keeps."""

    definition: JoinDefinition
    condition: Callable[[Row, Row], bool | None] | None = None
    """`where`, over rows; None if it is not known."""
    input_end: int = 0
    kept: tuple[list[_Tuple], list[_Tuple]] = field(default_factory=lambda: ([], []))
    saved: list[int] = field(default_factory=lambda: [-1, -1])
    """Of each side: kept tuples up to this place are in footprints."""
    groups: list[_Group] = field(default_factory=list)
    """In the order of their footprints."""
    save_every: bool = False
    set_aside: list[Row] = field(default_factory=list)
    """Pairs for which the condition raised, as results would be."""

    # ------------------------------------------------------------------ tuples

    def feed(self, tuples: Iterable[tuple[int, Row]]) -> list[Row]:
        """Takes in tuples, each with its side, in the serialised order; results."""
        results = []
        for side, row in tuples:
            results += self._take(side, row)
            self.input_end = row["_offset"] + 1
        return results

    def replay(self, tuples: Iterable[tuple[int, Row]]) -> None:
        """Takes in tuples that were seen before, but for those up to the last one of their side that was loaded."""
        before = len(self.set_aside)
        for side, row in tuples:
            if row["_offset"] > self.saved[side]:
                self._take(side, row)
        del self.set_aside[before:]

    def _take(self, side: int, row: Row) -> list[Row]:
        windows = self.definition.windows
        new = self._tuple(side, row)
        results = self.advance(new.time) if windows.is_band else []
        for old in self.kept[1 - side]:
            if self._match(old, new):
                old.is_matched = new.is_matched = True
                results.append(self._result(*((old, new) if side == RIGHT else (new, old))))
        if windows.keeps[side] and (None not in new.key or windows.keeps_null(side)):
            self.kept[side].append(new)
            self._trim(new)
        return results

    def _match(self, old: _Tuple, new: _Tuple) -> bool:
        windows = self.definition.windows
        left, right = (old, new) if new.side == RIGHT else (new, old)
        if old.ordinal == new.ordinal:
            return False
        if not windows.meets_any and (old.key != new.key or None in new.key):
            return False
        if windows.is_band and not windows.low <= right.time - left.time <= windows.high:
            return False
        try:
            return self.condition is None or bool(self.condition(left.row, right.row))
        except ArithmeticError:
            self.set_aside.append(self._result(left, right))
            return False

    def _trim(self, new: _Tuple) -> None:
        """Count windows: lets go of the oldest tuple if there are too many with the new one."""
        windows = self.definition.windows
        if not windows.is_band:
            kept = self.kept[new.side]
            rivals = [t for t in kept if windows.kind == "partition" or t.key == new.key]
            if len(rivals) > windows.sizes[new.side]:
                kept.remove(rivals[0])

    def advance(self, boundary: int) -> list[Row]:
        """Nothing before this time follows any more: lets go of what is over; results without a match."""
        windows = self.definition.windows
        if not windows.is_band:
            return []
        over = [
            t
            for side in SIDES
            for t in self.kept[side]
            if windows.outer[side] and not t.is_settled and t.time + windows.reach[side] < boundary
        ]
        over.sort(key=lambda t: (t.time + windows.reach[t.side], t.ordinal, -t.side))
        for t in over:
            t.is_settled = True
        for side in SIDES:
            self.kept[side][:] = [t for t in self.kept[side] if t.time + windows.keep[side] >= boundary]
        return [self._result(*((t, None) if t.side == LEFT else (None, t))) for t in over if not t.is_matched]

    @property
    def due(self) -> int | None:
        """The first boundary at which `advance` does anything; None if there is none."""
        windows = self.definition.windows
        if not windows.is_band:
            return None
        ends = [
            t.time + (windows.reach if windows.outer[t.side] and not t.is_settled else windows.keep)[t.side]
            for t in self._every()
        ]
        return min(ends) + 1 if ends else None

    # ------------------------------------------------------------------ footprints

    def save(self, position: int, limits: Limits) -> list[Row]:
        """Footprints of the oldest tuples that have none, and of groups whose own are too far back, as limits ask."""
        written: list[Row] = []
        if self.save_every:
            for side in SIDES:
                while self._unsaved(side):
                    written += self._save_group(side, position + len(written), self.definition.group)
            self.save_every = False
        written += self._save_oldest(position, limits, len(written))
        written += self._save_slow(position, limits, len(written))
        return written + self._save_oldest(position, limits, len(written))  # of a longer output

    def _save_oldest(self, begin: int, limits: Limits, before: int) -> list[Row]:
        """Footprints as the limits ask, behind so many others."""
        written: list[Row] = []
        while before + len(written) < limits.budget:
            room = min(self.definition.group, limits.budget - before - len(written))
            extent = self.extent(begin + before + len(written))
            back, replay = begin + before + len(written) - extent.oldest_output, self.input_end - extent.oldest_input
            to_save, to_move = replay > limits.replay, back > limits.extent
            costs = replay * limits.replay_cost, back * limits.extent_cost
            if not to_save and not to_move and sum(costs) > limits.cost:
                to_save, to_move = costs[0] >= costs[1], costs[0] < costs[1]
            if to_save and replay > 0:
                firsts = [(self._unsaved(side)[0].ordinal, side) for side in SIDES if self._unsaved(side)]
                written += self._save_group(min(firsts)[1], begin + before + len(written), room)
            elif to_move and self._live_groups() and self._live_groups()[0].position < begin:
                written += self._move_group(begin + before + len(written), room)
            else:
                break
        return written

    def _save_slow(self, position: int, limits: Limits, before: int) -> list[Row]:
        """Footprints of tuples that have been kept for long, behind so many others."""
        written: list[Row] = []
        slow = limits.slow
        while slow is not None and len(written) < limits.slow_budget(before):
            room = min(self.definition.group, limits.slow_budget(before) - len(written))
            end = position + before + len(written)
            firsts = [(self._unsaved(side)[0].ordinal, side) for side in SIDES if self._unsaved(side)]
            groups = self._live_groups()
            if firsts and min(firsts)[0] < slow.opened_before:
                side = min(firsts)[1]
                room = sum(t.ordinal < slow.opened_before for t in self._unsaved(side)[:room])
                written += self._save_group(side, end, room)
            elif groups and groups[0].position < min(slow.written_before, position):
                room = sum(t.ordinal < slow.opened_before for t in self._live(groups[0])[:room])
                if not room:
                    break
                written += self._move_group(end, room)
            else:
                break
        return written

    def save_all(self, position: int) -> list[Row]:
        """A footprint of every kept tuple: an instant checkpoint."""
        self.mark_unsaved(every=True)
        return self.save(position, Limits(budget=0))

    def mark_unsaved(self, *, every: bool = False) -> None:
        """The next `save` writes all tuples that have no footprint; with `every`, those with one too."""
        self.save_every = True
        if every:
            self.saved = [-1, -1]
            self.groups = []

    def _save_group(self, side: int, position: int, room: int) -> list[Row]:
        tuples = self._unsaved(side)[:room]
        self.saved[side] = tuples[-1].ordinal
        self.groups.append(_Group(tuples, position))
        return [self._footprint(t) for t in tuples]

    def _move_group(self, position: int, room: int) -> list[Row]:
        """Writes the oldest group again, or the first part of it; what the side has saved stays what it was."""
        group = self._live_groups()[0]
        tuples = self._live(group)[:room]
        group.tuples = self._live(group)[room:]
        self.groups = [*(g for g in self.groups if g.tuples), _Group(tuples, position)]
        return [self._footprint(t) for t in tuples]

    def extent(self, position: int) -> Extent:
        """Where recovery would begin if the output ended at this offset."""
        unsaved = [t.ordinal for side in SIDES for t in self._unsaved(side)]
        groups = self._live_groups()
        return Extent(
            len(self._every()), min(unsaved, default=self.input_end), groups[0].position if groups else position
        )

    def windows(self) -> list[Row]:
        """Every kept tuple in the columns of a footprint, left first."""
        return [self._footprint(t) for t in self._every()]

    def _every(self) -> list[_Tuple]:
        return [t for side in SIDES for t in self.kept[side]]

    def _unsaved(self, side: int) -> list[_Tuple]:
        return [t for t in self.kept[side] if t.ordinal > self.saved[side]]

    def _live(self, group: _Group) -> list[_Tuple]:
        return [t for t in group.tuples if t in self.kept[t.side]]

    def _live_groups(self) -> list[_Group]:
        return [g for g in self.groups if self._live(g)]

    def _footprint(self, t: _Tuple) -> Row:
        result = self._result(*((t, None) if t.side == LEFT else (None, t)))
        return {
            **result,
            INPUT_COLUMN: self.input_end,
            OPEN_COLUMN: len(self._every()),
            SIDE_COLUMN: t.side,
            ORDINAL_COLUMN: t.ordinal,
        }

    # ------------------------------------------------------------------ recovery

    def load(self, newest_first: Iterable[Row]) -> None:
        """Takes in the newest footprint of each tuple; each has the output offset at which it stands."""
        newest: dict[tuple[int, int], Row] = {}
        for row in newest_first:
            newest.setdefault((row[ORDINAL_COLUMN], row[SIDE_COLUMN]), row)
        for ordinal, side in sorted(newest):
            self._take(side, self._row(newest[ordinal, side]))
            self.saved[side] = ordinal
        self.groups = []
        for t in sorted(self._every(), key=lambda t: int(newest[t.ordinal, t.side]["_offset"])):
            position = newest[t.ordinal, t.side]["_offset"]
            last = self.groups[-1] if self.groups else None
            if last is not None and self._continues(last, t, position):
                last.tuples.append(t)
            else:
                self.groups.append(_Group([t], position))

    def _continues(self, group: _Group, t: _Tuple, position: int) -> bool:
        """Whether a loaded tuple goes into a group: the next of its side, and not far behind."""
        size, last = self.definition.group, group.tuples[-1]
        if last.side != t.side or len(group.tuples) >= size or position >= group.position + 2 * size:
            return False
        kept = self.kept[t.side]
        return kept.index(t) == kept.index(last) + 1

    def _row(self, footprint: Row) -> Row:
        """The input tuple of a footprint."""
        d, side = self.definition, footprint[SIDE_COLUMN]
        names = zip(d.names[side], d.side_columns[side], strict=True)
        values = {column: footprint[name] for name, (column, _) in names}
        return {"_offset": footprint[ORDINAL_COLUMN], **{c: footprint[c] for c, _ in d.key}, **values}

    # ------------------------------------------------------------------ rows

    def _tuple(self, side: int, row: Row) -> _Tuple:
        key = tuple(row[c] for c, _ in self.definition.key)
        return _Tuple(side, row["_offset"], _number(row[self.definition.times[side]]), row, key)

    def _result(self, left: _Tuple | None, right: _Tuple | None) -> Row:
        d = self.definition
        there = [t for t in (left, right) if t is not None]
        later = max(there, key=lambda t: (t.time, t.ordinal))
        result = {c: there[0].row[c] for c, _ in d.key} | {RESULT_TIME: later.row[d.times[later.side]]}
        for side, t in enumerate((left, right)):
            for name, (column, _) in zip(d.names[side], d.side_columns[side], strict=True):
                result[name] = None if t is None else t.row[column]
        return result


def serialised(left: Sequence[Row], right: Sequence[Row]) -> list[tuple[int, Row]]:
    """The rows of both sides in the order of their places, each with its side."""
    both = [(row["_offset"], -side, row) for side, rows in enumerate((left, right)) for row in rows]
    return [(-side, row) for _, side, row in sorted(both, key=lambda found: found[:2])]


def _number(time: Any) -> int:
    """A time as whole numbers: microseconds since 1970 if it is a timestamp."""
    if isinstance(time, dt.datetime):
        return (time - dt.datetime(1970, 1, 1, tzinfo=time.tzinfo)) // _US
    return int(time)
