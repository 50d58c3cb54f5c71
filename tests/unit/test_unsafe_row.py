"""Rows as Spark's `UnsafeRow` lays them out: which are null, eight bytes a value, then texts in whole words."""

import struct

from strandline.spark.query.unsafe_row import packed_numbers, packed_text


def test_numbers_are_eight_bytes_each_after_the_nulls() -> None:
    assert struct.unpack("=qqdq", packed_numbers([3, 0.5, -1])) == (0, 3, 0.5, -1)


def test_a_text_fills_whole_words() -> None:
    for text in ["", "a", "eight by", "nine byte", "\N{GREEK SMALL LETTER ALPHA}"]:
        packed = packed_text(text)
        nulls, place = struct.unpack("=qq", packed[:16])
        first, size = place >> 32, place & 0xFFFFFFFF
        assert (nulls, len(packed) % 8) == (0, 0)
        assert packed[first : first + size].decode() == text
