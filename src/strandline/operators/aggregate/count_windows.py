"""The compiled loops over tuples of count windows. `plain_aggregate.py` says in plain Python what they compute.

O(1) a tuple and window; nothing is allocated; what is changed is in the trace.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from strandline.operators.aggregate.accumulation import Ops, accumulate, replay_into
from strandline.operators.aggregate.windows import WindowReach
from strandline.operators.kernels.kernel_cache import Kernel, njit
from strandline.operators.open_windows.arrays import DONE, FULL, Batch, Outcome, State, Trace, touch_record
from strandline.operators.open_windows.hash_table import (
    NO_START,
    bucket_of,
    first_of_key,
    key_of,
    link,
    look_ahead,
    same_key,
)
from strandline.operators.open_windows.record import END, LINK, NONE, ROWS, SEED, N
from strandline.operators.open_windows.window_records import close_window, open_window


def tumbling_count_windows(ops: Ops, word_key: bool) -> Kernel:
    """Returns the loop for count windows one after the other, one a key at a time: the hot loop of most jobs."""

    @njit(cache=True, nogil=True, _nrt=False)
    def step(reach: WindowReach, state: State, batch: Batch, first: int, out: Outcome, trace: Trace) -> tuple[int, int]:
        records = state.records
        mask, seed = len(state.buckets) - 1, state.header[SEED]
        room = len(records) - state.header[N]  # closing windows make more
        for row in range(first, len(batch.keys)):
            look_ahead(state, batch, row, NO_START, seed, mask)
            key = key_of(batch, row)
            slot = first_of_key(state, batch, word_key, key, seed, mask)
            if slot < 0:
                if room == 0:
                    return row, FULL
                room -= 1
                slot = open_window(state, trace, out, key, batch.offsets[row], NONE, batch.offsets[row])
                link(state, trace, slot, NO_START)
            touch_record(trace, slot)
            accumulate(ops, state, batch, slot, row, trace)
            tuples = records[slot, ROWS] + 1
            records[slot, ROWS] = tuples
            if tuples == reach.size:
                records[slot, END] = batch.offsets[row]
                close_window(state, trace, slot, NO_START, out.results)
                room += 1
        return len(batch.keys), DONE

    return step


def sliding_count_windows(ops: Ops, word_key: bool) -> Kernel:
    """Returns the loop for count windows that overlap: a tuple counts for all of its key, and may open one more."""

    @njit(cache=True, nogil=True, _nrt=False)
    def step(reach: WindowReach, state: State, batch: Batch, first: int, out: Outcome, trace: Trace) -> tuple[int, int]:
        records = state.records
        mask, seed = len(state.buckets) - 1, state.header[SEED]
        for row in range(first, len(batch.keys)):
            if state.header[N] >= len(records):
                return row, FULL
            look_ahead(state, batch, row, NO_START, seed, mask)
            key, offset = key_of(batch, row), batch.offsets[row]
            fewest = reach.advance
            full = -1
            slot = state.buckets[bucket_of(key.word, NO_START, seed, mask)]
            while slot >= 0:
                if same_key(state, batch, word_key, slot, key):
                    touch_record(trace, slot)
                    accumulate(ops, state, batch, slot, row, trace)
                    fewest = min(fewest, records[slot, ROWS])
                    records[slot, ROWS] += 1
                    if records[slot, ROWS] == reach.size:
                        full = slot
                slot = records[slot, LINK]
            if fewest == reach.advance:  # the newest window of the key has that many tuples, or there is none
                slot = open_window(state, trace, out, key, offset, NONE, offset)
                link(state, trace, slot, NO_START)
                accumulate(ops, state, batch, slot, row, trace)
                records[slot, ROWS] = 1
            if full >= 0:
                records[full, END] = offset
                close_window(state, trace, full, NO_START, out.results)
        return len(batch.keys), DONE

    return step


def replaying_count_windows(ops: Ops, word_key: bool) -> Kernel:
    """Returns the loop over tuples seen before: they count where no footprint has them yet. Nothing is emitted."""

    @njit(cache=True, nogil=True, _nrt=False)
    def replay(reach: WindowReach, state: State, batch: Batch, trace: Trace) -> None:
        mask, seed = len(state.buckets) - 1, state.header[SEED]
        for row in range(len(batch.keys)):
            look_ahead(state, batch, row, NO_START, seed, mask)
            key = key_of(batch, row)
            slot = state.buckets[bucket_of(key.word, NO_START, seed, mask)]
            while slot >= 0:
                if same_key(state, batch, word_key, slot, key):
                    replay_into(ops, state, batch, slot, row, trace)
                slot = state.records[slot, LINK]

    return replay
