"""Tuples taken into the state of a window, and the states of two sessions joined: the arithmetic of all aggregates.

`plain_aggregates.py` says in plain Python what it computes. A sum that does not fit 64 bits any more, or has more
digits than a decimal can have, stays overflowed.

For aggregates that are not computed here, sketches, a loop notes which tuple came to which window. A window that is met
gets a number, which lies in its record until the loop is through (0: it has none), and what its record refers to is
noted with it: the record may be gone by then. That two sessions became one is noted, too.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

import math

from strandline.operators.aggregate.aggregates import Op
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.kernels.wide import MAX_HIGH, MAX_LOW, MIN_HIGH, MIN_LOW, below
from strandline.operators.open_windows.arrays import HITS, NUMBERS, OVERFLOWS, Batch, State, Trace
from strandline.operators.open_windows.byte_arena import compare_bytes
from strandline.operators.open_windows.record import OVERFLOWED, ROWS, T

Ops = tuple[tuple[int, int, int], ...]
"""Per aggregate: what to do, which input it reads, where its state begins."""

_COUNT, _SUM_INT, _SUM_FLOAT, _MOMENTS = int(Op.COUNT), int(Op.SUM_INT), int(Op.SUM_FLOAT), int(Op.MOMENTS)
_MIN_INT, _MAX_INT, _MIN_FLOAT, _MAX_FLOAT = int(Op.MIN_INT), int(Op.MAX_INT), int(Op.MIN_FLOAT), int(Op.MAX_FLOAT)
_MIN_BYTES, _MAX_BYTES, _FIRST, _LAST = int(Op.MIN_BYTES), int(Op.MAX_BYTES), int(Op.FIRST), int(Op.LAST)
_NOTHING, _SUM_WIDE = int(Op.NOTHING), int(Op.SUM_WIDE)
_FIRST_WHERE, _LAST_WHERE, _HITS = int(Op.FIRST_WHERE), int(Op.LAST_WHERE), int(Op.HITS)


@njit(_nrt=False)
def larger(a: float, b: float) -> bool:
    """Returns whether a > b, NaN being the largest of all."""
    if math.isnan(a):
        return not math.isnan(b)
    return a > b


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


@njit(inline="always", _nrt=False)
def put_extreme(op: int, state: State, batch: Batch, slot: int, word: int, new: int, new_float: float) -> None:
    """Keeps a value, given as a word and as a double, if it is smaller, or larger, than all before it."""
    old, old_float = state.records[slot, word], state.floats[slot, word]
    if state.records[slot, word + 1] == 0:
        replaces = True
    elif op == _MIN_INT:
        replaces = new < old
    elif op == _MAX_INT:
        replaces = new > old
    elif op == _MIN_FLOAT:
        replaces = larger(old_float, new_float)
    elif op == _MAX_FLOAT:
        replaces = larger(new_float, old_float)
    elif op == _MIN_BYTES:
        replaces = compare_bytes(state, batch, new, old) < 0
    else:
        replaces = compare_bytes(state, batch, new, old) > 0
    if replaces:
        state.records[slot, word] = new
        state.records[slot, word + 1] = 1


@njit(inline="always", _nrt=False)
def number_of(state: State, trace: Trace, slot: int, word: int, sketches: int) -> int:
    """Returns the number of a window; gives it the next one, noting what its sketches are, if it has none."""
    records = state.records
    if records[slot, word] == 0:
        place = trace.counts[NUMBERS]
        trace.counts[NUMBERS] += 1
        records[slot, word] = place + 1
        trace.numbered[place, 0] = slot
        for i in range(sketches):
            trace.numbered[place, 1 + i] = records[slot, word + 1 + i]
    return records[slot, word]


@njit(inline="always", _nrt=False)
def note_hit(state: State, trace: Trace, slot: int, word: int, sketches: int, row: int) -> None:
    """Notes that a tuple came to a window."""
    place = trace.counts[HITS]
    trace.hits[place, 0] = number_of(state, trace, slot, word, sketches)
    trace.hits[place, 1] = row
    trace.counts[HITS] += 1


@njit(inline="always", _nrt=False)
def note_join(state: State, trace: Trace, into: int, other: int, word: int, sketches: int) -> None:
    """Notes that a session was swallowed by another: its number comes as a negative row."""
    place = trace.counts[HITS]
    trace.hits[place, 0] = number_of(state, trace, into, word, sketches)
    trace.hits[place, 1] = -number_of(state, trace, other, word, sketches) - 1
    trace.counts[HITS] += 1


@njit(inline="always", _nrt=False)
def accumulate(ops: Ops, state: State, batch: Batch, slot: int, row: int, trace: Trace) -> None:
    """Takes one tuple into the state of one window."""
    records, floats = state.records, state.floats
    for j in range(len(ops)):
        op, column, word = ops[j]
        if op == _NOTHING:
            continue
        if op == _HITS:
            note_hit(state, trace, slot, word, column, row)
            continue
        is_valid = batch.valid[column, row] == 1
        if op == _FIRST:
            if records[slot, word + 1] == 0:
                records[slot, word] = batch.values[column, row]
                records[slot, word + 1] = 1 if is_valid else 2
        elif op == _LAST:
            records[slot, word] = batch.values[column, row]
            records[slot, word + 1] = 1 if is_valid else 2
        elif op in (_FIRST_WHERE, _LAST_WHERE):
            if batch.valid[column, row] != 0 and (op == _LAST_WHERE or records[slot, word + 1] == 0):
                records[slot, word] = batch.values[column, row]
                records[slot, word + 1] = batch.valid[column, row]
                records[slot, word + 2] = batch.offsets[row]
        elif is_valid:
            if op == _COUNT:
                records[slot, word] += 1
            elif op == _SUM_FLOAT:
                floats[slot, word] += batch.floats[column, row]
                records[slot, word + 1] += 1
            elif op == _SUM_INT:
                add_to_sum(state, trace, slot, word, batch.values[column, row], 1)
            elif op == _MOMENTS:
                records[slot, word] += 1
                delta = batch.floats[column, row] - floats[slot, word + 1]
                step = delta / records[slot, word]
                floats[slot, word + 1] += step
                floats[slot, word + 2] += delta * (delta - step)
            elif op == _SUM_WIDE:
                low, high = batch.values[column, row], batch.values[column + 1, row]
                add_to_wide_sum(state, trace, slot, word, low, high, 1)
            else:
                put_extreme(op, state, batch, slot, word, batch.values[column, row], batch.floats[column, row])


@njit(inline="always", _nrt=False)
def replay_into(ops: Ops, state: State, batch: Batch, slot: int, row: int, trace: Trace) -> None:
    """Takes one tuple into the state of one window, unless its footprint had it."""
    if batch.offsets[row] >= state.records[slot, T]:
        accumulate(ops, state, batch, slot, row, trace)
        state.records[slot, ROWS] += 1


@njit(_nrt=False)
def merge_state(ops: Ops, state: State, batch: Batch, into: int, other: int, trace: Trace) -> None:
    """Takes the state of the session `other`, which was opened later, into that of `into`."""
    records, floats = state.records, state.floats
    for j in range(len(ops)):
        op, column, word = ops[j]
        if op == _HITS:
            note_join(state, trace, into, other, word, column)
        elif op == _COUNT:
            records[into, word] += records[other, word]
        elif op == _SUM_FLOAT:
            floats[into, word] += floats[other, word]
            records[into, word + 1] += records[other, word + 1]
        elif op == _SUM_INT:
            add_to_sum(state, trace, into, word, records[other, word], records[other, word + 1])
        elif op == _MOMENTS:
            n1, n2 = records[into, word], records[other, word]
            if n2 > 0:
                n = n1 + n2
                delta = floats[other, word + 1] - floats[into, word + 1]
                step = delta / n
                floats[into, word + 1] += step * n2
                floats[into, word + 2] += floats[other, word + 2] + delta * step * n1 * n2
                records[into, word] = n
        elif op == _SUM_WIDE:
            low, high, n = records[other, word], records[other, word + 1], records[other, word + 2]
            add_to_wide_sum(state, trace, into, word, low, high, n)
        elif op in (_NOTHING, _FIRST):
            pass  # the earlier session has the first tuple
        elif op == _LAST:
            pass  # the tuple that joins them is the last
        elif op in (_FIRST_WHERE, _LAST_WHERE):
            is_earlier = records[other, word + 2] < records[into, word + 2]
            is_nearer = is_earlier if op == _FIRST_WHERE else not is_earlier
            if records[other, word + 1] != 0 and (records[into, word + 1] == 0 or is_nearer):
                for i in range(word, word + 3):
                    records[into, i] = records[other, i]
        elif records[other, word + 1] == 1:
            put_extreme(op, state, batch, into, word, records[other, word], floats[other, word])
