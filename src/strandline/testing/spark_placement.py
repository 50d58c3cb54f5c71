"""Where Spark puts a tuple, in plain Python: in which partition, and in which order within a batch.

The partition of a key is Spark's Murmur3 over its columns. Spark hashes a value as it holds it: four bytes for small
integers and dates, eight for longs, timestamps and short decimals, else the bytes. A null leaves the hash as it is.
The order is by time, then by all other columns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from decimal import Context
from typing import Any

from strandline.arrow_types import decimal_of

_SEED = 42
_MASK = 0xFFFFFFFF
_SMALL = ("byte", "short", "integer", "date", "boolean")
_LONG_DIGITS = 18
_EXACT = Context(prec=38)


def partition_of(values: Sequence[Any], kinds: Sequence[str], partitions: int) -> int:
    """Returns the partition of a key with these values. Times and dates are whole numbers; types have Spark's names.

    >>> partition_of([7], ["long"], 2), partition_of(["seven"], ["string"], 2), partition_of([None], ["long"], 2)
    (1, 0, 0)
    """
    found = _SEED
    for value, kind in zip(values, kinds, strict=True):
        if value is not None:
            found = _one(value, kind, found)
    return (found - (1 << 32) if found >> 31 else found) % partitions


def sort_key(value: Any, kind: Any) -> tuple[Any, ...]:
    """Sorts as Spark sorts: nulls first, NaN last, zeros alike, text by its bytes; `kind` is the type in Spark's JSON.

    >>> sorted([2.0, None, math.nan, -1.0], key=lambda x: sort_key(x, "double"))
    [None, -1.0, 2.0, nan]
    """
    if value is None:
        return (0,)
    if isinstance(kind, Mapping):
        if kind["type"] == "struct":
            return (1, tuple(sort_key(value[f["name"]], f["type"]) for f in kind["fields"]))
        if kind["type"] == "array":
            return (1, tuple(sort_key(element, kind["elementType"]) for element in value))
        # Maps have no order of their own; the entry point takes their text.
        return (1, json.dumps(dict(value), separators=(",", ":"), ensure_ascii=False, default=str))
    if kind in ("float", "double"):
        return (1, True, 0.0) if math.isnan(value) else (1, False, value)
    return (1, value.encode() if isinstance(value, str) else value)


def _one(value: Any, kind: str, seed: int) -> int:
    decimal = decimal_of(kind)
    if decimal is not None:
        unscaled = int(_EXACT.scaleb(value, decimal[1]))
        if decimal[0] > _LONG_DIGITS:
            length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
            return _bytes(unscaled.to_bytes(length, "big", signed=True), seed)
        return _words([unscaled, unscaled >> 32], seed)
    if kind in _SMALL:
        return _words([int(value)], seed)
    if isinstance(value, int):
        return _words([value, value >> 32], seed)
    return _bytes(value.encode() if isinstance(value, str) else bytes(value), seed)


def _words(words: Sequence[int], seed: int) -> int:
    for word in words:
        seed = _mixed(seed, word & _MASK)
    return _finished(seed, 4 * len(words))


def _bytes(data: bytes, seed: int) -> int:
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        seed = _mixed(seed, int.from_bytes(data[at : at + 4], "little"))
    for byte in data[whole:]:  # one by one, and signed
        seed = _mixed(seed, (byte - 256 if byte > 127 else byte) & _MASK)
    return _finished(seed, len(data))


def _mixed(h: int, k: int) -> int:
    k = _rotated(k * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    return (_rotated(h ^ k, 13) * 5 + 0xE6546B64) & _MASK


def _finished(h: int, length: int) -> int:
    h ^= length
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


def _rotated(x: int, by: int) -> int:
    return (x << by | x >> (32 - by)) & _MASK
