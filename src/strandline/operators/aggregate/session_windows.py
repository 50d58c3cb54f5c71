"""The compiled loops over tuples of sessions. `plain.py` says in plain Python what they compute.

O(1) a tuple as `session_list` has it; nothing is allocated; what is changed is in the trace.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from strandline.operators.aggregate.accumulation import Ops, accumulate, merge_state, replay_into
from strandline.operators.aggregate.session_list import drop_session, put_session, sessions_around
from strandline.operators.aggregate.windows import WindowReach
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.kernels.kernel_cache import Kernel, njit
from strandline.operators.open_windows.arrays import DONE, FULL, Batch, Outcome, State
from strandline.operators.open_windows.hash_table import NO_START, key_of, look_ahead
from strandline.operators.open_windows.record import (
    END,
    FREE,
    NONE,
    OLDER,
    OPENED,
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
from strandline.operators.open_windows.trace import FRESH, Trace, touch_record
from strandline.operators.open_windows.window_records import emit, open_window


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
