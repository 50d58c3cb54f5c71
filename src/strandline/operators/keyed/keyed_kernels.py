"""The compiled loops of keyed operators, around a user's functions. `plain_keyed.py` says in plain Python what they do.

O(1) a tuple, but for keys that expire; what is changed is in the trace. A loop returns when it needs something: room,
or the caller to take its output; it goes on where it was. If a function raises, so does the loop: `Sheet.at`
says at which tuple or key that was, and `Sheet.before` what the state was before the call.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.kernels.kernel_cache import Kernel, njit
from strandline.operators.keyed.key_kernels import close_key, find_due, open_key, order_due
from strandline.operators.keyed.record_layout import (
    CLOSE,
    CLOSINGS,
    DONE,
    DUE_END,
    DUE_NEXT,
    EXPIRING,
    FLUSH,
    FULL,
    REFUSED,
    RESULT_KEY,
    RESULT_KEY_AT,
    RESULT_TIME_WORD,
    RESULTS,
    RETURNED,
    ROW,
    SLOT,
    STATE_BEGIN,
    Check,
    Sheet,
)
from strandline.operators.keyed.texts import Texts
from strandline.operators.open_windows.arrays import Batch, Outcome, State, Trace, touch_record
from strandline.operators.open_windows.hash_table import NO_START, bucket_of, fetch_soon, key_of, look_ahead, same_key
from strandline.operators.open_windows.record import END, KEY, KEY_AT, LINK, ROWS, SEED, N, T
from strandline.operators.open_windows.record import TIMERS as TIMER_COUNT

if TYPE_CHECKING:
    from strandline.operators.keyed.compiled_program import Program

_AHEAD: Final = 8
"""How many tuples ahead a record is sent for."""
_LINE: Final = 8
"""Words that memory sends together."""


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
def _look_ahead(state: State, batch: Batch, row: int, seed: int, mask: int) -> None:
    """Sends for the record that a tuple a little further on will want, from its end of time to its state."""
    if row + _AHEAD < len(batch.keys):
        slot = state.buckets[bucket_of(batch.keys[row + _AHEAD], NO_START, seed, mask)]
        fetch_soon(state.records, np.int64(slot), np.int64(END))  # type: ignore[call-arg]
        fetch_soon(state.records, np.int64(slot), np.int64(END + _LINE))


def _accepted(program: Program) -> Kernel:
    """Returns what looks at a call's outcome: how many results, -1 if it must not be."""
    emit, state_checks, result_checks = program.function.emit, program.state.checks, program.results.checks

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


def _place(emit: int) -> Kernel:
    """Returns what gives a call its place for results: that of one, or an array of several."""
    if emit == 1:

        @njit(inline="always", _nrt=False)
        def one(sheet: Sheet) -> Any:
            return sheet.outs[sheet.at[RESULTS]]

        return one

    @njit(inline="always", _nrt=False)
    def several(sheet: Sheet) -> Any:
        first = sheet.at[RESULTS]
        return sheet.outs[first : first + emit]

    return several


def expiring(last: Kernel | None, program: Program) -> Kernel:
    """Returns the loop over keys that are due: `last` is called for each, if there is one, then it is closed."""
    emit = program.function.emit
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

    accepted, place = _accepted(program), _place(emit)

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
            count = accepted(state, sheet, slot, int(last(states[slot], place(sheet), texts)))
            if count < 0:
                return REFUSED
            _emit(state, sheet, slot, state.records[slot, END], count)
            close_key(state, trace, slot, sheet.closings, at)
            at[DUE_NEXT] += 1
        at[EXPIRING] = 0
        return DONE

    return expire_due


class Given(NamedTuple):
    """The input of a loop over tuples."""

    batch: Batch
    rows: Any
    """The tuples as records, in the columns that the function names."""
    texts: Texts
    reach: int
    """From the last time of a key to its end; 0 if keys do not expire."""


def taking_in(main: Kernel, expire_due: Kernel | None, program: Program) -> Kernel:
    """Returns the loop over tuples. With `expire_due`, keys that are over at the time of a tuple expire before it."""
    word_key, emit, is_clocked = program.word_key, program.function.emit, expire_due is not None
    expires = program.function.expire is not None
    accepted, place = _accepted(program), _place(emit)
    pending = expire_due if expire_due is not None else _nothing

    @njit(nogil=True, _nrt=False)
    def step(state: State, states: Any, given: Given, sheet: Sheet, out: Outcome, trace: Trace) -> int:
        batch, at = given.batch, sheet.at
        records = state.records
        mask, seed = len(state.buckets) - 1, state.header[SEED]
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
            _look_ahead(state, batch, row, seed, mask)
            key = key_of(batch, row)
            slot = state.buckets[bucket_of(key.word, NO_START, seed, mask)]
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
            returned = int(main(states[slot], given.rows[row], place(sheet), given.texts))
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


def replaying(main: Kernel, program: Program) -> Kernel:
    """Returns the loop over tuples seen before: they count where no footprint has them yet. Nothing is emitted."""
    word_key, emit = program.word_key, program.function.emit
    accepted, place = _accepted(program), _place(emit)

    @njit(nogil=True, _nrt=False)
    def replay(state: State, states: Any, given: Given, sheet: Sheet, trace: Trace) -> int:
        batch, at = given.batch, sheet.at
        records = state.records
        mask, seed = len(state.buckets) - 1, state.header[SEED]
        while at[ROW] < len(batch.keys):
            row = at[ROW]
            look_ahead(state, batch, row, NO_START, seed, mask)
            key = key_of(batch, row)
            slot = state.buckets[bucket_of(key.word, NO_START, seed, mask)]
            while slot >= 0 and not same_key(state, batch, word_key, slot, key):
                slot = records[slot, LINK]
            if slot >= 0 and batch.offsets[row] >= records[slot, T]:
                _keep(state, sheet, slot)
                _clear(sheet.results, 0, emit)
                returned = int(main(states[slot], given.rows[row], place(sheet), given.texts))
                if accepted(state, sheet, slot, returned) < 0:
                    return REFUSED
                records[slot, ROWS] += 1
                records[slot, END] = max(records[slot, END], batch.times[row] + given.reach)
            at[ROW] = row + 1
        return DONE

    return replay
