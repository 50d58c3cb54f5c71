"""Tuples of a join whose keys need not be equal, as they meet whole windows: stretches of places in, pairs out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.arrow_rows import Rows
from strandline.operators.join.join_columns import result_columns, side_values
from strandline.operators.join.join_windows import LEFT, RIGHT, SIDES
from strandline.operators.join.meeting_kernels import AT, NEXT, STRETCH, WRITTEN, meet_all
from strandline.operators.join.predicate import ConditionRows
from strandline.operators.join.tuple_record import DONE, FIRST, FULL, HEAD, TAIL, TIME, Pairs
from strandline.operators.kernels.kernel_arrays import Int64s

if TYPE_CHECKING:
    from strandline.operators.join.join_operator import JoinOperator

_FAILED_MAX: Final = 1 << 12
"""Pairs for which the condition raised are set aside when there are so many."""


class WindowMeeting:
    """The tuples of both sides by their places, kept ones and behind them new ones, while these are taken in."""

    def __init__(self, join: JoinOperator, new: Sequence[Sequence[Rows]], times: Sequence[Int64s], room: Pairs) -> None:
        """Notes the times of kept tuples, which new ones overwrite; `times` are those of the new ones."""
        self._join, self._new, self._room = join, new, room
        kept = (_kept_times(join, side, is_met=len(times[1 - side]) > 0) for side in SIDES)
        self._times = tuple(np.concatenate(both) for both in zip(kept, times, strict=True))
        self._rows: tuple[ConditionRows, ConditionRows] | None = None

    def pairs(self, stretches: Pairs, *, emits: bool) -> Iterator[Pairs]:
        """Yields the pairs of stretches for which the condition holds, and the tuples that come out alone.

        A part is overwritten by the next one. Pairs for which the condition raises are none; with `emits` they are set
        aside, or raised.
        """
        kernel, (left, right) = self._kernel_and_rows(emits=emits)
        at, many, code = np.zeros(AT, np.int64), len(stretches.left), FULL
        failed: list[tuple[int, int, str]] = []
        while code != DONE:
            at[WRITTEN], code = 0, FULL
            try:
                code = kernel(
                    left.values, right.values, left.valid, right.valid, *self._times, stretches, many, self._room, at
                )
            except Exception as problem:  # of the user's making, for this pair; the next ones have their turn
                failed.append((*_places_at(stretches, at), f"{type(problem).__name__}: {problem}"))
                at[NEXT] += 1
            if failed and (code == DONE or len(failed) >= _FAILED_MAX or self._join.on_error == "stop"):
                if emits:
                    self._set_aside(failed)
                failed = []
            if at[WRITTEN]:
                yield self._room.rows(slice(at[WRITTEN]))

    def _kernel_and_rows(self, *, emits: bool) -> tuple[Any, tuple[ConditionRows, ConditionRows]]:
        """Returns the loop over stretches, and the rows that it reads."""
        where, d = self._join.definition.where, self._join.definition
        if where is None or (where.function is None and not emits):
            # Without results: which tuples are kept does not depend on the condition.
            left, right = (np.ones(len(times), np.uint8) for times in self._times)
            return meet_all, (ConditionRows(left, left), ConditionRows(right, right))
        kinds = d.types_of(LEFT), d.types_of(RIGHT)
        if self._rows is None:
            many = len(self._times[LEFT]), len(self._times[RIGHT])
            left_columns, right_columns = (
                side_values(self._join, side, where.names[side], np.arange(rows), self._times[side], self._new[side])
                for side, rows in enumerate(many)
            )
            self._rows = where.rows((left_columns, right_columns), kinds, many)
        return where.over_windows(kinds), self._rows

    def _set_aside(self, failed: Sequence[tuple[int, int, str]]) -> None:
        """Sets pairs aside for which the condition raised, or raises an InputError about them."""
        join = self._join
        left, right = (np.array([pair[side] for pair in failed]) for side in SIDES)
        times, none = (self._times[LEFT][left], self._times[RIGHT][right]), np.zeros(len(failed), np.int64)
        unfit = Pairs(left, right, *times, none, none, none.astype(np.uint8))
        join.aside.add_pairs(result_columns(join, unfit, self._new), [why for *_, why in failed], join.on_error)


def _kept_times(join: JoinOperator, side: int, *, is_met: bool) -> Int64s:
    """Returns the times of kept tuples by their places; zeros where a place is none any more, or none is met."""
    ring = join.rings[side]
    first, head, tail = ring[FIRST], ring[HEAD], ring[TAIL]
    times = np.zeros(tail - first, np.int64)
    if is_met:
        times[head - first :] = ring.read(np.arange(head, tail))[TIME]
    return times


def _places_at(stretches: Pairs, at: Int64s) -> tuple[int, int]:
    """Returns the places of left and of right at which a loop over stretches has stopped."""
    i, met = int(at[STRETCH]), int(at[NEXT])
    return (met, int(stretches.right[i])) if stretches.sides[i] else (int(stretches.left[i]), met)
