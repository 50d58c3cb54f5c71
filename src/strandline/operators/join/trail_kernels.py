"""Kernels on trails: from the newest tuple of a bucket to older ones, for tuples that go in the order of arrival."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"

from __future__ import annotations

from strandline.operators.join.ring_kernels import bucket_of, next_record, record_of
from strandline.operators.join.tuple_record import (
    DEAD,
    FLAG_BITS,
    HEAD,
    KEY,
    LIVE,
    MATCHED,
    NULL,
    OLDER,
    ORDINAL,
    TAIL,
)
from strandline.operators.kernels.kernel_cache import njit


@njit(inline="always", _nrt=False)
def lay(side, record, number):
    """Puts a tuple at the end of its trail. It has met nothing yet."""
    bucket = bucket_of(side, side.records[record, KEY])
    side.records[record, OLDER] = side.buckets[bucket] << FLAG_BITS
    side.buckets[bucket] = number
    side.bucket_marks[bucket] = 1


@njit(inline="always", _nrt=False)
def let_head_go(side):
    """Drops the oldest tuple."""
    if side.records[record_of(side, side.header[HEAD]), ORDINAL] != DEAD:
        side.header[LIVE] -= 1
    side.header[HEAD] += 1


@njit(cache=True, nogil=True, _nrt=False)
def move_trails(old, new):
    """Moves the tuples into empty arrays that count from the same number on."""
    number = old.header[HEAD]
    while number < old.header[TAIL]:
        record, at = record_of(old, number), next_record(new)
        for word in range(old.records.shape[1]):
            new.records[at, word] = old.records[record, word]
        flags = old.records[record, OLDER] & (MATCHED | NULL)
        if old.records[record, ORDINAL] != DEAD and flags & NULL == 0:
            lay(new, at, number)
            new.records[at, OLDER] |= flags
        number += 1
