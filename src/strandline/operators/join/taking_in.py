"""The loop over new tuples of both sides, in the serialised order: the same however windows are kept."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"

from __future__ import annotations

from typing import Final

from strandline.operators.join.tuple_record import DONE, ROW, TOUCHED
from strandline.operators.kernels.kernel_cache import njit

_AHEAD: Final = 48
"""Tuples that are looked ahead."""


@njit(inline="always", _nrt=False)
def take_in_order(take, look_ahead, left, right, new_left, new_right, rules, pairs, progress):
    """Takes in new tuples of both sides; DONE, or FULL or GROW if it is to be called again.

    `take` takes in the next tuple of a side, `look_ahead` touches what the next ones will ask for.
    """
    lefts, rights = len(new_left.ordinals), len(new_right.ordinals)
    seen_left, seen_right = progress[ROW], progress[ROW + 1]
    while True:
        i, j = progress[ROW], progress[ROW + 1]
        if i < lefts and (j >= rights or new_left.ordinals[i] < new_right.ordinals[j]):
            if i >= seen_left:
                seen_left = min(i + _AHEAD, lefts)
                progress[TOUCHED] += look_ahead(left, right, new_left, i, seen_left)
            code = take(left, right, left, right, 0, new_left, rules, pairs, progress)
        elif j < rights:
            if j >= seen_right:
                seen_right = min(j + _AHEAD, rights)
                progress[TOUCHED] += look_ahead(right, left, new_right, j, seen_right)
            code = take(left, right, right, left, 1, new_right, rules, pairs, progress)
        else:
            return DONE
        if code != DONE:
            return code
