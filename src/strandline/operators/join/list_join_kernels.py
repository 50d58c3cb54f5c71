"""The loop over tuples for windows of n tuples a key: the new tuple meets the other side, then it is kept."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"

from __future__ import annotations

from strandline.operators.join.list_kernels import append, let_oldest_go, oldest_of_key
from strandline.operators.join.pair_kernels import name_pairs, write_pair
from strandline.operators.join.ring_kernels import bucket_of, number_in, skim
from strandline.operators.join.taking_in import let_pass, new_record, take_in_order, take_next, touch_buckets
from strandline.operators.join.tuple_record import (
    CHAIN,
    COUNT,
    DEAD,
    DONE,
    FITS_WORD,
    FOUND,
    FULL,
    KEEPS,
    LIVE,
    NEWER,
    ORDINAL,
    SIZE,
)
from strandline.operators.kernels.kernel_cache import njit


@njit(inline="always", _nrt=False)
def _meet(mine, other, which, new, row, rules, pairs, progress):
    """Writes the pairs of a new tuple with those of a list, oldest first; without room writes none and returns FULL."""
    fits_word = rules[FITS_WORD] != 0
    record = oldest_of_key(other, new.keys[row], fits_word, new.key_at[row], mine.bytes)
    if record < 0:
        return DONE
    first = n = progress[FOUND]
    if n + other.links[record, COUNT] > len(pairs.left):
        return FULL
    while record >= 0:
        write_pair(mine, other, which, record, number_in(other, record), pairs, n)
        n += 1
        record = other.links[record, NEWER]
    name_pairs(which, new, row, rules, pairs, first, n)
    progress[FOUND] = n
    return DONE


@njit(inline="always", _nrt=False)
def _keep(mine, which, new, row, rules):
    """Keeps a new tuple, and drops the one of the same key whose place it takes."""
    if rules[KEEPS + which] == 0:
        let_pass(mine)
        return
    record = new_record(mine, new, row, rules)
    if new.nulls[row]:
        mine.records[record, ORDINAL] = DEAD
        skim(mine)
        return
    mine.records[record, ORDINAL] = new.ordinals[row]
    mine.header[LIVE] += 1
    many, oldest = append(mine, record, rules[FITS_WORD] != 0)
    if many > rules[SIZE + which]:
        let_oldest_go(mine, oldest)
        skim(mine)


@njit(inline="always", _nrt=False)
def _take(left, right, mine, other, which, new, rules, pairs, progress):
    """Takes in the next tuple of a side; DONE, or what stands against it, and then nothing of it was done."""
    return take_next(_meet, _keep, mine, other, which, new, rules, pairs, progress)


@njit(inline="always", _nrt=False)
def _look_ahead(mine, other, new, first, end):
    """Touches what the next tuples of a side will ask for, as with trails."""
    touched = touch_buckets(mine, other, new, first, end)
    for row in range(first, end):
        found = other.buckets[bucket_of(other, new.keys[row])]
        if found >= 0:
            touched += other.links[found, CHAIN]
        found = mine.buckets[bucket_of(mine, new.keys[row])]
        if found >= 0:
            touched += mine.links[found, CHAIN]
    return touched


@njit(cache=True, nogil=True, _nrt=False)
def take_in_lists(left, right, new_left, new_right, rules, pairs, progress):
    """Takes in new tuples of both sides in the serialised order; DONE, or FULL or GROW if it is to be called again."""
    return take_in_order(_take, _look_ahead, left, right, new_left, new_right, rules, pairs, progress)
