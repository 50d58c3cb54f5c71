"""The compiled loops of keyed operators, around a user's functions. `plain_keyed.py` says in plain Python what they do.

O(1) a tuple, but for keys that expire; what is changed is in the trace. A loop returns when it needs something: room,
or somebody to take what it has written; it goes on where it was. If a function raises, so does the loop: `Sheet.at`
says at which tuple or key that was, and `Sheet.before` what the state was before the call.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from strandline.operators.kernel_arrays import Int32s, Int64s
from strandline.operators.kernel_cache import Kernel, njit
from strandline.operators.keyed.record_layout import (
    RESULT_KEY,
    RESULT_KEY_AT,
    RESULT_TIME_WORD,
    STATE_BEGIN,
    Check,
)
from strandline.operators.keyed.returned import CLOSE
from strandline.operators.keyed.texts import Texts
from strandline.operators.open_windows.arrays import Batch, Key, Outcome, State
from strandline.operators.open_windows.hash_table import NO_START, bucket_of, key_of, link, look_ahead, relink, same_key
from strandline.operators.open_windows.prefetch import fetch_soon
from strandline.operators.open_windows.record import (
    END,
    FREE,
    KEY,
    KEY_AT,
    LINK,
    NONE,
    OPENED,
    ROWS,
    TIMER,
    N,
    T,
)
from strandline.operators.open_windows.record import TIMERS as TIMER_COUNT
from strandline.operators.open_windows.timers import pop_timer, push_timer
from strandline.operators.open_windows.trace import Trace, touch_record
from strandline.operators.open_windows.window_records import free_record, open_window

DONE, FULL, FLUSH, REFUSED = range(4)
"""Why a loop returns: all is done; no room for another key; no room for results; a call returned what it must not."""

ROW, SLOT, RESULTS, CLOSINGS, DUE_NEXT, DUE_END, EXPIRING, RETURNED = range(8)
"""Places in `Sheet.at`: the tuple and the record at hand, how many results and closings there are, which of the keys
that are due are not through, whether the call at hand is for one of them, and what it returned."""
PLACES: Final = 8
CLOSING_WORDS: Final = 4
"""Of a key that closed: word and place of the key, the tuple that opened it, the end of its time."""
_AHEAD: Final = 8
"""How many tuples ahead a record is sent for."""
_LINE: Final = 8
"""Words that memory sends together."""
_TAKEN: Final = -(1 << 63)
"""TIMER of a record that is among those that are due."""


class Sheet(NamedTuple):
    """What a loop writes."""

    results: Int64s
    outs: Any
    """The same memory as records."""
    closings: Int64s
    """Keys that closed and have a footprint."""
    before: Int64s
    """The words of the state at hand, as they were before the call."""
    due: Int32s
    """Records of keys that expire, in order."""
    at: Int64s


@dataclass(frozen=True)
class Frozen:
    """What loops are compiled for, the functions apart."""

    word_key: bool
    emit: int
    expires: bool
    state_checks: tuple[Check, ...]
    result_checks: tuple[Check, ...]


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


@njit(inline="always", _nrt=False)
def _fits(checks: tuple[Check, ...], words: Int64s, row: int) -> bool:
    fits = True
    for j in range(len(checks)):
        word, least, greatest = checks[j]
        fits = fits and least <= words[row, word] <= greatest
    return fits


@njit(inline="always", _nrt=False)
def _clear(words: Int64s, first: int, count: int) -> None:
    for i in range(first, first + count):
        for word in range(words.shape[1]):
            words[i, word] = 0


@njit(inline="always", _nrt=False)
def _keep(state: State, sheet: Sheet, slot: int) -> None:
    """Keeps what the state is before a call."""
    sheet.at[SLOT] = slot
    for i in range(len(sheet.before)):
        sheet.before[i] = state.records[slot, STATE_BEGIN + i]


@njit(inline="always", _nrt=False)
def _emit(state: State, sheet: Sheet, slot: int, time: int, count: int) -> None:
    first = sheet.at[RESULTS]
    for i in range(first, first + count):
        sheet.results[i, RESULT_KEY] = state.records[slot, KEY]
        sheet.results[i, RESULT_KEY_AT] = state.records[slot, KEY_AT]
        sheet.results[i, RESULT_TIME_WORD] = time
    sheet.at[RESULTS] += count


@njit(inline="always", _nrt=False)
def _has_room(sheet: Sheet, emit: int) -> bool:
    has_results = sheet.at[RESULTS] + emit <= len(sheet.results)
    return has_results and sheet.at[CLOSINGS] + 2 <= len(sheet.closings)


@njit(inline="always", _nrt=False)
def _look_ahead(state: State, batch: Batch, row: int, mask: int) -> None:
    """Sends for the record that a tuple a little further on will want, from its end of time to its state."""
    if row + _AHEAD < len(batch.keys):
        slot = state.buckets[bucket_of(batch.keys[row + _AHEAD], NO_START, mask)]
        fetch_soon(state.records, np.int64(slot), np.int64(END))  # type: ignore[call-arg]
        fetch_soon(state.records, np.int64(slot), np.int64(END + _LINE))  # type: ignore[call-arg]


def _accepted(frozen: Frozen) -> Kernel:
    """What looks at a call's outcome: how many results, -1 if it must not be."""
    emit, state_checks, result_checks = frozen.emit, frozen.state_checks, frozen.result_checks

    @njit(inline="always", _nrt=False)
    def accepted(state: State, sheet: Sheet, slot: int, returned: int) -> int:
        sheet.at[RETURNED] = returned
        count = returned & (CLOSE - 1)
        if returned < 0 or returned >= 2 * CLOSE or count > emit or not _fits(state_checks, state.records, slot):
            return -1
        for i in range(count):
            if not _fits(result_checks, sheet.results, sheet.at[RESULTS] + i):
                return -1
        return count

    return accepted


def expiring(last: Kernel | None, frozen: Frozen) -> Kernel:
    """Returns the loop over keys that are due: `last` is called for each, if there is one, then it is closed."""
    emit = frozen.emit
    if last is None:

        @njit(cache=True, nogil=True, _nrt=False)
        def close_due(state: State, states: Any, sheet: Sheet, texts: Texts, trace: Trace) -> int:
            at = sheet.at
            while at[DUE_NEXT] < at[DUE_END]:
                if not _has_room(sheet, 1):
                    return FLUSH
                close_key(state, trace, sheet.due[at[DUE_NEXT]], sheet.closings, at)
                at[DUE_NEXT] += 1
            return DONE

        return close_due

    accepted = _accepted(frozen)
    call: Kernel
    if emit == 1:

        @njit(_nrt=False)
        def call_one(states: Any, slot: int, sheet: Sheet, texts: Texts) -> int:
            return int(last(states[slot], sheet.outs[sheet.at[RESULTS]], texts))

        call = call_one
    else:

        @njit(_nrt=False)
        def call_several(states: Any, slot: int, sheet: Sheet, texts: Texts) -> int:
            first = sheet.at[RESULTS]
            return int(last(states[slot], sheet.outs[first : first + emit], texts))

        call = call_several

    @njit(nogil=True, _nrt=False)
    def expire_due(state: State, states: Any, sheet: Sheet, texts: Texts, trace: Trace) -> int:
        at = sheet.at
        at[EXPIRING] = 1
        while at[DUE_NEXT] < at[DUE_END]:
            if not _has_room(sheet, emit):
                return FLUSH
            slot = sheet.due[at[DUE_NEXT]]
            _keep(state, sheet, slot)
            _clear(sheet.results, at[RESULTS], emit)
            count = accepted(state, sheet, slot, call(states, slot, sheet, texts))
            if count < 0:
                return REFUSED
            _emit(state, sheet, slot, state.records[slot, END], count)
            close_key(state, trace, slot, sheet.closings, at)
            at[DUE_NEXT] += 1
        at[EXPIRING] = 0
        return DONE

    return expire_due


def _calling(main: Kernel, emit: int) -> Kernel:
    """What calls the function for a tuple."""
    if emit == 1:

        @njit(_nrt=False)
        def call_one(states: Any, slot: int, rows: Any, row: int, sheet: Sheet, texts: Texts) -> int:
            return int(main(states[slot], rows[row], sheet.outs[sheet.at[RESULTS]], texts))

        return call_one

    @njit(_nrt=False)
    def call_several(states: Any, slot: int, rows: Any, row: int, sheet: Sheet, texts: Texts) -> int:
        first = sheet.at[RESULTS]
        return int(main(states[slot], rows[row], sheet.outs[first : first + emit], texts))

    return call_several


class Given(NamedTuple):
    """What a loop over tuples reads."""

    batch: Batch
    rows: Any
    """The tuples as records, in the columns that the function names."""
    texts: Texts
    reach: int
    """From the last time of a key to its end; 0 if keys do not expire."""


def taking_in(main: Kernel, expire_due: Kernel | None, frozen: Frozen) -> Kernel:
    """Returns the loop over tuples. With `expire_due`, keys that are over at the time of a tuple expire before it."""
    word_key, emit, expires, is_clocked = frozen.word_key, frozen.emit, frozen.expires, expire_due is not None
    accepted, call = _accepted(frozen), _calling(main, emit)
    pending = expire_due if expire_due is not None else _nothing

    @njit(nogil=True, _nrt=False)
    def step(state: State, states: Any, given: Given, sheet: Sheet, out: Outcome, trace: Trace) -> int:
        batch, at = given.batch, sheet.at
        records = state.records
        mask = len(state.buckets) - 1
        while at[ROW] < len(batch.keys):
            row = at[ROW]
            time = batch.times[row]
            if is_clocked:
                is_pending = at[DUE_NEXT] < at[DUE_END]
                if not is_pending and state.header[TIMER_COUNT] > 0 and state.timers[0, 0] <= time:
                    find_due(state, trace, time, sheet.due, at)
                    if at[DUE_END] > 1:
                        order_due(state, sheet.due, at[DUE_END])
                    is_pending = True
                if is_pending:
                    reason = pending(state, states, sheet, given.texts, trace)
                    if reason != DONE:
                        return reason
            if not _has_room(sheet, emit):
                return FLUSH
            if state.header[N] >= len(records) or (expires and state.header[TIMER_COUNT] + 1 >= len(state.timers)):
                return FULL
            _look_ahead(state, batch, row, mask)
            key = key_of(batch, row)
            slot = state.buckets[bucket_of(key.word, NO_START, mask)]
            while slot >= 0 and not same_key(state, batch, word_key, slot, key):
                slot = records[slot, LINK]
            if expires and not is_clocked and slot >= 0 and records[slot, END] <= time:
                close_key(state, trace, slot, sheet.closings, at)
                slot = -1
            if slot < 0:
                slot = open_key(expires, state, trace, out, key, time + given.reach, batch.offsets[row])
            touch_record(trace, slot)
            _keep(state, sheet, slot)
            _clear(sheet.results, at[RESULTS], emit)
            returned = call(states, slot, given.rows, row, sheet, given.texts)
            count = accepted(state, sheet, slot, returned)
            if count < 0:
                return REFUSED
            records[slot, ROWS] += 1
            records[slot, END] = max(records[slot, END], time + given.reach)
            _emit(state, sheet, slot, time, count)
            if returned >= CLOSE:
                close_key(state, trace, slot, sheet.closings, at)
            at[ROW] = row + 1
        return DONE

    return step


@njit(_nrt=False)
def _nothing(state: State, states: Any, sheet: Sheet, texts: Texts, trace: Trace) -> int:
    return DONE


def replaying(main: Kernel, frozen: Frozen) -> Kernel:
    """Returns the loop over tuples seen before: they count where no footprint has them yet. Nothing is emitted."""
    word_key, emit = frozen.word_key, frozen.emit
    accepted, call = _accepted(frozen), _calling(main, emit)

    @njit(nogil=True, _nrt=False)
    def replay(state: State, states: Any, given: Given, sheet: Sheet, trace: Trace) -> int:
        batch, at = given.batch, sheet.at
        records = state.records
        mask = len(state.buckets) - 1
        while at[ROW] < len(batch.keys):
            row = at[ROW]
            look_ahead(state, batch, row, NO_START, mask)
            key = key_of(batch, row)
            slot = state.buckets[bucket_of(key.word, NO_START, mask)]
            while slot >= 0 and not same_key(state, batch, word_key, slot, key):
                slot = records[slot, LINK]
            if slot >= 0 and batch.offsets[row] >= records[slot, T]:
                _keep(state, sheet, slot)
                _clear(sheet.results, 0, emit)
                if accepted(state, sheet, slot, call(states, slot, given.rows, row, sheet, given.texts)) < 0:
                    return REFUSED
                records[slot, ROWS] += 1
                records[slot, END] = max(records[slot, END], batch.times[row] + given.reach)
            at[ROW] = row + 1
        return DONE

    return replay
