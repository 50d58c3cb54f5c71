"""Texts inside of compiled functions: references to bytes of the state, of the batch, and of constants behind it."""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from strandline.operators.kernels.kernel_arrays import Bytes, Int64s, sealed
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.arrays import Batch, State, sealed_batch
from strandline.operators.open_windows.byte_arena import held_bytes
from strandline.operators.open_windows.record import LENGTH_BITS, LENGTH_MAX


class Texts(NamedTuple):
    """Where the bytes are that references refer to."""

    held: int
    """Positions from here on are in `batch`."""
    state: Bytes
    batch: Bytes
    constants: Int64s
    """References to texts that a function has in it."""


def with_constants(batch: Batch, constants: Sequence[bytes], held: int) -> tuple[Batch, Int64s]:
    """Returns the batch with the bytes of constants behind its own, and references to them."""
    if not constants:
        return batch, sealed(np.empty(0, np.int64))
    lengths = np.array([len(text) for text in constants], np.int64)
    starts = held + len(batch.bytes) + np.concatenate([[0], np.cumsum(lengths)[:-1]])
    more = np.frombuffer(b"".join(constants), np.uint8)
    longer = sealed_batch(batch._replace(bytes=np.concatenate([batch.bytes, more])))
    return longer, sealed(starts << LENGTH_BITS | lengths)


def texts_of(state: State, batch: Batch, constants: Int64s) -> Texts:
    """Returns what a function needs to read texts."""
    return Texts(held_bytes(state), sealed(state.bytes), batch.bytes, constants)


@njit(inline="always", _nrt=False)
def _byte(texts: Texts, position: int) -> int:
    return texts.state[position] if position < texts.held else texts.batch[position - texts.held]


@njit(_nrt=False)
def same_text(texts: Texts, a: int, b: int) -> bool:
    """Returns whether two references are to the same bytes."""
    if a == b:
        return True
    if a & LENGTH_MAX != b & LENGTH_MAX:
        return False
    a_at, b_at = a >> LENGTH_BITS, b >> LENGTH_BITS
    i, length = 0, a & LENGTH_MAX
    while i < length and _byte(texts, a_at + i) == _byte(texts, b_at + i):
        i += 1
    return i == length


@njit(_nrt=False)
def text_length(texts: Texts, a: int, has_characters: bool) -> int:
    """Returns how many characters, or bytes, a text has."""
    length, at = a & LENGTH_MAX, a >> LENGTH_BITS
    if not has_characters:
        return length
    more = 0
    for i in range(length):
        if _byte(texts, at + i) & 0xC0 == 0x80:  # a byte that continues a character
            more += 1
    return length - more
