"""The compiled loops over tuples of time windows. `plain_aggregate.py` says in plain Python what they compute.

O(1) a tuple and window; nothing is allocated; what is changed is in the trace.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from strandline.operators.aggregate.accumulation import Ops, accumulate, replay_into
from strandline.operators.aggregate.windows import WindowReach
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.kernels.kernel_cache import Kernel, njit
from strandline.operators.open_windows.arrays import DONE, FULL, Batch, Outcome, State, Trace, touch_record
from strandline.operators.open_windows.hash_table import key_of, link, look_ahead, window_of
from strandline.operators.open_windows.record import END, FREE, OPENED, ROWS, SEED, START, N
from strandline.operators.open_windows.record import TIMERS as TIMER_COUNT
from strandline.operators.open_windows.timers import pop_timer, push_timer
from strandline.operators.open_windows.window_records import close_window, open_window


@njit(inline="always", _nrt=False)
def first_start(time: int, latest: int, size: int, advance: int, rest: int) -> int:
    """Returns where the first window with this time begins. The last begins at `latest`; `rest` is size % advance."""
    return latest - (size - rest) + (advance if time - latest >= rest else 0)


def time_windows(ops: Ops, word_key: bool) -> Kernel:
    """Returns the loop for time windows: a tuple opens those of its windows that are not open yet."""

    @njit(cache=True, nogil=True, _nrt=False)
    def step(reach: WindowReach, state: State, batch: Batch, row: int, out: Outcome, trace: Trace) -> tuple[int, int]:
        size, advance = reach
        records = state.records
        mask, seed = len(state.buckets) - 1, state.header[SEED]
        rows = len(batch.keys)
        room = min(len(records) - -(-size // advance), len(state.timers) - -(-size // advance))
        rest = size % advance
        latest = batch.times[row] // advance * advance if row < rows else 0
        while row < rows:
            if state.header[N] > room or state.header[TIMER_COUNT] > room:
                return row, FULL
            key, offset, time = key_of(batch, row), batch.offsets[row], batch.times[row]
            if not latest <= time < latest + advance:  # tuples come nearly in order: few need a division
                latest = time // advance * advance
            look_ahead(state, batch, row, latest, seed, mask)
            start = first_start(time, latest, size, advance, rest)
            while start <= latest:
                slot = window_of(state, batch, word_key, key, start, seed, mask)
                if slot < 0:
                    slot = open_window(state, trace, out, key, start, start + size, offset)
                    link(state, trace, slot, start)
                    push_timer(state, trace, start + size, slot)
                touch_record(trace, slot)
                records[slot, ROWS] += 1
                accumulate(ops, state, batch, slot, row, trace)
                start += advance
            row += 1
        return row, DONE

    return step


def replaying_time_windows(ops: Ops, word_key: bool) -> Kernel:
    """Returns the loop over tuples seen before: they count where no footprint has them yet. Nothing is emitted."""

    @njit(cache=True, nogil=True, _nrt=False)
    def replay(reach: WindowReach, state: State, batch: Batch, trace: Trace) -> None:
        size, advance = reach
        mask, seed = len(state.buckets) - 1, state.header[SEED]
        rest = size % advance
        for row in range(len(batch.keys)):
            key, time = key_of(batch, row), batch.times[row]
            latest = time // advance * advance
            look_ahead(state, batch, row, latest, seed, mask)
            start = first_start(time, latest, size, advance, rest)
            while start <= latest:
                slot = window_of(state, batch, word_key, key, start, seed, mask)
                if slot >= 0:
                    replay_into(ops, state, batch, slot, row, trace)
                start += advance

    return replay


@njit(cache=True, nogil=True, _nrt=False)
def close_due(state: State, boundary: int, results: Int64s, trace: Trace) -> None:
    """Closes the windows that end at the boundary or before it, in no particular order."""
    records = state.records
    while state.header[TIMER_COUNT] > 0 and state.timers[0, 0] <= boundary:
        end, slot = state.timers[0, 0], state.timers[0, 1]
        pop_timer(state, trace)
        if records[slot, OPENED] != FREE and records[slot, END] == end:  # else the window it was set for has gone
            close_window(state, trace, slot, records[slot, START], results)
