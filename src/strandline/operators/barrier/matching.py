"""The compiled loop of barriers: each tuple meets those of its key that wait, or waits itself.

`plain_barrier.py` says in plain Python what it computes. A key's tuples wait in one queue an input; at any time one of
the queues is empty, and a tuple of that input completes a set if it is the only one. O(inputs) a tuple.
"""

# mypy: disable-error-code="no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import NamedTuple

from strandline.operators.kernels.kernel_arrays import Bytes, Int32s, Int64s
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.byte_arena import same_bytes
from strandline.operators.open_windows.hash_table import NO_START, bucket_of
from strandline.operators.open_windows.record import LENGTH_BITS, LENGTH_MAX

N, USED, FREE, KEYS_USED, KEYS_FREE, INPUT_END, BYTES_END, BYTES_KEPT, ARRIVED, ARRIVALS, SAVED, PRINTS, SEED = range(
    13
)
HEADER_WORDS = 16
"""Tuples that wait; records used and the first free one; the same of keys; the input taken in; bytes of keys; head and
tail of the queue of tuples by arrival, and of the queue of footprints by offset; by which keys go to buckets."""

AT, INPUT, NEXT, KEY_RECORD, ROW, POS, SINCE = range(7)
TUPLE_WORDS = 8
"""A tuple that waits: its place, its input, the next of its queue, its key, its row in the payload, the output offset
of its footprint, and the output offset from which on results may have taken a tuple that came no earlier. FREE: AT."""

KEY, KEY_AT, LINK, COUNT, QUEUES = range(5)
"""A key: its word, where its bytes are, the next of its bucket, how many tuples wait, then head and tail an input."""

DONE, FULL = 0, 1
NONE = -1


class WaitingArrays(NamedTuple):
    """The tuples that wait."""

    header: Int64s
    tuples: Int64s
    keys: Int64s
    buckets: Int32s
    arrivals: Int64s
    """A ring of (record, place) in the order of places; entries outlive what they stand for."""
    prints: Int64s
    """A ring of (record, output offset) in the order of footprints; the same holds."""
    bytes: Bytes


class Touched(NamedTuple):
    """Which records and buckets a step has changed."""

    tuples: Bytes
    keys: Bytes
    buckets: Bytes


class Incoming(NamedTuple):
    """Tuples of all inputs in the serialised order."""

    keys: Int64s
    key_at: Int64s
    bytes: Bytes
    """Places in here continue those in the state's bytes."""
    inputs: Int64s
    places: Int64s
    rows: Int64s
    """In the payload, as if all of them were added to it."""


class Outgoing(NamedTuple):
    """The output of the loop: complete sets, tuples that are set aside, tuples that began to wait."""

    rows: Int64s
    places: Int64s
    dropped: Int64s
    """A line each: input, row, place, and the place of the tuple that was one too many."""
    fresh: Int64s
    """Records and places of tuples that began to wait."""
    fresh_keys: Int64s
    counts: Int64s
    """Of the sets, of those set aside, of the fresh tuples, of the fresh keys."""


@njit(inline="always", _nrt=False)
def bucket_of_key(w: WaitingArrays, key: int) -> int:
    return bucket_of(key, NO_START, w.header[SEED], len(w.buckets) - 1)


@njit(inline="always", _nrt=False)
def has_bytes(w: WaitingArrays, more: Bytes, record: int, key_at: int) -> bool:
    """Returns whether these bytes, which are among those that came just now, are the key of a record."""
    held, at = w.header[BYTES_END] << LENGTH_BITS, w.keys[record, KEY_AT]
    if at < held:
        return same_bytes(w.bytes, at, more, key_at - held)
    return same_bytes(more, at - held, more, key_at - held)


@njit(inline="always", _nrt=False)
def find_key(w: WaitingArrays, more: Bytes, key: int, key_at: int, is_word: bool) -> int:
    record = w.buckets[bucket_of_key(w, key)]
    while record >= 0:
        if w.keys[record, KEY] == key:
            if is_word:
                if w.keys[record, KEY_AT] == key_at:
                    return record
            elif has_bytes(w, more, record, key_at):
                return record
        record = w.keys[record, LINK]
    return NONE


@njit(inline="always", _nrt=False)
def add_key(w: WaitingArrays, touched: Touched, key: int, key_at: int) -> int:
    record = w.header[KEYS_FREE]
    if record >= 0:
        w.header[KEYS_FREE] = w.keys[record, LINK]
    else:
        record = w.header[KEYS_USED]
        w.header[KEYS_USED] += 1
    bucket = bucket_of_key(w, key)
    w.keys[record, KEY], w.keys[record, KEY_AT], w.keys[record, COUNT] = key, key_at, 0
    w.keys[record, LINK] = w.buckets[bucket]
    for word in range(QUEUES, w.keys.shape[1]):
        w.keys[record, word] = NONE
    w.buckets[bucket] = record
    touched.keys[record] = 1
    touched.buckets[bucket] = 1
    return record


@njit(inline="always", _nrt=False)
def remove_key(w: WaitingArrays, touched: Touched, record: int) -> None:
    bucket = bucket_of_key(w, w.keys[record, KEY])
    at = w.buckets[bucket]
    if at == record:
        w.buckets[bucket] = w.keys[record, LINK]
        touched.buckets[bucket] = 1
    else:
        while w.keys[at, LINK] != record:
            at = w.keys[at, LINK]
        w.keys[at, LINK] = w.keys[record, LINK]
        touched.keys[at] = 1
    w.keys[record, COUNT] = NONE
    w.keys[record, LINK] = w.header[KEYS_FREE]
    w.header[KEYS_FREE] = record
    touched.keys[record] = 1


@njit(inline="always", _nrt=False)
def push(w: WaitingArrays, touched: Touched, record: int, input_: int, place: int, row: int) -> int:
    """Lets a tuple wait as the last of its queue; its record."""
    slot = w.header[FREE]
    if slot >= 0:
        w.header[FREE] = w.tuples[slot, NEXT]
    else:
        slot = w.header[USED]
        w.header[USED] += 1
    w.tuples[slot, AT], w.tuples[slot, INPUT], w.tuples[slot, NEXT] = place, input_, NONE
    w.tuples[slot, KEY_RECORD], w.tuples[slot, ROW] = record, row
    w.tuples[slot, POS] = w.tuples[slot, SINCE] = NONE
    head = QUEUES + 2 * input_
    last = w.keys[record, head + 1]
    if last >= 0:
        w.tuples[last, NEXT] = slot
        touched.tuples[last] = 1
    else:
        w.keys[record, head] = slot
    w.keys[record, head + 1] = slot
    w.keys[record, COUNT] += 1
    touched.keys[record] = 1
    touched.tuples[slot] = 1
    w.header[N] += 1
    tail = w.header[ARRIVALS] % len(w.arrivals)
    w.arrivals[tail, 0], w.arrivals[tail, 1] = slot, place
    w.header[ARRIVALS] += 1
    return slot


@njit(inline="always", _nrt=False)
def pop(w: WaitingArrays, touched: Touched, record: int, input_: int) -> int:
    """Takes the first tuple out of a queue; its record, which is free then and still says what it was."""
    head = QUEUES + 2 * input_
    slot = w.keys[record, head]
    w.keys[record, head] = w.tuples[slot, NEXT]
    if w.tuples[slot, NEXT] < 0:
        w.keys[record, head + 1] = NONE
    w.keys[record, COUNT] -= 1
    w.tuples[slot, NEXT] = w.header[FREE]
    w.header[FREE] = slot
    w.header[N] -= 1
    touched.tuples[slot] = 1
    touched.keys[record] = 1
    return slot


@njit(inline="always", _nrt=False)
def has_room(w: WaitingArrays) -> bool:
    h = w.header
    return (
        (h[FREE] >= 0 or h[USED] < len(w.tuples))
        and (h[KEYS_FREE] >= 0 or h[KEYS_USED] < len(w.keys))
        and h[ARRIVALS] - h[ARRIVED] < len(w.arrivals)
    )


@njit(inline="always", _nrt=False)
def completes(w: WaitingArrays, record: int, input_: int, inputs: int) -> bool:
    many = 0
    for i in range(inputs):
        many += (w.keys[record, QUEUES + 2 * i] >= 0) != (i == input_)
    return many == inputs


@njit(inline="always", _nrt=False)
def drop_oldest(w: WaitingArrays, touched: Touched, record: int, inputs: int, out: Outgoing, place: int) -> None:
    first = NONE
    for i in range(inputs):
        slot = w.keys[record, QUEUES + 2 * i]
        if slot >= 0 and (first < 0 or w.tuples[slot, AT] < w.tuples[first, AT]):
            first = slot
    line = out.counts[1]
    out.dropped[line, 0], out.dropped[line, 1] = w.tuples[first, INPUT], w.tuples[first, ROW]
    out.dropped[line, 2], out.dropped[line, 3] = w.tuples[first, AT], place
    pop(w, touched, record, w.tuples[first, INPUT])
    w.tuples[first, AT] = NONE
    out.counts[1] += 1


@njit(cache=True, nogil=True, _nrt=False)
def take_in(
    w: WaitingArrays, incoming: Incoming, begin: int, is_word: bool, at_most: int, touched: Touched, out: Outgoing
) -> tuple[int, int]:
    """Takes in tuples from number `begin` on; how far it came, and whether there is room for no more."""
    inputs = (w.keys.shape[1] - QUEUES) // 2
    for t in range(begin, len(incoming.keys)):
        if not has_room(w):
            return t, FULL
        input_, place, row = incoming.inputs[t], incoming.places[t], incoming.rows[t]
        record = find_key(w, incoming.bytes, incoming.keys[t], incoming.key_at[t], is_word)
        if record >= 0 and completes(w, record, input_, inputs):
            line = out.counts[0]
            out.counts[0] += 1
            for i in range(inputs):
                if i == input_:
                    out.rows[line, i], out.places[line, i] = row, place
                else:
                    slot = pop(w, touched, record, i)
                    out.rows[line, i], out.places[line, i] = w.tuples[slot, ROW], w.tuples[slot, AT]
                    w.tuples[slot, AT] = NONE
            if w.keys[record, COUNT] == 0:
                remove_key(w, touched, record)
            continue
        if record < 0:
            record = add_key(w, touched, incoming.keys[t], incoming.key_at[t])
            out.fresh_keys[out.counts[3]] = record
            out.counts[3] += 1
        slot = push(w, touched, record, input_, place, row)
        out.fresh[out.counts[2], 0], out.fresh[out.counts[2], 1] = slot, place
        out.counts[2] += 1
        if at_most >= 0 and w.keys[record, COUNT] > at_most:
            drop_oldest(w, touched, record, inputs, out, place)
    return len(incoming.keys), DONE


@njit(cache=True, nogil=True, _nrt=False)
def enter(
    w: WaitingArrays, incoming: Incoming, begin: int, is_word: bool, touched: Touched, out: Outgoing
) -> tuple[int, int]:
    """Lets tuples wait that did so before, whatever else waits; how far it came, as `take_in`."""
    for t in range(begin, len(incoming.keys)):
        if not has_room(w):
            return t, FULL
        record = find_key(w, incoming.bytes, incoming.keys[t], incoming.key_at[t], is_word)
        if record < 0:
            record = add_key(w, touched, incoming.keys[t], incoming.key_at[t])
            out.fresh_keys[out.counts[3]] = record
            out.counts[3] += 1
        slot = push(w, touched, record, incoming.inputs[t], incoming.places[t], incoming.rows[t])
        out.fresh[out.counts[2], 0], out.fresh[out.counts[2], 1] = slot, incoming.places[t]
        out.counts[2] += 1
    return len(incoming.keys), DONE


@njit(cache=True, nogil=True, _nrt=False)
def rehash(w: WaitingArrays) -> None:
    """Fills the buckets anew, which are empty."""
    for record in range(w.header[KEYS_USED]):
        if w.keys[record, COUNT] >= 0:
            bucket = bucket_of_key(w, w.keys[record, KEY])
            w.keys[record, LINK] = w.buckets[bucket]
            w.buckets[bucket] = record


@njit(cache=True, nogil=True, _nrt=False)
def bytes_of_keys(w: WaitingArrays, records: Int64s, held: int) -> int:
    """Returns how many bytes these keys have that lie at `held` or behind it."""
    many = 0
    for record in records:
        if w.keys[record, COUNT] >= 0 and w.keys[record, KEY_AT] >> LENGTH_BITS >= held:
            many += w.keys[record, KEY_AT] & LENGTH_MAX
    return many


@njit(cache=True, nogil=True, _nrt=False)
def keep_bytes(w: WaitingArrays, records: Int64s, source: Bytes, held: int, end: int, touched: Touched) -> int:
    """Copies the bytes of these keys that lie at `held` or behind it to `end` in the state; the new end."""
    for record in records:
        if w.keys[record, COUNT] >= 0 and w.keys[record, KEY_AT] >> LENGTH_BITS >= held:
            at, length = (w.keys[record, KEY_AT] >> LENGTH_BITS) - held, w.keys[record, KEY_AT] & LENGTH_MAX
            w.keys[record, KEY_AT] = end << LENGTH_BITS | length
            for i in range(length):
                w.bytes[end + i] = source[at + i]
            end += length
            touched.keys[record] = 1
    return end
