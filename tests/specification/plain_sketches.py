"""What sketches are, in plain Python: functions of the values that a window has, each with how often it came."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections import Counter
from decimal import Context
from typing import Any

from strandline.arrow_types import decimal_of
from strandline.operators.aggregate.aggregates import Accumulator, Read
from strandline.operators.aggregate.sketch_kernels import (
    BUCKETS_MAX,
    COARSE,
    DENSE,
    EXACT,
    FNV_OFFSETS,
    FNV_PRIMES,
    INDEX_BITS,
    MIX,
    REGISTERS,
)
from strandline.operators.aggregate.sketches import estimate, middle

Element = tuple[int, ...]
Values = Counter[Element]
_MASK = (1 << 64) - 1
_EXACT = Context(prec=38)


def element(a: Accumulator, value: Any) -> Element:
    """A value, as one word or as two hashes; `value` is a double where doubles are read."""
    if a.read is Read.FLOAT:
        return (_ordered(value),)
    decimal = decimal_of(a.type)
    if decimal is not None:
        value = int(_EXACT.scaleb(value, decimal[1]))
    if a.read is Read.BYTES:
        data = value if decimal is None else (value + (1 << 127)).to_bytes(16, "big")
        return _hashes(data.encode() if isinstance(data, str) else data)
    if isinstance(value, dt.datetime):
        return ((value - dt.datetime(1970, 1, 1, tzinfo=value.tzinfo)) // dt.timedelta(microseconds=1),)
    if isinstance(value, dt.date):
        return ((value - dt.date(1970, 1, 1)).days,)
    return (int(value),)


def encoded(a: Accumulator, values: Values) -> bytes:
    """The bytes of the sketch."""
    if not values:
        return b""
    if a.function == "percentile":
        bits, buckets = _buckets(a, values)
        return _packed([bits, *(word for pair in sorted(buckets.items()) for word in pair)])
    if len(values) <= _bound(a):
        return _packed([EXACT, *(word for key in sorted(values) for word in key)])
    return _packed([DENSE]) + bytes(_registers(values))


def results(a: Accumulator, values: Values) -> tuple[Any, bool]:
    """The result, and whether it is approximate."""
    if a.function == "count_distinct":
        if len(values) <= _bound(a):
            return len(values), False
        ranks = Counter(_registers(values))
        return estimate([ranks[rank] for rank in range(66)]), True
    if not values:
        return None, False
    bits, buckets = _buckets(a, values)
    keys = [key for key, count in sorted(buckets.items()) for _ in range(count)]
    position = (len(keys) - 1) * dict(a.aggregate.options)["p"]
    if bits:
        return middle(keys[math.floor(position + 0.5)], bits), True
    lower, higher = math.floor(position), math.ceil(position)
    low, high = _double(keys[lower]), _double(keys[higher])
    if keys[lower] == keys[higher]:
        return low, False
    return low + (position - lower) * (high - low), False


def _bound(a: Accumulator) -> int:
    return int(dict(a.aggregate.options)["exact_up_to"])


def _buckets(a: Accumulator, values: Values) -> tuple[int, Counter[int]]:
    """By how many bits values are cut, and how many come to each bucket then: no more buckets than there may be."""
    bits, most = 0, _bound(a)
    while True:
        found: Counter[int] = Counter()
        for (key,), count in values.items():
            found[key >> bits] += count
        if len(found) <= most:
            return bits, found
        bits, most = max(COARSE, bits + 1), BUCKETS_MAX


def _registers(values: Values) -> list[int]:
    registers = [0] * REGISTERS
    for key in values:
        h = _mixed(key[0] & _MASK)
        rest = h << INDEX_BITS & _MASK
        index, rank = h >> (64 - INDEX_BITS), min(64 - rest.bit_length(), 64 - INDEX_BITS) + 1
        registers[index] = max(registers[index], rank)
    return registers


def _hashes(data: bytes) -> Element:
    found = []
    for offset, prime in zip(FNV_OFFSETS, FNV_PRIMES, strict=True):
        h = offset
        for byte in data:
            h = (h ^ byte) * prime & _MASK
        found.append(_signed(_mixed(h)))
    return tuple(found)


def _mixed(h: int) -> int:
    for multiplier in MIX:
        h = (h ^ h >> 33) * multiplier & _MASK
    return h ^ h >> 33


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _ordered(value: float) -> int:
    """Doubles as integers in the same order; both zeros are one value, and so are all NaN."""
    (bits,) = struct.unpack("<q", struct.pack("<d", math.nan if math.isnan(value) else value + 0.0))
    return -(bits & (1 << 63) - 1) - 1 if bits < 0 else int(bits)


def _double(ordered: int) -> float:
    bits = _signed(-(ordered + 1) | 1 << 63) if ordered < 0 else ordered
    (value,) = struct.unpack("<d", struct.pack("<q", bits))
    return float(value)


def _packed(words: list[int]) -> bytes:
    return struct.pack(f"<{len(words)}q", *words)
