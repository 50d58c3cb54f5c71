"""The loop over a window: a tuple meets those of a stretch of places, and what the condition says is compiled into it.

Columns lie in the order of places, those that the condition names and no others. So a stretch is read from one end to
the other, a pair is written only where the condition holds.
"""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"

from __future__ import annotations

from typing import Final

from strandline.operators.join.tuple_record import DONE, FULL
from strandline.operators.kernels.kernel_cache import njit

STRETCH: Final = 0
"""The stretch that comes next, or that is not done yet,"""
NEXT: Final = 1
"""the place in it that comes next, if that is not its first; the one at hand when the condition raised,"""
WRITTEN: Final = 2
"""and how many pairs are written."""
AT: Final = 3


@njit(inline="always", _nrt=False)
def _write_met(a, b, left_times, right_times, pairs, at):
    """Writes a pair of places."""
    n = at[WRITTEN]
    pairs.left[n], pairs.right[n] = a, b
    pairs.left_times[n], pairs.right_times[n] = left_times[a], right_times[b]
    at[WRITTEN] = n + 1


@njit(inline="always", _nrt=False)
def meet_stretches(holds, left, right, left_valid, right_valid, left_times, right_times, stretches, many, pairs, at):
    """Writes the pairs of the first so many stretches for which the condition holds; FULL if it is to be called again.

    What the condition raises comes out: `at` says where, and the pair is passed over by raising NEXT by one.
    """
    room = len(pairs.left)
    for i in range(at[STRETCH], many):
        at[STRETCH] = i
        a, b = stretches.left[i], stretches.right[i]
        if a < 0 or b < 0:
            if at[WRITTEN] == room:
                return FULL
            n = at[WRITTEN]
            pairs.left[n], pairs.right[n] = a, b
            pairs.left_times[n] = pairs.right_times[n] = stretches.left_times[i]
            at[WRITTEN] += 1
        elif stretches.sides[i] == 1:
            if right_valid[b]:
                new = right[b]
                for j in range(max(a, at[NEXT]), stretches.keys[i]):
                    at[NEXT] = j
                    if left_valid[j] and holds(left[j], new):
                        if at[WRITTEN] == room:
                            return FULL
                        _write_met(j, b, left_times, right_times, pairs, at)
        elif left_valid[a]:
            new = left[a]
            for j in range(max(b, at[NEXT]), stretches.keys[i]):
                at[NEXT] = j
                if right_valid[j] and holds(new, right[j]):
                    if at[WRITTEN] == room:
                        return FULL
                    _write_met(a, j, left_times, right_times, pairs, at)
        at[NEXT] = 0
    at[STRETCH] = many
    return DONE


@njit(inline="always", _nrt=False)
def _always(left, right):
    """Holds for every pair: there is no condition."""
    return True


@njit(cache=True, nogil=True, _nrt=False)
def meet_all(left, right, left_valid, right_valid, left_times, right_times, stretches, many, pairs, at):
    """Writes the pairs of the first so many stretches, as `meet_stretches`."""
    return meet_stretches(
        _always, left, right, left_valid, right_valid, left_times, right_times, stretches, many, pairs, at
    )
