"""A checksum over an array that can be brought up to date at the cost of what changed.

It is the sum, modulo 2**64, of every word mixed with its place. The mixing is one to one, so that a single wrong word
always shows; of more of them, all but one of 2**64. When rows change, what they added is taken off and what they add
now is put on: nothing else has to be read.
"""

# mypy: disable-error-code="no-any-return,untyped-decorator"

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from strandline.operators.kernels.kernel_arrays import Bytes, Int32s, Int64s
from strandline.operators.kernels.kernel_cache import njit

_PLACE, _ONE, _TWO = -7046029254386353131, -4658895280553007687, -7723592293110705685
_LOW = (1 << 32) - 1
MODULUS = 1 << 64


def checksum(array: Int64s | Int32s | Bytes) -> int:
    """Returns the checksum of an array, row by row; bytes are taken eight at a time, with zeros after the last."""
    flat = array.reshape(-1)
    return checksum_of_run(flat, 0, len(flat))


def checksum_of_rows(array: Int64s | Int32s | Bytes, rows: npt.NDArray[np.integer[Any]]) -> int:
    """Returns what these rows, each named once, add to the checksum of the array. Rows of bytes must be whole words."""
    return int(_sum_at(_words(array if array.ndim == 2 else array.reshape(-1, 1)), rows)) % MODULUS


def checksum_of_run(array: npt.NDArray[Any], begin: int, end: int) -> int:
    """Returns the checksum of the rows [begin, end); of bytes, that of the words that have one of them."""
    if array.ndim == 1 and array.dtype == np.uint8:
        return _checksum_of_bytes(array, begin, end)
    words = _words(array[begin:end])
    return int(_sum_of(words.reshape(-1), begin * (words.shape[1] if words.ndim == 2 else 1))) % MODULUS


def _words(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return rows.view(np.int64) if rows.dtype == np.uint8 else rows


def _checksum_of_bytes(array: Bytes, begin: int, end: int) -> int:
    first, last = begin // 8, min(-(-end // 8), len(array) // 8)
    total = int(_sum_of(array[8 * first : 8 * last].view(np.int64), first))
    if end > 8 * (len(array) // 8):
        rest = np.zeros(8, np.uint8)
        rest[: len(array) % 8] = array[len(array) - len(array) % 8 :]
        total += int(_sum_of(rest.view(np.int64), len(array) // 8))
    return total % MODULUS


@njit(inline="always", _nrt=False)
def _mixed(word: int, place: int) -> int:
    mixed = (word ^ (place * _PLACE)) * _ONE
    mixed = (mixed ^ ((mixed >> 32) & _LOW)) * _TWO
    return mixed ^ ((mixed >> 32) & _LOW)


@njit(cache=True, nogil=True, _nrt=False)
def _sum_of(words: Int64s, first: int) -> int:
    total = 0
    for i in range(len(words)):
        total += _mixed(words[i], first + i)
    return total


@njit(cache=True, nogil=True, _nrt=False)
def _sum_at(array: Int64s, rows: Int32s) -> int:
    total, width = 0, array.shape[1]
    for i in range(len(rows)):
        for word in range(width):
            total += _mixed(array[rows[i], word], rows[i] * width + word)
    return total
