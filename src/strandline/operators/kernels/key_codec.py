"""Keys of any type as what kernels compare: one word, or a hash and bytes.

A single key column of at most 64 bits is its own word. Everything else (strings, several columns, large decimals) is
written out as bytes, column after column; the word is then a hash, and bytes decide whether two keys are the same.
"""

# mypy: disable-error-code="call-overload,no-untyped-call,no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.arrow_types import decimal_of
from strandline.errors import InputError
from strandline.operators.kernels.arrow_words import BYTES, WORDS, Column, bytes_of, from_bytes, from_words, words_of
from strandline.operators.kernels.kernel_arrays import Bytes, Int64s, sealed
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.kernels.wide import WORD_DIGITS_MAX
from strandline.operators.open_windows.record import LENGTH_BITS, LENGTH_MAX

BYTES_A_PART = 21
"""The most bytes that a column adds to a key, its own bytes not counted."""
_FNV_OFFSET, _FNV_PRIME = -3750763034362895579, 1099511628211


class KeyCodec:
    """Encodes and decodes the key columns of one operator."""

    def __init__(self, types: Sequence[str]) -> None:
        self._types = types
        self.fits_word = len(types) == 1 and _is_word(types[0])

    def encode(self, columns: Sequence[Column], held: int) -> tuple[Int64s, Int64s, Bytes]:
        """Returns word and place of each key, and the bytes; places count from `held`, the bytes of the state."""
        if self.fits_word:
            words, valid = words_of(columns[0], self._types[0])
            return words, sealed((1 - valid).astype(np.int64)), sealed(np.empty(0, np.uint8))
        parts = [_KeyPart(c, kind) for c, kind in zip(columns, self._types, strict=True)]
        lengths = np.zeros(len(columns[0]), np.int64)
        for part in parts:
            lengths += part.lengths
        if len(lengths) and lengths.max() > LENGTH_MAX:
            raise InputError(f"a key has {lengths.max()} bytes", todo=f"keys have at most {LENGTH_MAX} bytes")
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=starts[1:])
        data = np.empty(int(starts[-1]), np.uint8)
        cursor = starts[:-1].copy()
        for part in parts:
            part.write(data, cursor)
        words = np.empty(len(lengths), np.int64)
        _hash(data, starts, words)
        return sealed(words), sealed((starts[:-1] + held) << LENGTH_BITS | lengths), sealed(data)

    def too_long(self, columns: Sequence[Column]) -> npt.NDArray[np.bool_] | None:
        """Returns which keys have more bytes than a key may have; None, at almost no cost, if none has."""
        most = LENGTH_MAX - BYTES_A_PART * len(columns)
        texts = [c for c, kind in zip(columns, self._types, strict=True) if kind in BYTES]
        if not texts or sum(c.nbytes for c in texts) <= most:
            return None
        lengths = np.zeros(len(columns[0]), np.int64)
        for column in texts:
            lengths += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        found: npt.NDArray[np.bool_] = lengths > most
        return found if found.any() else None

    def decode(self, words: Int64s, at: Int64s, starts: Int64s, data: Bytes) -> list[pa.Array]:
        """Returns the key columns again; `data` has the bytes of key i at starts[i]."""
        if self.fits_word:
            return [from_words(words, (1 - at).astype(np.uint8), self._types[0])]
        cursor = starts[:-1].copy()
        return [_decode_part(data, cursor, kind) for kind in self._types]


def _is_word(kind: str) -> bool:
    decimal = decimal_of(kind)
    return kind in WORDS or (decimal is not None and decimal[0] <= WORD_DIGITS_MAX)


class _KeyPart:
    """One column of a key: a byte that says null or not, then eight bytes, or a length and that many."""

    def __init__(self, column: Column, kind: str) -> None:
        self._starts: Int64s | None = None
        self._data: Bytes | None = None
        if _is_word(kind):
            self._words, self._valid = words_of(column, kind)
            self.lengths = 1 + 8 * self._valid.astype(np.int64)
        else:
            self._starts, self._data, self._valid = bytes_of(column, kind)
            self.lengths = 1 + (4 + np.diff(self._starts)) * self._valid.astype(np.int64)

    def write(self, data: Bytes, cursor: Int64s) -> None:
        if self._starts is None or self._data is None:
            _write_words(self._words, self._valid, data, cursor)
        else:
            _write_bytes(self._starts, self._data, self._valid, data, cursor)


def _decode_part(data: Bytes, cursor: Int64s, kind: str) -> pa.Array:
    valid = data[cursor]
    if _is_word(kind):
        starts, before = 8 * np.arange(len(cursor) + 1), 0
    else:
        starts, before = np.zeros(len(cursor) + 1, np.int64), 4
        _read_lengths(data, cursor, starts)
    out = np.zeros(int(starts[-1]), np.uint8)
    _read_bytes(data, cursor, starts, before, out)
    return from_words(out.view(np.int64), valid, kind) if _is_word(kind) else from_bytes(starts, out, valid, kind)


@njit(cache=True, nogil=True, _nrt=False)
def _hash(data, starts, words):
    for i in range(len(words)):
        h = _FNV_OFFSET
        for j in range(starts[i], starts[i + 1]):
            h = (h ^ data[j]) * _FNV_PRIME
        words[i] = h


@njit(cache=True, nogil=True, _nrt=False)
def _write_words(words, valid, data, cursor):
    for i in range(len(words)):
        at = cursor[i]
        data[at] = valid[i]
        if valid[i]:
            for b in range(8):
                data[at + 1 + b] = (words[i] >> (8 * b)) & 255
            at += 8
        cursor[i] = at + 1


@njit(cache=True, nogil=True, _nrt=False)
def _write_bytes(starts, source, valid, data, cursor):
    for i in range(len(valid)):
        at = cursor[i]
        data[at] = valid[i]
        at += 1
        if valid[i]:
            length = starts[i + 1] - starts[i]
            for b in range(4):
                data[at + b] = (length >> (8 * b)) & 255
            at += 4
            for b in range(length):
                data[at + b] = source[starts[i] + b]
            at += length
        cursor[i] = at


@njit(cache=True, nogil=True, _nrt=False)
def _read_lengths(data, cursor, starts):
    total = 0
    for i in range(len(cursor)):
        at = cursor[i]
        if data[at]:
            for b in range(4):
                total += int(data[at + 1 + b]) << (8 * b)
        starts[i + 1] = total


@njit(cache=True, nogil=True, _nrt=False)
def _read_bytes(data, cursor, starts, before, out):
    for i in range(len(cursor)):
        at = cursor[i] + 1
        if data[at - 1]:
            at += before  # the bytes of the length
            for b in range(starts[i + 1] - starts[i]):
                out[starts[i] + b] = data[at + b]
            at += starts[i + 1] - starts[i]
        cursor[i] = at
