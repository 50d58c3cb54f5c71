"""Kernels on the tuples of one side, however they are found: records, numbers, bytes of keys."""

# mypy: disable-error-code="no-untyped-call,no-untyped-def"

from __future__ import annotations

import numpy as np

from strandline.operators.join.tuple_record import (
    BYTES_END,
    DEAD,
    HEAD,
    KEY,
    NULL,
    OLDER,
    ORDINAL,
    ORIGIN,
    SEED,
    TAIL,
    TIME,
)
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.kernels.key_mixing import mixed
from strandline.operators.open_windows.byte_arena import same_bytes
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
    total, number = 0, side.header[HEAD]
    while number < side.header[TAIL]:
        record = record_of(side, number)
        if side.records[record, ORDINAL] != DEAD:
            total += key_at(side, record) & LENGTH_MAX
        number += 1
    return total


@njit(cache=True, nogil=True, _nrt=False)
def move_bytes(side, target):
    """Copies the bytes of kept tuples together into `target`."""
    end, number = 0, side.header[HEAD]
    while number < side.header[TAIL]:
        record = record_of(side, number)
        if side.records[record, ORDINAL] != DEAD:
            at = key_at(side, record)
            length, begin = at & LENGTH_MAX, at >> LENGTH_BITS
            for i in range(length):
                target[end + i] = side.bytes[begin + i]
            side.records[record, side.records.shape[1] - 1] = end << LENGTH_BITS | length
            end += length
        number += 1
    side.header[BYTES_END] = end


@njit(cache=True, nogil=True, _nrt=False)
def gather_bytes(source, other, sides, at, starts, out):
    """Copies the bytes of references one behind the other; `sides` says which lead into `other`."""
    for i in range(len(at)):
        length, begin = at[i] & LENGTH_MAX, at[i] >> LENGTH_BITS
        starts[i + 1] = starts[i] + length
        for j in range(length):
            out[starts[i] + j] = other[begin + j] if sides[i] else source[begin + j]
