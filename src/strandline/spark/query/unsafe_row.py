"""Bytes of Spark's `UnsafeRow`: a row handed to the JVM in one call, where each of its values would be one."""

from __future__ import annotations

import struct
from collections.abc import Iterable

_HEAD = 16
"""Bytes before a text that is alone in its row: which values are null (none), and where the text is."""


def packed_numbers(numbers: Iterable[float]) -> bytes:
    """A row of at most 64 numbers: integers as bigint, floats as double."""
    values = list(numbers)
    kinds = "".join("d" if isinstance(value, float) else "q" for value in values)
    return struct.pack(f"=q{kinds}", 0, *values)


def packed_text(text: str) -> bytes:
    """A row of one text."""
    data = text.encode()
    return struct.pack("=qq", 0, _HEAD << 32 | len(data)) + data + bytes(-len(data) % 8)
