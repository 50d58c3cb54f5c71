"""Sessions: the list of those of a key, the compiled loops over tuples, and the way back from footprints.

`plain_aggregate.py` says in plain Python what the loops compute. The sessions of a key are a list in the order of time,
of which the newest is in the hash table. A step along it is O(1) as long as tuples of a key come nearly in order, or in
runs that do. Nothing is allocated; what is changed is in the trace.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from strandline.operators.aggregate.accumulation import Ops, accumulate, merge_state, replay_into
from strandline.operators.aggregate.windows import WindowReach
from strandline.operators.kernels.kernel_arrays import Bytes, Int64s
from strandline.operators.kernels.kernel_cache import Kernel, njit
from strandline.operators.open_windows.arrays import DONE, FRESH, FULL, Batch, Key, Outcome, State, Trace, touch_record
from strandline.operators.open_windows.footprint_loading import count_filled, filled_record, loaded_record
from strandline.operators.open_windows.hash_table import (
    NO_START,
    first_of_key,
    key_of,
    link,
    look_ahead,
    relink,
    same_key,
)
from strandline.operators.open_windows.record import (
    END,
    FREE,
    HINT,
    LINK,
    NEWER,
    NONE,
    OLDER,
    OPENED,
    POS,
    ROWS,
    SEED,
    START,
    TICKET,
    TIMER,
    N,
    T,
)
from strandline.operators.open_windows.record import TIMERS as TIMER_COUNT
from strandline.operators.open_windows.timers import pop_timer, push_timer
from strandline.operators.open_windows.window_records import emit, free_record, open_window

_NEAR = 8
"""So many sessions of a key are looked at from the newest on, before the hint is asked."""


@njit(_nrt=False)
def newest_session(state: State, batch: Batch, word_key: bool, key: Key) -> int:
    """Returns the newest session of a key, or -1."""
    return first_of_key(state, batch, word_key, key, state.header[SEED], len(state.buckets) - 1)


@njit(_nrt=False)
def sessions_around(state: State, trace: Trace, batch: Batch, word_key: bool, key: Key, limit: int) -> tuple[int, int]:
    """Returns the newest session of a key that begins before `limit`, and the one after it; -1 where there is none.

    Tuples come nearly in order, so most are found at the newest session. What comes far behind it (an older day after a
    newer one) comes in order as well: it is found near to where the one before it was.
    """
    records = state.records
    newest = newest_session(state, batch, word_key, key)
    newer, slot = -1, newest
    for _ in range(_NEAR):
        if slot < 0 or records[slot, START] < limit:
            return slot, newer
        newer, slot = slot, records[slot, OLDER]
    hint = records[newest, HINT]
    is_older = slot >= 0 and records[hint, OPENED] >= 0 and records[hint, START] < records[slot, START]
    if is_older and same_key(state, batch, word_key, hint, key):
        slot, newer = hint, records[hint, NEWER]
    while slot >= 0 and records[slot, START] >= limit:
        newer, slot = slot, records[slot, OLDER]
    while newer >= 0 and records[newer, START] < limit:
        newer, slot = records[newer, NEWER], newer
    touch_record(trace, newest)
    records[newest, HINT] = slot if slot >= 0 else newer
    return slot, newer


@njit(_nrt=False)
def put_session(state: State, trace: Trace, slot: int, newer: int, older: int) -> None:
    """Puts a session between two others of its key; -1 where there is none."""
    records = state.records
    records[slot, NEWER], records[slot, OLDER] = newer, older
    if newer >= 0:
        touch_record(trace, newer)
        records[newer, OLDER] = slot
    elif older >= 0:
        records[slot, LINK], records[slot, HINT] = records[older, LINK], records[older, HINT]
        relink(state, trace, older, NO_START, slot)
    else:
        link(state, trace, slot, NO_START)
    if older >= 0:
        touch_record(trace, older)
        records[older, NEWER] = slot


@njit(_nrt=False)
def drop_session(state: State, trace: Trace, slot: int) -> None:
    """Takes a session out of the list of its key and frees its record."""
    records = state.records
    newer, older = records[slot, NEWER], records[slot, OLDER]
    if newer >= 0:
        touch_record(trace, newer)
        records[newer, OLDER] = older
    elif older >= 0:
        touch_record(trace, older)
        records[older, LINK], records[older, HINT] = records[slot, LINK], records[slot, HINT]
        relink(state, trace, slot, NO_START, older)
    else:
        relink(state, trace, slot, NO_START, records[slot, LINK])
    if older >= 0:
        touch_record(trace, older)
        records[older, NEWER] = newer
    free_record(state, trace, slot)
    state.header[N] -= 1


def session_windows(ops: Ops, word_key: bool) -> Kernel:
    """Returns the loop for sessions: a tuple opens one, continues one, or joins two."""

    @njit(cache=True, nogil=True, _nrt=False)
    def step(reach: WindowReach, state: State, batch: Batch, row: int, out: Outcome, trace: Trace) -> tuple[int, int]:
        records = state.records
        mask, seed = len(state.buckets) - 1, state.header[SEED]
        rows = len(batch.keys)
        gap = reach.size
        while row < rows:
            if state.header[N] >= len(records) or state.header[TIMER_COUNT] + 1 >= len(state.timers):
                return row, FULL
            look_ahead(state, batch, row, NO_START, seed, mask)
            key, offset, time = key_of(batch, row), batch.offsets[row], batch.times[row]
            mine, newer = sessions_around(state, trace, batch, word_key, key, time + gap)
            if mine < 0 or records[mine, END] <= time:
                older = mine
                mine = open_window(state, trace, out, key, time, time + gap, offset)
                put_session(state, trace, mine, newer, older)
                push_timer(state, trace, time + gap, mine)
                records[mine, TIMER] = time + gap
            else:
                other = records[mine, OLDER]
                if other >= 0 and records[other, END] > time:
                    if records[other, OPENED] < records[mine, OPENED]:
                        mine, other = other, mine
                    merge_state(ops, state, batch, mine, other, trace)
                    records[mine, ROWS] += records[other, ROWS]
                    records[mine, START] = min(records[mine, START], records[other, START])
                    records[mine, END] = max(records[mine, END], records[other, END])
                    drop_session(state, trace, other)
                    # What was saved of the two cannot be replayed into one: the joined session is saved anew.
                    if records[mine, T] != NONE:
                        out.fresh[trace.counts[FRESH]] = mine
                        trace.counts[FRESH] += 1
                    records[mine, T] = NONE
                    records[mine, TICKET] = NONE
            touch_record(trace, mine)
            accumulate(ops, state, batch, mine, row, trace)
            records[mine, ROWS] += 1
            records[mine, START] = min(records[mine, START], time)
            records[mine, END] = max(records[mine, END], time + gap)
            row += 1
        return row, DONE

    return step


def replaying_sessions(ops: Ops, word_key: bool) -> Kernel:
    """Returns the loop over tuples seen before: they count where no footprint has them yet. Nothing is emitted.

    Two sessions never become one here: a joined session was saved anew.
    """

    @njit(cache=True, nogil=True, _nrt=False)
    def replay(reach: WindowReach, state: State, batch: Batch, trace: Trace) -> None:
        gap = reach.size
        records = state.records
        mask, seed = len(state.buckets) - 1, state.header[SEED]
        for row in range(len(batch.keys)):
            look_ahead(state, batch, row, NO_START, seed, mask)
            time = batch.times[row]
            slot, _ = sessions_around(state, trace, batch, word_key, key_of(batch, row), time + gap)
            if slot >= 0 and time < records[slot, END] and batch.offsets[row] >= records[slot, T]:
                replay_into(ops, state, batch, slot, row, trace)
                records[slot, START] = min(records[slot, START], time)
                records[slot, END] = max(records[slot, END], time + gap)

    return replay


@njit(cache=True, nogil=True, _nrt=False)
def close_due_sessions(state: State, boundary: int, results: Int64s, trace: Trace) -> None:
    """Closes the sessions that end at the boundary or before it, in no particular order."""
    records = state.records
    while state.header[TIMER_COUNT] > 0 and state.timers[0, 0] <= boundary:
        end, slot = state.timers[0, 0], state.timers[0, 1]
        pop_timer(state, trace)
        if records[slot, OPENED] == FREE or records[slot, TIMER] != end:
            continue  # the session it was set for has gone
        if records[slot, END] > boundary:  # it went on meanwhile
            touch_record(trace, slot)
            records[slot, TIMER] = records[slot, END]
            push_timer(state, trace, records[slot, END], slot)
        else:
            emit(state, trace, slot, results)
            drop_session(state, trace, slot)


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
