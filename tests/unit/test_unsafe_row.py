"""Rows as Spark's `UnsafeRow` lays them out: which are null, then eight bytes a value."""

import struct

from strandline.spark.query.listener_bus import packed_numbers


def test_numbers_are_eight_bytes_each_after_the_nulls() -> None:
    assert struct.unpack("=qqdq", packed_numbers([3, 0.5, -1])) == (0, 3, 0.5, -1)
