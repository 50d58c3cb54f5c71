"""Finding the records of a key: buckets of linked records.

What is hashed is the key alone, or the key and where the window begins; NO_START stands for the latter then.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

import numpy as np

from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.kernels.key_mixing import mixed
from strandline.operators.open_windows.arrays import Batch, Key, State
from strandline.operators.open_windows.byte_arena import compare_bytes
from strandline.operators.open_windows.prefetch import fetch_soon
from strandline.operators.open_windows.record import BY_START, KEY, KEY_AT, LAYOUT, LINK, SEED, START
from strandline.operators.open_windows.trace import Trace, touch_bucket, touch_record

NO_START = 0
"""In the place of a start where windows are found by their key alone."""
_MIX_START = -4417276706812531889  # some odd number
_AHEAD = 8
"""How many tuples ahead a record is sent for: enough for memory to answer, few enough to stay in the cache."""


@njit(inline="always", _nrt=False)
def bucket_of(key: int, start: int, seed: int, mask: int) -> int:
    """Returns the bucket of a key's word and a start."""
    return np.int64(mixed(key ^ (start * _MIX_START), seed)) & mask  # type: ignore[return-value]


@njit(inline="always", _nrt=False)
def key_of(batch: Batch, row: int) -> Key:
    """Returns the key of a row."""
    return Key(batch.keys[row], batch.key_at[row])


@njit(inline="always", _nrt=False)
def same_key(state: State, batch: Batch, word_key: bool, slot: int, key: Key) -> bool:
    """Returns whether a record is of this key. A hash is only a hint: the bytes decide."""
    if state.records[slot, KEY] != key.word:
        return False
    held = state.records[slot, KEY_AT]
    if word_key or held == key.at:
        return held == key.at
    return compare_bytes(state, batch, held, key.at) == 0


@njit(inline="always", _nrt=False)
def look_ahead(state: State, batch: Batch, row: int, start: int, seed: int, mask: int) -> None:
    """Sends for the record that a tuple a little further on will want: records lie anywhere in memory."""
    if row + _AHEAD < len(batch.keys):
        slot = state.buckets[bucket_of(batch.keys[row + _AHEAD], start, seed, mask)]
        fetch_soon(state.records, np.int64(slot), np.int64(KEY))  # type: ignore[call-arg]


@njit(inline="always", _nrt=False)
def start_in_hash(state: State, slot: int) -> int:
    """Returns the start that a record is hashed with."""
    return state.records[slot, START] if state.header[LAYOUT] == BY_START else NO_START


@njit(_nrt=False)
def link(state: State, trace: Trace, slot: int, start: int) -> None:
    """Puts a record into its bucket; `start` is NO_START where windows are found by their key alone."""
    bucket = bucket_of(state.records[slot, KEY], start, state.header[SEED], len(state.buckets) - 1)
    touch_bucket(trace, bucket)
    state.records[slot, LINK] = state.buckets[bucket]
    state.buckets[bucket] = slot


@njit(_nrt=False)
def relink(state: State, trace: Trace, slot: int, start: int, following: int) -> None:
    """Replaces a record in its bucket by `following`: the bucket, or the record before it, leads there instead."""
    records = state.records
    bucket = bucket_of(records[slot, KEY], start, state.header[SEED], len(state.buckets) - 1)
    here = state.buckets[bucket]
    if here == slot:
        touch_bucket(trace, bucket)
        state.buckets[bucket] = following
        return
    while records[here, LINK] != slot:
        here = records[here, LINK]
    touch_record(trace, here)
    records[here, LINK] = following
