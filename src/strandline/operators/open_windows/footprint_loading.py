"""Records made from what footprints and results say: those that were met, then those that are open, as a state."""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from collections import Counter

import numpy as np

from strandline.operators.kernels.kernel_arrays import Bytes, Int64s
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.arrays import Batch, State, Trace
from strandline.operators.open_windows.hash_table import key_of, link, start_in_hash, window_of
from strandline.operators.open_windows.record import (
    CLOSED,
    END,
    KEY,
    KEY_AT,
    LENGTH_BITS,
    LENGTH_MAX,
    NONE,
    OPENED,
    POS,
    QUEUE_TAIL,
    SEED,
    START,
    TICKET,
    N,
)
from strandline.operators.open_windows.timers import push_timer
from strandline.operators.open_windows.window_records import blank_record, copy_row
from strandline.operators.unsound_footprint import UnsoundFootprintError


@njit(cache=True, nogil=True, _nrt=False)
def load(word_key: bool, state: State, batch: Batch, footprints: Int64s, is_closed: bool, trace: Trace) -> None:
    """Takes in footprints (or, with `is_closed`, results), newest first; those of windows already met are skipped.

    Row i of `footprints` is a record, its key is row i of the batch. Records are hashed by key and start.
    """
    mask, seed = len(state.buckets) - 1, state.header[SEED]
    for i in range(len(footprints)):
        start = footprints[i, START]
        if window_of(state, batch, word_key, key_of(batch, i), start, seed, mask) < 0:
            slot = loaded_record(state, trace, batch, footprints, i, is_closed)
            link(state, trace, slot, start)


@njit(_nrt=False)
def loaded_record(state: State, trace: Trace, batch: Batch, footprints: Int64s, i: int, is_closed: bool) -> int:
    """Returns a new record with what row i of `footprints` says, linked nowhere."""
    slot = blank_record(state, trace, key_of(batch, i))
    copy_row(state.records, slot, footprints, i)
    state.records[slot, KEY], state.records[slot, KEY_AT] = batch.keys[i], batch.key_at[i]
    state.records[slot, TICKET] = NONE
    if is_closed:
        state.records[slot, OPENED] = CLOSED
    return slot


@njit(cache=True, nogil=True, _nrt=False)
def fill(is_timed: bool, state: State, batch: Batch, records: Int64s, trace: Trace) -> None:
    """Fills an empty state with windows, in the order of their footprints; their keys are the batch's."""
    for i in range(len(records)):
        slot = filled_record(state, trace, batch, records, i)
        link(state, trace, slot, start_in_hash(state, slot))
        if is_timed:
            push_timer(state, trace, records[i, END], slot)
    count_filled(state, len(records))


@njit(_nrt=False)
def filled_record(state: State, trace: Trace, batch: Batch, records: Int64s, i: int) -> int:
    """Returns a new record that is row i of `records`, with the i-th place in the queue, linked nowhere."""
    slot = blank_record(state, trace, key_of(batch, i))
    copy_row(state.records, slot, records, i)
    state.records[slot, TICKET] = i
    state.queue[i] = slot
    return slot


@njit(inline="always", _nrt=False)
def count_filled(state: State, windows: int) -> None:
    """Sets the header to so many open windows, all of them in the queue."""
    state.header[N] = windows
    state.header[QUEUE_TAIL] = windows


def require_few(records: Int64s, most: int, *, fits_word: bool, held: Bytes) -> None:
    """Raises UnsoundFootprintError if more than `most` of these windows have the same key; `held` has bytes of keys."""
    words = np.sort(records[:, KEY])
    again = words[most:][words[most:] == words[: len(words) - most]] if len(words) > most else words[:0]
    met: Counter[object] = Counter()
    for record in records[np.isin(records[:, KEY], again)] if len(again) else ():  # or hashes that are the same
        at, length = int(record[KEY_AT]) >> LENGTH_BITS, int(record[KEY_AT]) & LENGTH_MAX
        key = (int(record[KEY]), int(record[KEY_AT])) if fits_word else held[at : at + length].tobytes()
        met[key] += 1
        if met[key] > most:
            raise UnsoundFootprintError(f"a key has more than {most:,} open windows", int(record[POS]))
