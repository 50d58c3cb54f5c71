"""Numbers of 128 bits in two words, low and high: what decimals of more than 18 digits are computed with.

A number is in two's complement over both words; the low word's bits count as unsigned.
"""

# mypy: disable-error-code="no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.kernels.kernel_cache import njit

DIGITS_MAX = 38
WORD_DIGITS_MAX = 18
"""Of decimals whose values are one word; those of others are two."""
_MASK = (1 << 64) - 1
_LEAST = -(1 << 63)


def _words(number: int) -> tuple[int, int]:
    """Returns low and high word, both signed."""
    low = number & _MASK
    return low - (1 << 64) if low >> 63 else low, number >> 64


MAX_LOW, MAX_HIGH = _words(10**DIGITS_MAX - 1)
MIN_LOW, MIN_HIGH = _words(1 - 10**DIGITS_MAX)
"""The largest and the smallest number that a decimal can be."""
_SMALL = (1 << 62) // 20_000
_TENTH_LOW, _TENTH_HIGH = _words(10 ** (DIGITS_MAX - 1) - 1)


@njit(inline="always", _nrt=False)
def below(a: int, b: int) -> bool:
    """Returns whether a < b, their bits taken as unsigned."""
    return (a ^ _LEAST) < (b ^ _LEAST)


@njit(cache=True, nogil=True, _nrt=False)
def _divide(low: Int64s, high: Int64s, n: Int64s, digits: int, out: Int64s, fits: npt.NDArray[np.uint8]) -> None:
    """Divides each number by a count, with so many more digits, the last one rounded half up; notes whether it fits."""
    for i in range(len(low)):
        count = n[i]
        fits[i] = count > 0
        if count <= 0:
            continue
        is_negative = high[i] < 0
        a, b = low[i], high[i]
        if is_negative:
            a, b = -a, ~b + (1 if a == 0 else 0)
        if b == 0 and 0 <= a < _SMALL and digits <= 4:  # one word has room for all of it
            for _ in range(digits):
                a *= 10
            quotient_low = (2 * a + count) // (2 * count)
            out[i, 0], out[i, 1] = (-quotient_low, -1) if is_negative and quotient_low else (quotient_low, 0)
            continue
        quotient_low, quotient_high, rest = 0, 0, 0
        for bit in range(127, -1, -1):  # counts are far below 2**60, so that ten times a rest fits a word
            digit = (b >> (bit - 64)) & 1 if bit >= 64 else (a >> bit) & 1
            rest = 2 * rest + digit
            quotient_high = quotient_high << 1 | ((quotient_low >> 63) & 1)
            quotient_low = quotient_low << 1
            if rest >= count:
                rest -= count
                quotient_low |= 1
        for _ in range(digits):
            if quotient_high > _TENTH_HIGH or (quotient_high == _TENTH_HIGH and below(_TENTH_LOW, quotient_low)):
                fits[i] = 0
            eight_low, eight_high = quotient_low << 3, quotient_high << 3 | ((quotient_low >> 61) & 7)
            two_low, two_high = quotient_low << 1, quotient_high << 1 | ((quotient_low >> 63) & 1)
            ten_low = eight_low + two_low
            ten_high = eight_high + two_high + (1 if below(ten_low, two_low) else 0)
            digit = 10 * rest // count
            rest = 10 * rest % count
            quotient_low = ten_low + digit
            quotient_high = ten_high + (1 if below(quotient_low, digit) else 0)
        if 2 * rest >= count:
            quotient_low += 1
            quotient_high += 1 if quotient_low == 0 else 0
        if quotient_high > MAX_HIGH or (quotient_high == MAX_HIGH and below(MAX_LOW, quotient_low)):
            fits[i] = 0
        if is_negative:
            quotient_low, quotient_high = -quotient_low, ~quotient_high + (1 if quotient_low == 0 else 0)
        out[i, 0], out[i, 1] = quotient_low, quotient_high


def means(low: Int64s, high: Int64s, n: Int64s, digits: int) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    """Returns the means of sums with so many more digits, in pairs of words, and whether each fits 38 digits."""
    out, fits = np.zeros((len(low), 2), np.int64), np.empty(len(low), np.uint8)
    _divide(*(np.ascontiguousarray(words) for words in (low, high, n)), digits, out, fits)
    return out, fits


# ---------------------------------------------------------------------- Arrow columns


def pairs_of(array: pa.Array) -> Int64s:
    """Returns the values of a decimal column, low and high word beside each other; under a null, any number."""
    words = np.frombuffer(array.buffers()[1], np.int64) if len(array) else np.empty(0, np.int64)
    return words.reshape(-1, 2)[array.offset : array.offset + len(array)]


def from_pairs(pairs: Int64s, valid: npt.NDArray[np.uint8], kind: pa.DataType) -> pa.Array:
    """Returns the decimal column that has these values."""
    bits = None if valid.all() else pa.array(valid != 0).buffers()[1]
    return pa.Array.from_buffers(kind, len(pairs), [bits, pa.py_buffer(np.ascontiguousarray(pairs))])


def doubles(pairs: Int64s, scale: int) -> npt.NDArray[np.float64]:
    """Returns the values as doubles. Both words are rounded to one each, then what they come to, then the quotient."""
    low, high = pairs[:, 0], pairs[:, 1]
    is_negative = high < 0
    with np.errstate(over="ignore"):
        low, high = np.where(is_negative, -low, low), np.where(is_negative, ~high + (low == 0), high)
    magnitude = (high.astype(np.float64) * 2.0**64 + low.view(np.uint64).astype(np.float64)) / 10.0**scale
    return np.where(is_negative, -magnitude, magnitude)


def ordered_bytes(pairs: Int64s) -> npt.NDArray[np.uint8]:
    """Returns sixteen bytes a value that compare as the values do: the highest first, its sign bit turned round."""
    data = np.ascontiguousarray(np.ascontiguousarray(pairs).view(np.uint8).reshape(-1, 16)[:, ::-1])
    data[:, 0] ^= 0x80
    return data


def from_ordered_bytes(data: npt.NDArray[np.uint8]) -> Int64s:
    """Returns the values that `ordered_bytes` took."""
    turned = data.reshape(-1, 16).copy()
    turned[:, 0] ^= 0x80
    pairs: Int64s = np.ascontiguousarray(turned[:, ::-1]).view(np.int64)
    return pairs
