"""Finding the records of a key: buckets of linked records.

What is hashed is the key alone, or the key and where the window begins; NO_START stands for the latter then. It is
mixed with a number that the state drew for itself, because keys come from outside: without the number, a sender could
choose keys that all go to one bucket, and a step would cost the square of its tuples. Nothing but the time that a
search takes follows from it: results, footprints and partitions are the same whatever the number is.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.arrays import Batch, Key, State, Trace, touch_bucket, touch_record
from strandline.operators.open_windows.byte_arena import compare_bytes
from strandline.operators.open_windows.record import BY_START, KEY, KEY_AT, LAYOUT, LINK, SEED, START

_FIRST, _SECOND = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_HALF = np.uint64(33)


def new_seed() -> int:
    """Returns a number that no sender of keys can know."""
    return secrets.randbits(64) - (1 << 63)


@njit(inline="always", _nrt=False)
def mixed(word: int, seed: int) -> np.uint64:
    """Returns a number in whose halves every bit of the word and of the seed takes part.

    The second product is what the seed is for: with one alone, keys that meet for one seed meet for all. A third step,
    as in MurmurHash3, would cost a nanosecond a tuple more.
    """
    h = (np.uint64(word) ^ np.uint64(seed)) * _FIRST
    h = (h ^ (h >> _HALF)) * _SECOND
    return h ^ (h >> _HALF)


@intrinsic
def fetch_soon(typing_context: Any, array: Any, row: Any, column: Any) -> Any:
    """Sends for an element of a two-dimensional array, to write to it; row and column may lie outside of the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        view = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
        strides = cgutils.unpack_tuple(builder, view.strides)
        word, number = ir.IntType(64), ir.IntType(32)
        at = builder.add(builder.mul(arguments[1], strides[0]), builder.mul(arguments[2], strides[1]))
        pointer = builder.inttoptr(builder.add(builder.ptrtoint(view.data, word), at), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
        builder.call(prefetch, [pointer, *(ir.Constant(number, n) for n in (1, 3, 1))])  # to write, keep, data
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


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
def first_of_key(state: State, batch: Batch, word_key: bool, key: Key, seed: int, mask: int) -> int:
    """Returns the first record of a key in its bucket, where windows are found by their key alone; or -1."""
    slot = state.buckets[bucket_of(key.word, NO_START, seed, mask)]
    while slot >= 0 and not same_key(state, batch, word_key, slot, key):
        slot = state.records[slot, LINK]
    return slot


@njit(inline="always", _nrt=False)
def window_of(state: State, batch: Batch, word_key: bool, key: Key, start: int, seed: int, mask: int) -> int:
    """Returns the record of the window of a key that begins at `start`; -1 if it is not open."""
    slot = state.buckets[bucket_of(key.word, start, seed, mask)]
    while slot >= 0 and not (state.records[slot, START] == start and same_key(state, batch, word_key, slot, key)):
        slot = state.records[slot, LINK]
    return slot


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
