"""Kernels that write pairs: who met whom, by places, times and key."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"

from __future__ import annotations

from strandline.operators.join.tuple_record import (
    FIRST,
    FITS_WORD,
    TAIL,
    TIME,
)
from strandline.operators.kernels.kernel_cache import njit


@njit(inline="always", _nrt=False)
def write_pair(mine, other, which, record, number, pairs, n):
    """Writes the places and times of a kept tuple of the other side and of the new one, whose time is known there."""
    place, met = mine.header[TAIL] - mine.header[FIRST], number - other.header[FIRST]
    if which == 1:
        pairs.left[n], pairs.right[n] = met, place
        pairs.left_times[n] = other.records[record, TIME]
    else:
        pairs.left[n], pairs.right[n] = place, met
        pairs.right_times[n] = other.records[record, TIME]


@njit(inline="always", _nrt=False)
def name_pairs(which, new, row, rules, pairs, first, end):
    """Writes time and key of the new tuple into its pairs."""
    at = 0 if rules[FITS_WORD] else new.key_at[row]
    for n in range(first, end):
        if which == 1:
            pairs.right_times[n] = new.times[row]
        else:
            pairs.left_times[n] = new.times[row]
        pairs.keys[n], pairs.key_at[n], pairs.sides[n] = new.keys[row], at, which


@njit(inline="always", _nrt=False)
def turn(some, first, end):
    """Reverses a stretch of an array."""
    i, j = first, end - 1
    while i < j:
        some[i], some[j] = some[j], some[i]
        i, j = i + 1, j - 1
