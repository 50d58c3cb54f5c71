"""To which partition Spark sends a key, for whole columns: its Murmur3, `pmod(hash(key), partitions)`.

Spark hashes a value as it holds it: four bytes for small integers, dates and booleans, eight for longs, timestamps and
decimals of up to 18 digits, else the bytes. The bytes of a longer decimal are those of its number without the point,
the highest first, as few as hold it. The hash of a column is the seed of the next one. A null leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.arrow_types import decimal_of
from strandline.operators.kernels.arrow_words import BYTES, Column, validity, whole, words_of
from strandline.operators.kernels.wide import WORD_DIGITS_MAX, pairs_of

_UInts: TypeAlias = npt.NDArray[np.uint32]

_SEED = 42
_LONGS = ("long", "timestamp", "timestamp_ntz")
_HALF = np.uint64(32)
_DECIMAL_BYTES = 16


def spark_partitions(columns: Sequence[Column], kinds: Sequence[str], partitions: int) -> npt.NDArray[np.int64]:
    """Returns the partition of each row, whose key is in these columns; types have Spark's names.

    >>> spark_partitions([pa.chunked_array([[7, None]])], ["long"], 2)
    array([1, 0])
    """
    found: _UInts = np.full(len(columns[0]), _SEED, np.uint32)
    for column, kind in zip(columns, kinds, strict=True):
        decimal = decimal_of(kind)
        if decimal is not None and decimal[0] > WORD_DIGITS_MAX:
            hashed, valid = _of_bytes(*_shortest(whole(column)), found), validity(column)
        elif kind in BYTES:
            hashed, valid = _of_bytes(*_ends_and_bytes(whole(column)), found), validity(column)
        else:
            words, valid = words_of(column, kind)
            hashed = _of_words(words, found, 8 if kind in _LONGS or decimal is not None else 4)
        found = np.where(valid != 0, hashed, found)
    return found.view(np.int32).astype(np.int64) % partitions


def _of_words(words: npt.NDArray[np.int64], seeds: _UInts, size: int) -> _UInts:
    """Returns the hashes of whole numbers of 4 or 8 bytes."""
    bits = words.view(np.uint64)
    found = _mixed(seeds, bits.astype(np.uint32))
    return _finished(found if size == 4 else _mixed(found, (bits >> _HALF).astype(np.uint32)), np.uint32(size))


def _ends_and_bytes(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Returns where each text begins, and the last one ends, in the bytes of all."""
    _, buffer, data = array.buffers()
    offsets = np.frombuffer(buffer, np.int32)[array.offset : array.offset + len(array) + 1]
    return offsets.astype(np.int64), np.frombuffer(data if data is not None else b"", np.uint8)


def _shortest(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Returns the numbers of decimals in as few bytes as hold each with its sign, as `_ends_and_bytes` does."""
    pairs = pairs_of(array)
    number = np.ascontiguousarray(pairs[:, ::-1]).astype(">i8").view(np.uint8).reshape(len(array), _DECIMAL_BYTES)
    sign = np.where(pairs[:, 1] < 0, 0xFF, 0).astype(np.uint8)
    differs = number != sign[:, None]
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), _DECIMAL_BYTES - 1)
    first -= (number[np.arange(len(array)), first] ^ sign) >> 7  # the first bit is the sign's
    lengths = _DECIMAL_BYTES - first
    return np.append(0, np.cumsum(lengths)), number[np.arange(_DECIMAL_BYTES) >= first[:, None]]


def _of_bytes(offsets: npt.NDArray[np.int64], values: npt.NDArray[np.uint8], seeds: _UInts) -> _UInts:
    """Returns the hashes of texts and bytes: words of four bytes, then the bytes that are left, one by one and signed.

    Goes through all rows at once, word by word: rows that have come to their end are left out.
    """
    lengths, found, left = np.diff(offsets), seeds.copy(), np.arange(len(seeds))
    word = 0
    while len(left := left[lengths[left] // 4 > word]):
        at = offsets[left] + 4 * word
        k: _UInts = np.zeros(len(left), np.uint32)
        for i in range(4):
            k |= values[at + i].astype(np.uint32) << np.uint32(8 * i)
        found[left] = _mixed(found[left], k)
        word += 1
    for byte in range(3):
        left = np.flatnonzero(lengths % 4 > byte)
        at = offsets[left] + lengths[left] // 4 * 4 + byte
        found[left] = _mixed(found[left], values[at].view(np.int8).astype(np.int32).view(np.uint32))
    return _finished(found, lengths.astype(np.uint32))


def _mixed(hashes: _UInts, k: _UInts) -> _UInts:
    k = _rotated(k * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
    return _rotated(hashes ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _finished(hashes: _UInts, lengths: _UInts | np.uint32) -> _UInts:
    h = hashes ^ lengths
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def _rotated(x: _UInts, by: int) -> _UInts:
    return (x << np.uint32(by)) | (x >> np.uint32(32 - by))
