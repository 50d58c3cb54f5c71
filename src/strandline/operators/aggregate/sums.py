"""Sums in records: a number of one word or two, and how many values went into it.

One that does not fit 64 bits any more, or has more digits than a decimal can have, stays overflowed.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.kernels.wide import MAX_HIGH, MAX_LOW, MIN_HIGH, MIN_LOW, below
from strandline.operators.open_windows.arrays import State
from strandline.operators.open_windows.record import OVERFLOWED
from strandline.operators.open_windows.trace import OVERFLOWS, Trace


@njit(inline="always", _nrt=False)
def add_to_sum(state: State, trace: Trace, slot: int, word: int, value: int, count: int) -> None:
    """Adds `count` values that come to `value` to the sum in two words of a record: the number, how many."""
    records = state.records
    held, n = records[slot, word], records[slot, word + 1]
    total = held + value
    if n == OVERFLOWED or count == OVERFLOWED or ((held ^ total) & (value ^ total)) < 0:
        trace.counts[OVERFLOWS] += 1
        records[slot, word], records[slot, word + 1] = 0, OVERFLOWED
    else:
        records[slot, word], records[slot, word + 1] = total, n + count


@njit(inline="always", _nrt=False)
def add_to_wide_sum(state: State, trace: Trace, slot: int, word: int, low: int, high: int, count: int) -> None:
    """Adds `count` values that come to a number to the sum in three words of a record: low, high, how many."""
    records = state.records
    held, n = records[slot, word + 1], records[slot, word + 2]
    total_low = records[slot, word] + low
    total_high = held + high + (1 if below(total_low, low) else 0)
    wraps = ((held ^ total_high) & (high ^ total_high)) < 0
    is_large = total_high > MAX_HIGH or (total_high == MAX_HIGH and below(MAX_LOW, total_low))
    is_small = total_high < MIN_HIGH or (total_high == MIN_HIGH and below(total_low, MIN_LOW))
    if n == OVERFLOWED or count == OVERFLOWED or wraps or is_large or is_small:
        trace.counts[OVERFLOWS] += 1
        records[slot, word], records[slot, word + 1], records[slot, word + 2] = 0, 0, OVERFLOWED
    else:
        records[slot, word], records[slot, word + 1], records[slot, word + 2] = total_low, total_high, n + count
