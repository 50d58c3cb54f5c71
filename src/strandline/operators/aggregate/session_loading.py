"""Sessions from footprints. Where a session began when it was saved does not tell which session it was."""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from strandline.operators.aggregate.session_list import newest_session, put_session
from strandline.operators.kernels.kernel_arrays import Bytes, Int64s
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.arrays import Batch, State
from strandline.operators.open_windows.footprint_loading import count_filled, filled_record, loaded_record
from strandline.operators.open_windows.hash_table import NO_START, key_of, link
from strandline.operators.open_windows.record import END, NEWER, NONE, OLDER, POS, START, TIMER
from strandline.operators.open_windows.timers import push_timer
from strandline.operators.open_windows.trace import Trace


@njit(cache=True, nogil=True, _nrt=False)
def load_sessions(
    word_key: bool, state: State, batch: Batch, footprints: Int64s, is_closed: bool, trace: Trace
) -> None:
    """Takes in footprints (or results) of sessions, all of them: `newest_of_sessions` chooses.

    A session may have begun later when it was saved than it did in the end, or as two: its start does not tell which
    session a footprint belongs to. OLDER says instead which record stands for the key.
    """
    for i in range(len(footprints)):
        first = newest_session(state, batch, word_key, key_of(batch, i))
        slot = loaded_record(state, trace, batch, footprints, i, is_closed)
        state.records[slot, OLDER] = first
        if first < 0:
            state.records[slot, OLDER], state.records[slot, NEWER] = slot, NONE
            link(state, trace, slot, NO_START)


@njit(cache=True, nogil=True, _nrt=False)
def newest_of_sessions(records: Int64s, order: Int64s, newest: Bytes) -> None:
    """Sets `newest` to 1 for the newest record of each session. `order` is by key, then start: what overlaps is one.

    A session only grows: what was saved of it lies inside of what was saved of it later.
    """
    chosen, end = -1, 0
    for i in order:
        if chosen >= 0 and records[i, OLDER] == records[chosen, OLDER] and records[i, START] < end:
            end = max(end, records[i, END])
            if records[i, POS] > records[chosen, POS]:
                chosen = i
            continue
        if chosen >= 0:
            newest[chosen] = 1
        chosen, end = i, records[i, END]
    if chosen >= 0:
        newest[chosen] = 1


@njit(cache=True, nogil=True, _nrt=False)
def fill_sessions(word_key: bool, state: State, batch: Batch, records: Int64s, by_start: Int64s, trace: Trace) -> None:
    """Fills an empty state with sessions, in the order of their footprints; their keys are the batch's."""
    for i in range(len(records)):
        slot = filled_record(state, trace, batch, records, i)
        state.records[slot, TIMER] = records[i, END]
        push_timer(state, trace, records[i, END], slot)
    for i in by_start:  # every one is the newest so far; records of an empty state have the numbers of the rows
        put_session(state, trace, i, -1, newest_session(state, batch, word_key, key_of(batch, i)))
    count_filled(state, len(records))
