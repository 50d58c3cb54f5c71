"""Kernels on the kept tuples of one side: where they lie, and how trails and lists lead to them."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"

from __future__ import annotations

import numpy as np

from strandline.operators.join.tuple_record import (
    BYTES_END,
    CHAIN,
    COUNT,
    DEAD,
    FLAG_BITS,
    HEAD,
    KEY,
    LIVE,
    MATCHED,
    NEWER,
    NEWEST,
    NULL,
    OLDER,
    ORDINAL,
    ORIGIN,
    SEED,
    TAIL,
    TIME,
)
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.byte_arena import same_bytes
from strandline.operators.open_windows.hash_table import mixed
from strandline.operators.open_windows.record import LENGTH_BITS, LENGTH_MAX

_HALF = np.uint64(32)


@njit(inline="always", _nrt=False)
def bucket_of(side, word):
    """Returns the bucket of a key's word."""
    return np.int64(((mixed(word, side.header[SEED]) >> _HALF) * np.uint64(len(side.buckets))) >> _HALF)


@njit(inline="always", _nrt=False)
def record_of(side, number):
    """Returns where the tuple of this number lies."""
    at = number - side.header[ORIGIN]
    return at if at >= 0 else at + len(side.records)


@njit(inline="always", _nrt=False)
def number_in(side, record):
    """Returns the number of the tuple that lies there."""
    number = side.header[ORIGIN] + record
    return number if number < side.header[TAIL] else number - len(side.records)


@njit(inline="always", _nrt=False)
def key_at(side, record):
    """Returns where the bytes of the key of a tuple lie, if it does not fit a word."""
    return side.records[record, side.records.shape[1] - 1]


@njit(inline="always", _nrt=False)
def has_key(side, record, word, fits_word, at, key_bytes):
    """Returns whether the key of a tuple is this one: its word, and if it does not fit one, where its bytes lie."""
    if side.records[record, KEY] != word:
        return False
    return fits_word or same_bytes(side.bytes, key_at(side, record), key_bytes, at)


@njit(inline="always", _nrt=False)
def skim(side):
    """Moves HEAD to the oldest tuple that is kept."""
    head, tail = side.header[HEAD], side.header[TAIL]
    while head < tail and side.records[record_of(side, head), ORDINAL] == DEAD:
        head += 1
    side.header[HEAD] = head


@njit(inline="always", _nrt=False)
def next_record(side):
    """Returns the record for one more tuple, which gets the number TAIL; there must be room."""
    record = side.header[TAIL] - side.header[ORIGIN]
    if record == len(side.records):
        side.header[ORIGIN] += len(side.records)
        record = 0
    side.header[TAIL] += 1
    side.record_marks[record] = 1
    return record


@njit(inline="always", _nrt=False)
def _copied(old, record, new):
    """Copies a record into the next one of other arrays; returns where."""
    at = next_record(new)
    for word in range(old.records.shape[1]):
        new.records[at, word] = old.records[record, word]
    return at


@njit(cache=True, nogil=True, _nrt=False)
def live_among(side, first, end, found):
    """Writes the numbers of the kept tuples from `first` on, before `end`, as many as there is room for; how many."""
    n, number = 0, max(first, side.header[HEAD])
    while number < min(end, side.header[TAIL]) and n < len(found):
        if side.records[record_of(side, number), ORDINAL] != DEAD:
            found[n] = number
            n += 1
        number += 1
    return n


@njit(cache=True, nogil=True, _nrt=False)
def read_records(side, numbers, fits_word, counts, words):
    """Writes ordinal, time, key, and where its bytes lie (or whether it is null), a row of `words` for each."""
    for i in range(len(numbers)):
        record = record_of(side, numbers[i])
        words[0, i] = side.records[record, ORDINAL]
        words[1, i] = side.records[record, TIME]
        words[2, i] = side.records[record, KEY]
        if not fits_word:
            words[3, i] = key_at(side, record)
        else:
            words[3, i] = 1 if not counts and side.records[record, OLDER] & NULL else 0


@njit(cache=True, nogil=True, _nrt=False)
def bytes_in_use(side):
    """Returns the bytes of keys of kept tuples."""
    total = 0
    for number in range(side.header[HEAD], side.header[TAIL]):
        record = record_of(side, number)
        if side.records[record, ORDINAL] != DEAD:
            total += key_at(side, record) & LENGTH_MAX
    return total


@njit(cache=True, nogil=True, _nrt=False)
def move_bytes(side, target):
    """Copies the bytes of kept tuples together into `target`."""
    end = 0
    for number in range(side.header[HEAD], side.header[TAIL]):
        record = record_of(side, number)
        if side.records[record, ORDINAL] != DEAD:
            at = key_at(side, record)
            length, begin = at & LENGTH_MAX, at >> LENGTH_BITS
            for i in range(length):
                target[end + i] = side.bytes[begin + i]
            side.records[record, side.records.shape[1] - 1] = end << LENGTH_BITS | length
            end += length
    side.header[BYTES_END] = end


@njit(cache=True, nogil=True, _nrt=False)
def gather_bytes(source, other, sides, at, starts, out):
    """Copies the bytes of references one behind the other; `sides` says which lead into `other`."""
    for i in range(len(at)):
        length, begin = at[i] & LENGTH_MAX, at[i] >> LENGTH_BITS
        starts[i + 1] = starts[i] + length
        for j in range(length):
            out[starts[i] + j] = other[begin + j] if sides[i] else source[begin + j]


# ------------------------------------------------ trails: from the newest tuple of a bucket to older ones


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
    for number in range(old.header[HEAD], old.header[TAIL]):
        record = record_of(old, number)
        at = _copied(old, record, new)
        flags = old.records[record, OLDER] & (MATCHED | NULL)
        if old.records[record, ORDINAL] != DEAD and flags & NULL == 0:
            lay(new, at, number)
            new.records[at, OLDER] |= flags


# ------------------------------------------------ lists: from the oldest tuple of a key to newer ones


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
    for number in range(old.header[HEAD], old.header[TAIL]):
        record = record_of(old, number)
        is_dead = old.records[record, ORDINAL] == DEAD
        if keep_dead or not is_dead:
            at = _copied(old, record, new)
            if not is_dead:
                append(new, at, fits_word)
