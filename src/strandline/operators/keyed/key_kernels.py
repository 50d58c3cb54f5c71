"""Keys come, go and fall due: what the loops do to records, whatever the function is. Compiled once and kept."""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import Final

from strandline.operators.kernels.kernel_arrays import Int32s, Int64s
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.keyed.record_layout import CLOSINGS, DUE_END, DUE_NEXT, STATE_BEGIN
from strandline.operators.open_windows.arrays import Key, Outcome, State, Trace, touch_record
from strandline.operators.open_windows.hash_table import NO_START, link, relink
from strandline.operators.open_windows.record import END, FREE, KEY, KEY_AT, LINK, NONE, OPENED, ROWS, TIMER, N, T
from strandline.operators.open_windows.record import TIMERS as TIMER_COUNT
from strandline.operators.open_windows.timers import pop_timer, push_timer
from strandline.operators.open_windows.window_records import free_record, open_window

_TAKEN: Final = -(1 << 63)
"""TIMER of a record that is among those that are due."""


@njit(cache=True, nogil=True, _nrt=False)
def undo(state: State, trace: Trace, before: Int64s, slot: int) -> None:
    """Sets a state back to what it was before the call at hand; one that was opened for it is gone."""
    records = state.records
    if records[slot, ROWS] == 0:
        relink(state, trace, slot, NO_START, records[slot, LINK])
        free_record(state, trace, slot)
        state.header[N] -= 1
        return
    for i in range(len(before)):
        records[slot, STATE_BEGIN + i] = before[i]


@njit(cache=True, nogil=True, _nrt=False)
def open_key(expires: bool, state: State, trace: Trace, out: Outcome, key: Key, end: int, offset: int) -> int:
    """Returns the record of a new key, which the tuple of this offset has opened. There is room for it."""
    slot = open_window(state, trace, out, key, offset, end, offset)
    link(state, trace, slot, NO_START)
    if expires:
        state.records[slot, TIMER] = end
        push_timer(state, trace, end, slot)
    return slot


@njit(cache=True, nogil=True, _nrt=False)
def close_key(state: State, trace: Trace, slot: int, sheet_closings: Int64s, at: Int64s) -> None:
    """Forgets the state of a key; notes it if it has a footprint. There is room: the caller has looked."""
    records = state.records
    if records[slot, T] != NONE:
        row = at[CLOSINGS]
        sheet_closings[row, 0], sheet_closings[row, 1] = records[slot, KEY], records[slot, KEY_AT]
        sheet_closings[row, 2], sheet_closings[row, 3] = records[slot, OPENED], records[slot, END]
        at[CLOSINGS] += 1
    relink(state, trace, slot, NO_START, records[slot, LINK])
    free_record(state, trace, slot)
    state.header[N] -= 1


@njit(cache=True, nogil=True, _nrt=False)
def find_due(state: State, trace: Trace, limit: int, due: Int32s, at: Int64s) -> None:
    """Fills `due` with the keys whose time ends at this one or before, by end, then by opening."""
    records, count = state.records, 0
    while state.header[TIMER_COUNT] > 0 and state.timers[0, 0] <= limit:
        end, slot = state.timers[0, 0], state.timers[0, 1]
        pop_timer(state, trace)
        if records[slot, OPENED] == FREE or records[slot, TIMER] != end:
            continue  # the key that it was set for has gone
        touch_record(trace, slot)
        if records[slot, END] > end:  # more tuples have come meanwhile
            records[slot, TIMER] = records[slot, END]
            push_timer(state, trace, records[slot, END], slot)
        else:
            records[slot, TIMER] = _TAKEN
            due[count] = slot
            count += 1
    at[DUE_NEXT], at[DUE_END] = 0, count


@njit(inline="always", _nrt=False)
def _is_later(state: State, a: int, b: int) -> bool:
    """Returns whether a record ends later than another, or was opened later."""
    records = state.records
    if records[a, END] != records[b, END]:
        return records[a, END] > records[b, END]
    return records[a, OPENED] > records[b, OPENED]


@njit(cache=True, nogil=True, _nrt=False)
def order_due(state: State, due: Int32s, count: int) -> None:
    """Brings the first of `due` into the order of ends, then of openings: a heap is made and taken down."""
    for round_ in range(count // 2 + count):
        if round_ < count // 2:
            top, length = count // 2 - 1 - round_, count
        else:
            length = count - 1 - (round_ - count // 2)
            due[0], due[length] = due[length], due[0]
            top = 0
        while 2 * top + 1 < length:
            child = 2 * top + 1
            if child + 1 < length and _is_later(state, due[child + 1], due[child]):
                child += 1
            if not _is_later(state, due[child], due[top]):
                break
            due[top], due[child] = due[child], due[top]
            top = child
