"""The loop over new tuples of both sides, in the serialised order: the same however windows are kept."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"

from __future__ import annotations

from typing import Final

from strandline.operators.join.ring_kernels import bucket_of, next_record
from strandline.operators.join.tuple_record import (
    DONE,
    FITS_WORD,
    FULL,
    GROW,
    HEAD,
    KEEPS,
    KEY,
    MEETS,
    ROW,
    SETTLED,
    TAIL,
    TIME,
    TOUCHED,
    WHO,
)
from strandline.operators.kernels.kernel_cache import njit

_AHEAD: Final = 48
"""Tuples that are looked ahead."""


@njit(inline="always", _nrt=False)
def let_pass(side):
    """Counts a new tuple of a side that keeps none."""
    side.header[TAIL] += 1
    side.header[HEAD] = side.header[SETTLED] = side.header[TAIL]


@njit(inline="always", _nrt=False)
def new_record(side, new, row, rules):
    """Returns the record of a new tuple, with its time and its key."""
    record = next_record(side)
    side.records[record, TIME] = new.times[row]
    side.records[record, KEY] = new.keys[row]
    if rules[FITS_WORD] == 0:
        side.records[record, side.records.shape[1] - 1] = new.key_at[row]
    return record


@njit(inline="always", _nrt=False)
def take_next(meet, keep, mine, other, which, new, rules, pairs, progress):
    """Takes in the next tuple of a side: `meet` writes its pairs, then `keep` keeps it.

    Returns DONE; or FULL or GROW, and then nothing was done.
    """
    row = progress[ROW + which]
    if rules[KEEPS + which] and mine.header[TAIL] - mine.header[HEAD] == len(mine.records):
        progress[WHO] = which
        return GROW
    if (
        progress[MEETS]
        and new.nulls[row] == 0
        and rules[KEEPS + 1 - which]
        and meet(mine, other, which, new, row, rules, pairs, progress) == FULL
    ):
        return FULL
    keep(mine, which, new, row, rules)
    progress[ROW + which] = row + 1
    return DONE


@njit(inline="always", _nrt=False)
def touch_buckets(mine, other, new, first, end):
    """Reads the buckets of the next tuples of a side, all at once: memory answers such questions together.

    The number that is returned is of no use, but keeps the compiler from leaving it all out.
    """
    touched = 0
    for row in range(first, end):
        touched += mine.buckets[bucket_of(mine, new.keys[row])]
        touched += other.buckets[bucket_of(other, new.keys[row])]
    return touched


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
