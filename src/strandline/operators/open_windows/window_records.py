"""Windows come and go: their records are taken from a list of free ones, and put back there."""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.arrays import FRESH, RESULTS, Key, Outcome, State, Trace, touch_record
from strandline.operators.open_windows.hash_table import bucket_of, relink, start_in_hash
from strandline.operators.open_windows.record import (
    BY_LIST,
    END,
    FREE,
    FREE_HEAD,
    KEY,
    KEY_AT,
    LAYOUT,
    LINK,
    NEWER,
    NONE,
    OPENED,
    POS,
    SEED,
    START,
    TICKET,
    UNHASHED,
    USED,
    N,
    T,
)
from strandline.operators.open_windows.record import TIMERS as TIMER_COUNT


@njit(inline="always", _nrt=False)
def copy_row(to: Int64s, to_row: int, source: Int64s, row: int) -> None:
    """Copies a row of one array to a row of another."""
    for word in range(source.shape[1]):
        to[to_row, word] = source[row, word]


@njit(_nrt=False)
def blank_record(state: State, trace: Trace, key: Key) -> int:
    """Returns a record for this key, linked nowhere, all else zero or NONE. There is room: the caller has looked."""
    header, records = state.header, state.records
    slot = header[FREE_HEAD]
    if slot >= 0:
        header[FREE_HEAD] = records[slot, LINK]
    else:
        slot = header[USED]
        header[USED] += 1
    touch_record(trace, slot)
    for word in range(records.shape[1]):
        records[slot, word] = 0
    records[slot, KEY] = key.word
    records[slot, KEY_AT] = key.at
    records[slot, T] = NONE
    records[slot, POS] = NONE
    records[slot, TICKET] = NONE
    return slot


@njit(_nrt=False)
def free_record(state: State, trace: Trace, slot: int) -> None:
    """Puts a record that is linked nowhere on the list of free ones."""
    touch_record(trace, slot)
    state.records[slot, OPENED] = FREE
    state.records[slot, TICKET] = NONE
    state.records[slot, LINK] = state.header[FREE_HEAD]
    state.header[FREE_HEAD] = slot


@njit(_nrt=False)
def open_window(state: State, trace: Trace, out: Outcome, key: Key, start: int, end: int, offset: int) -> int:
    """Returns a new window, listed in `out.fresh` and linked nowhere yet."""
    slot = blank_record(state, trace, key)
    records = state.records
    records[slot, START] = start
    records[slot, END] = end
    records[slot, OPENED] = offset
    state.header[N] += 1
    out.fresh[trace.counts[FRESH]] = slot
    trace.counts[FRESH] += 1
    return slot


@njit(inline="always", _nrt=False)
def emit(state: State, trace: Trace, slot: int, results: Int64s) -> None:
    """Copies a record to the results."""
    copy_row(results, trace.counts[RESULTS], state.records, slot)
    trace.counts[RESULTS] += 1


@njit(_nrt=False)
def close_window(state: State, trace: Trace, slot: int, start: int, results: Int64s) -> None:
    """Makes a window a result and frees its record; it was linked by `start`."""
    emit(state, trace, slot, results)
    drop_window(state, trace, slot, start)


@njit(_nrt=False)
def drop_window(state: State, trace: Trace, slot: int, start: int) -> None:
    """Frees the record of a window that was linked by `start`."""
    relink(state, trace, slot, start, state.records[slot, LINK])
    free_record(state, trace, slot)
    state.header[N] -= 1


@njit(cache=True, nogil=True, _nrt=False)
def rebuild(state: State, larger_state: State) -> None:
    """Copies records and timers into larger arrays, and links the records in their empty hash table."""
    used = state.header[USED]
    is_list, is_hashed = state.header[LAYOUT] == BY_LIST, state.header[LAYOUT] != UNHASHED
    for slot in range(used):
        copy_row(larger_state.records, slot, state.records, slot)
    mask = len(larger_state.buckets) - 1
    for slot in range(used if is_hashed else 0):
        if larger_state.records[slot, OPENED] != FREE and not (is_list and larger_state.records[slot, NEWER] >= 0):
            bucket = bucket_of(
                larger_state.records[slot, KEY], start_in_hash(larger_state, slot), larger_state.header[SEED], mask
            )
            larger_state.records[slot, LINK] = larger_state.buckets[bucket]
            larger_state.buckets[bucket] = slot
    for place in range(state.header[TIMER_COUNT]):
        copy_row(larger_state.timers, place, state.timers, place)
