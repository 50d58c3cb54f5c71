"""Kernels on the lists of tuples of a key, for windows of n tuples a key."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"

from __future__ import annotations

from strandline.operators.join.ring_kernels import bucket_of, has_key, key_at, next_record, record_of
from strandline.operators.join.tuple_record import (
    CHAIN,
    COUNT,
    DEAD,
    HEAD,
    KEY,
    LIVE,
    NEWER,
    NEWEST,
    ORDINAL,
    TAIL,
)
from strandline.operators.kernels.kernel_cache import njit


@njit(inline="always", _nrt=False)
def oldest_of_key(side, word, fits_word, at, key_bytes):
    """Returns the record of the oldest tuple with this key, or -1."""
    found = side.buckets[bucket_of(side, word)]
    while found >= 0 and not has_key(side, found, word, fits_word, at, key_bytes):
        found = side.links[found, CHAIN]
    return found


@njit(inline="always", _nrt=False)
def append(side, record, fits_word):
    """Adds a tuple to the list of its key; how many there are now, and the record of the oldest."""
    word = side.records[record, KEY]
    oldest = oldest_of_key(side, word, fits_word, key_at(side, record), side.bytes)
    side.links[record, NEWER] = -1
    if oldest < 0:
        bucket = bucket_of(side, word)
        side.links[record, CHAIN] = side.buckets[bucket]
        side.links[record, NEWEST] = record
        side.links[record, COUNT] = 1
        side.buckets[bucket] = record
        side.bucket_marks[bucket] = 1
        return 1, record
    newest = side.links[oldest, NEWEST]
    side.links[newest, NEWER] = record
    side.links[oldest, NEWEST] = record
    side.links[oldest, COUNT] += 1
    side.record_marks[newest] = 1
    side.record_marks[oldest] = 1
    return side.links[oldest, COUNT], oldest


@njit(inline="always", _nrt=False)
def let_oldest_go(side, record):
    """Drops the oldest tuple of a key, which must have another."""
    bucket = bucket_of(side, side.records[record, KEY])
    before, found = -1, side.buckets[bucket]
    while found != record:
        before, found = found, side.links[found, CHAIN]
    follows = side.links[record, NEWER]
    side.links[follows, CHAIN] = side.links[record, CHAIN]
    side.links[follows, NEWEST] = side.links[record, NEWEST]
    side.links[follows, COUNT] = side.links[record, COUNT] - 1
    side.record_marks[follows] = 1
    if before >= 0:
        side.links[before, CHAIN] = follows
        side.record_marks[before] = 1
    else:
        side.buckets[bucket] = follows
        side.bucket_marks[bucket] = 1
    side.records[record, ORDINAL] = DEAD
    side.record_marks[record] = 1
    side.header[LIVE] -= 1


@njit(cache=True, nogil=True, _nrt=False)
def move_lists(old, new, fits_word, keep_dead):
    """Moves the tuples into empty arrays; without the dead ones, the others get new numbers from `new`'s TAIL on."""
    number = old.header[HEAD]
    while number < old.header[TAIL]:
        record = record_of(old, number)
        is_dead = old.records[record, ORDINAL] == DEAD
        if keep_dead or not is_dead:
            at = next_record(new)
            for word in range(old.records.shape[1]):
                new.records[at, word] = old.records[record, word]
            if not is_dead:
                append(new, at, fits_word)
        number += 1
