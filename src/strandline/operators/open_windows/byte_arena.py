"""Keys and values that do not fit a word: bytes of the state, and of the batch whose positions continue them.

A reference to bytes is one word, position and length. While a batch is worked on, records may refer to its bytes; what
is still referred to at the end is copied into the state.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

import numpy as np

from strandline.operators.kernels.kernel_arrays import Bytes, Int32s, Int64s
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.arrays import Batch, State
from strandline.operators.open_windows.record import BYTES_END, FREE, LENGTH_BITS, LENGTH_MAX, OPENED


@njit(inline="always", _nrt=False)
def copy_bytes(to: Bytes, to_at: int, source: Bytes, at: int, length: int) -> None:
    for i in range(length):
        to[to_at + i] = source[at + i]


@njit(_nrt=False)
def byte_at(state: State, batch: Batch, position: int) -> int:
    held = state.header[BYTES_END]
    return state.bytes[position] if position < held else batch.bytes[position - held]


@njit(_nrt=False)
def compare_bytes(state: State, batch: Batch, a: int, b: int) -> int:
    """Returns less than, equal to or greater than zero, as bytes and then lengths of two references compare."""
    a_at, b_at = a >> LENGTH_BITS, b >> LENGTH_BITS
    a_length, b_length = a & LENGTH_MAX, b & LENGTH_MAX
    for i in range(min(a_length, b_length)):
        a_byte, b_byte = byte_at(state, batch, a_at + i), byte_at(state, batch, b_at + i)
        if a_byte != b_byte:  # no subtraction: bytes are unsigned in here
            return -1 if a_byte < b_byte else 1
    return a_length - b_length


@njit(cache=True, nogil=True, _nrt=False)
def same_bytes(some: Bytes, at: int, others: Bytes, other_at: int) -> bool:
    """Returns whether two references, each into bytes of its own, lead to the same bytes."""
    length = at & LENGTH_MAX
    if length != other_at & LENGTH_MAX:
        return False
    a, b = at >> LENGTH_BITS, other_at >> LENGTH_BITS
    for i in range(length):  # noqa: SIM110 - a kernel
        if some[a + i] != others[b + i]:
            return False
    return True


@njit(cache=True, nogil=True, _nrt=False)
def bytes_wanted(words: Int64s, state: State, slots: Int32s) -> int:
    """Returns how many bytes of the batch these `words` of open windows refer to."""
    records, held = state.records, state.header[BYTES_END]
    wanted = 0
    for i in range(len(slots)):
        if records[slots[i], OPENED] != FREE:
            for word in words:
                at = records[slots[i], word]
                if (at >> LENGTH_BITS) >= held:
                    wanted += at & LENGTH_MAX
    return wanted


@njit(cache=True, nogil=True, _nrt=False)
def keep_bytes(words: Int64s, state: State, batch: Batch, slots: Int32s) -> int:
    """Copies what these `words` of open windows refer to from the batch to the state; returns where its bytes end then.

    References are changed, the header is not. There is room: the caller has asked `bytes_wanted`.
    """
    records, held = state.records, state.header[BYTES_END]
    end = held
    for i in range(len(slots)):
        slot = slots[i]
        if records[slot, OPENED] == FREE:
            continue
        for word in words:
            at = records[slot, word]
            position, length = at >> LENGTH_BITS, at & LENGTH_MAX
            if position >= held:
                copy_bytes(state.bytes, end, batch.bytes, position - held, length)
                records[slot, word] = end << LENGTH_BITS | length
                end += length
    return end


@njit(cache=True, nogil=True, _nrt=False)
def gather(refs: Int64s, state: State, batch: Batch, starts: Int64s, out: Bytes) -> None:
    """Copies the bytes of reference i to `out`, from `starts[i]` on."""
    held = state.header[BYTES_END]
    for i in range(len(refs)):
        position, length = refs[i] >> LENGTH_BITS, refs[i] & LENGTH_MAX
        if position < held:
            copy_bytes(out, starts[i], state.bytes, position, length)
        else:
            copy_bytes(out, starts[i], batch.bytes, position - held, length)


def gathered(refs: Int64s, state: State, batch: Batch) -> tuple[Int64s, Bytes]:
    """Returns where the bytes of each reference begin (and the last end), and the bytes."""
    starts = np.zeros(len(refs) + 1, np.int64)
    np.cumsum(refs & LENGTH_MAX, out=starts[1:])
    out = np.empty(int(starts[-1]), np.uint8)
    gather(np.ascontiguousarray(refs), state, batch, starts, out)
    return starts, out


def held_bytes(state: State) -> int:
    """Returns how many bytes the state has: the first position of a new batch."""
    return int(state.header[BYTES_END])
