"""The loop over tuples of a join in which keys need not be equal: what a new tuple meets is a stretch of places.

Nothing is looked for and no tuple of a window is touched here: a new tuple meets all that the other side keeps, of a
band those with the times in it, and these lie side by side. A row of `Pairs` is then such a stretch: `sides` says which
side is new, `left` and `right` are its place and where the stretch begins, `keys` where that ends. Tuples that come
out alone are rows as everywhere. `meeting_kernels` makes pairs of them.
"""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"

from __future__ import annotations

from strandline.operators.join.ring_kernels import record_of
from strandline.operators.join.settling_kernels import pass_time_before
from strandline.operators.join.taking_in import let_pass, new_record, take_in_order, take_next
from strandline.operators.join.trail_kernels import let_head_go
from strandline.operators.join.tuple_record import (
    BAND,
    DONE,
    FIRST,
    FORM,
    FOUND,
    FULL,
    HEAD,
    HIGH,
    KEEPS,
    LIVE,
    LOW,
    NULL,
    OLDER,
    ORDINAL,
    PER_PARTITION,
    SIZE,
    TAIL,
    TIME,
)
from strandline.operators.kernels.kernel_cache import njit


@njit(inline="always", _nrt=False)
def _first_from(side, time):
    """Returns the number of the first kept tuple that is not before this time: tuples came in the order of time."""
    low, high = side.header[HEAD], side.header[TAIL]
    while low < high:
        middle = (low + high) // 2
        if side.records[record_of(side, middle), TIME] < time:
            low = middle + 1
        else:
            high = middle
    return low


@njit(inline="always", _nrt=False)
def _meet(mine, other, which, new, row, rules, pairs, progress):
    """Writes the stretch that a new tuple meets; without room writes none and returns FULL."""
    begin, end = other.header[HEAD], other.header[TAIL]
    if rules[FORM] == BAND:
        time = new.times[row]
        begin = _first_from(other, time - rules[HIGH] if which == 1 else time + rules[LOW])
        end = _first_from(other, (time - rules[LOW] if which == 1 else time + rules[HIGH]) + 1)
    if begin >= end:
        return DONE
    n = progress[FOUND]
    if n == len(pairs.left):
        return FULL
    place, first = mine.header[TAIL] - mine.header[FIRST], other.header[FIRST]
    pairs.left[n], pairs.right[n] = (begin - first, place) if which == 1 else (place, begin - first)
    pairs.keys[n], pairs.sides[n] = end - first, which
    progress[FOUND] = n + 1
    return DONE


@njit(inline="always", _nrt=False)
def _keep(mine, which, new, row, rules):
    """Keeps a new tuple, and drops the one whose place it takes."""
    if rules[KEEPS + which] == 0:
        let_pass(mine)
        return
    record = new_record(mine, new, row, rules)
    mine.records[record, OLDER] = NULL
    mine.records[record, ORDINAL] = new.ordinals[row]
    mine.header[LIVE] += 1
    if rules[FORM] == PER_PARTITION and mine.header[LIVE] > rules[SIZE + which]:
        let_head_go(mine)


@njit(inline="always", _nrt=False)
def _take(left, right, mine, other, which, new, rules, pairs, progress):
    """Takes in the next tuple of a side; DONE, or what stands against it, and then nothing of it was done."""
    if pass_time_before(left, right, which, new, rules, pairs, progress) == FULL:
        return FULL
    return take_next(_meet, _keep, mine, other, which, new, rules, pairs, progress)


@njit(inline="always", _nrt=False)
def _look_ahead(mine, other, new, first, end):
    """Touches nothing: records are read in their order."""
    return 0


@njit(cache=True, nogil=True, _nrt=False)
def take_in_stretches(left, right, new_left, new_right, rules, pairs, progress):
    """Takes in new tuples of both sides in the serialised order; DONE, or FULL or GROW if it is to be called again."""
    return take_in_order(_take, _look_ahead, left, right, new_left, new_right, rules, pairs, progress)
