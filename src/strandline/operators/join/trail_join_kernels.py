"""The loop over tuples for bands and windows of the partition: a new tuple meets the other side, then it is kept."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"

from __future__ import annotations

from strandline.operators.join.pair_kernels import name_pairs, turn, write_pair
from strandline.operators.join.ring_kernels import bucket_of, has_key, record_of, skim
from strandline.operators.join.settling_kernels import pass_time_before
from strandline.operators.join.taking_in import let_pass, new_record, take_in_order, take_next, touch_buckets
from strandline.operators.join.trail_kernels import lay, let_head_go
from strandline.operators.join.tuple_record import (
    BAND,
    DEAD,
    DONE,
    FITS_WORD,
    FLAG_BITS,
    FORM,
    FOUND,
    FULL,
    HEAD,
    HIGH,
    KEEPS,
    KEEPS_NULL,
    KEY,
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
def _meet(mine, other, which, new, row, rules, pairs, progress):
    """Writes the pairs of a new tuple with those of a trail, oldest first; without room none, and returns FULL."""
    fits_word, is_band = rules[FITS_WORD] != 0, rules[FORM] == BAND
    word, at, time = new.keys[row], new.key_at[row], new.times[row]
    # In a band the other time lies between these, whichever side is the new one.
    earliest = time - rules[HIGH] if which == 1 else time + rules[LOW]
    latest = time - rules[LOW] if which == 1 else time + rules[HIGH]
    head, room = other.header[HEAD], len(pairs.left)
    first = n = progress[FOUND]
    number = other.buckets[bucket_of(other, word)]
    while number >= head:
        record = record_of(other, number)
        if has_key(other, record, word, fits_word, at, mine.bytes):
            met = other.records[record, TIME]
            if not is_band or earliest <= met <= latest:
                if n == room:
                    return FULL
                write_pair(mine, other, which, record, number, pairs, n)
                n += 1
        number = other.records[record, OLDER] >> FLAG_BITS
    if n > first:
        if n > first + 1:
            turn(pairs.left, first, n)
            turn(pairs.right, first, n)
            turn(pairs.right_times if which == 0 else pairs.left_times, first, n)
        name_pairs(which, new, row, rules, pairs, first, n)
        progress[FOUND] = n
    return DONE


@njit(inline="always", _nrt=False)
def _keep(mine, which, new, row, rules):
    """Keeps a new tuple, and drops the one whose place it takes."""
    if rules[KEEPS + which] == 0:
        let_pass(mine)
        return
    header = mine.header
    number = header[TAIL]
    record = new_record(mine, new, row, rules)
    if new.nulls[row] == 0:
        lay(mine, record, number)
    elif rules[KEEPS_NULL + which]:
        mine.records[record, OLDER] = NULL
    else:
        mine.records[record, ORDINAL] = DEAD
        skim(mine)
        return
    mine.records[record, ORDINAL] = new.ordinals[row]
    header[LIVE] += 1
    if rules[FORM] == PER_PARTITION and header[LIVE] > rules[SIZE + which]:
        let_head_go(mine)


@njit(inline="always", _nrt=False)
def _take(left, right, mine, other, which, new, rules, pairs, progress):
    """Takes in the next tuple of a side; DONE, or what stands against it, and then nothing of it was done."""
    if pass_time_before(left, right, which, new, rules, pairs, progress) == FULL:
        return FULL
    return take_next(_meet, _keep, mine, other, which, new, rules, pairs, progress)


@njit(inline="always", _nrt=False)
def _look_ahead(mine, other, new, first, end):
    """Touches what the next tuples of a side will ask for; see `touch_buckets`."""
    touched = touch_buckets(mine, other, new, first, end)
    for row in range(first, end):
        found = other.buckets[bucket_of(other, new.keys[row])]
        if found >= other.header[HEAD]:
            touched += other.records[record_of(other, found), KEY]
    return touched


@njit(cache=True, nogil=True, _nrt=False)
def take_in_trails(left, right, new_left, new_right, rules, pairs, progress):
    """Takes in new tuples of both sides in the serialised order; DONE, or FULL or GROW if it is to be called again."""
    return take_in_order(_take, _look_ahead, left, right, new_left, new_right, rules, pairs, progress)
