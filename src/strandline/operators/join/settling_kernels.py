"""Kernels for bands: what is over comes out or goes, and outer joins know who was matched."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"

from __future__ import annotations

from strandline.operators.join.ring_kernels import key_at, let_head_go, record_of
from strandline.operators.join.tuple_record import (
    DEAD,
    DONE,
    FIRST,
    FOUND,
    FULL,
    HEAD,
    KEY,
    MATCHED,
    NULL,
    OLDER,
    ORDINAL,
    SETTLED,
    TAIL,
    TIME,
)
from strandline.operators.kernels.kernel_cache import njit


@njit(inline="always", _nrt=False)
def _is_over(side, which, rules, time):
    """Returns whether the next tuple of an outer side that has not come out yet is over at this time."""
    number = side.header[SETTLED]
    if not rules.outer[which] or number >= side.header[TAIL]:
        return False
    return side.records[record_of(side, number), TIME] + rules.reach[which] < time


@njit(cache=True, nogil=True, _nrt=False)
def _settle_next(side, which, rules, pairs, progress):
    """Passes the next tuple of an outer side: it comes out if it has met nothing."""
    number = side.header[SETTLED]
    record = record_of(side, number)
    flags = side.records[record, OLDER]
    if flags & MATCHED == 0:
        n = progress[FOUND]
        place, time = number - side.header[FIRST], side.records[record, TIME]
        pairs.left[n], pairs.right[n] = (place, -1) if which == 0 else (-1, place)
        pairs.left_times[n] = pairs.right_times[n] = time
        pairs.keys[n] = side.records[record, KEY]
        pairs.key_at[n] = (1 if flags & NULL else 0) if rules.fits_word else key_at(side, record)
        pairs.sides[n] = which
        progress[FOUND] = n + 1
    side.header[SETTLED] = number + 1


@njit(cache=True, nogil=True, _nrt=False)
def settle(left, right, rules, time, pairs, progress):
    """Lets those come out that are over before this time and have met nothing; FULL if there is no more room."""
    while True:
        is_left, is_right = _is_over(left, 0, rules, time), _is_over(right, 1, rules, time)
        if not is_left and not is_right:
            return DONE
        if progress[FOUND] == len(pairs.left):
            return FULL
        if is_left and is_right:
            a, b = record_of(left, left.header[SETTLED]), record_of(right, right.header[SETTLED])
            left_end = left.records[a, TIME] + rules.reach[0]
            right_end = right.records[b, TIME] + rules.reach[1]
            is_left = left_end < right_end or (
                left_end == right_end and left.records[a, ORDINAL] < right.records[b, ORDINAL]
            )
        if is_left:
            _settle_next(left, 0, rules, pairs, progress)
        else:
            _settle_next(right, 1, rules, pairs, progress)


@njit(inline="always", _nrt=False)
def _drop(side, keep, time):
    """Drops the tuples that need not be kept at this time."""
    while side.header[HEAD] < side.header[TAIL]:
        record = record_of(side, side.header[HEAD])
        if side.records[record, ORDINAL] != DEAD and side.records[record, TIME] + keep >= time:
            break
        let_head_go(side)


@njit(inline="always", _nrt=False)
def let_time_pass(left, right, rules, time, pairs, progress):
    """Passes time: tuples that are over come out or go. Returns FULL if there is no room for what comes out."""
    if (_is_over(left, 0, rules, time) or _is_over(right, 1, rules, time)) and settle(
        left, right, rules, time, pairs, progress
    ) == FULL:
        return FULL
    _drop(left, rules.keep[0], time)
    _drop(right, rules.keep[1], time)
    return DONE


@njit(cache=True, nogil=True, _nrt=False)
def pass_time(left, right, rules, time, pairs, progress):
    """Passes time, as `let_time_pass`, between two pieces of the input."""
    return let_time_pass(left, right, rules, time, pairs, progress)


@njit(inline="always", _nrt=False)
def _match(side, place):
    """Notes of a tuple that it has met another, if it is still there."""
    number = side.header[FIRST] + place
    if side.header[HEAD] <= number < side.header[TAIL]:
        record = record_of(side, number)
        side.records[record, OLDER] |= MATCHED
        side.record_marks[record] = 1


@njit(cache=True, nogil=True, _nrt=False)
def settle_pairs(left, right, rules, pairs, true, matched_left, matched_right, chosen):
    """Notes the tuples of outer joins that true pairs match, chooses the results, and returns their number.

    The two arrays of marks are for tuples by their places: who comes out unmatched may have met something since.
    """
    n = 0
    for i in range(len(pairs.left)):
        a, b = pairs.left[i], pairs.right[i]
        if a < 0:
            is_result = matched_right[b] == 0
        elif b < 0:
            is_result = matched_left[a] == 0
        else:
            is_result = true[i] != 0
            if is_result:
                matched_left[a] = matched_right[b] = 1
                if rules.outer[0]:
                    _match(left, a)
                if rules.outer[1]:
                    _match(right, b)
        if is_result:
            chosen[n] = i
            n += 1
    return n
