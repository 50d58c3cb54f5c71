"""The compiled loops of barriers: each tuple meets those of its key that wait, or waits itself; and footprints.

`plain_barrier.py` says in plain Python what they compute. A key's tuples wait in one queue an input; at any time one of
the queues is empty, and a tuple of that input completes a set if it is the only one. O(inputs) a tuple.

A tuple that waits is an open window, and so is a key of which tuples wait; the loops of open windows find, free and
list them.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import NamedTuple

from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.arrays import DONE, FULL, Batch, Key, State, Trace, touch_record
from strandline.operators.open_windows.hash_table import NO_START, first_of_key, key_of, link
from strandline.operators.open_windows.record import (
    END,
    NONE,
    OPENED,
    OPENINGS_HEAD,
    OPENINGS_TAIL,
    POS,
    ROWS,
    SEED,
    START,
    STATE,
    N,
)
from strandline.operators.open_windows.window_footprints import (
    LimitBounds,
    Page,
    SlowBounds,
    leave_footprint,
    oldest_footprint,
)
from strandline.operators.open_windows.window_records import blank_record, drop_window, free_record

INPUT, NEXT, ROW, SINCE = START, END, ROWS, STATE
TUPLE_WORDS = STATE + 1
"""A tuple that waits was opened at its place. Other words of its record: its input, the next of its queue, its row in
the payload, and the output offset from which on results may have taken a tuple that came no earlier."""
QUEUES = STATE
"""Of a key, ROWS is how many of its tuples wait; from here on are head and tail of the queue of each input."""


class Waiting(NamedTuple):
    """The tuples that wait, their keys, and what the step has changed of both."""

    tuples: State
    tuples_trace: Trace
    keys: State
    keys_trace: Trace


class Incoming(NamedTuple):
    """Tuples of all inputs in the serialised order."""

    batch: Batch
    """Their keys, and as offsets their places."""
    inputs: Int64s
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
    counts: Int64s
    """Of the sets, of those set aside, of the fresh tuples."""


@njit(inline="always", _nrt=False)
def add_key(keys: State, trace: Trace, key: Key, place: int) -> int:
    """Returns a new record for a key of which no tuple waits."""
    record = blank_record(keys, trace, key)
    keys.records[record, OPENED] = place
    for word in range(QUEUES, keys.records.shape[1]):
        keys.records[record, word] = NONE
    keys.header[N] += 1
    link(keys, trace, record, NO_START)
    return record


@njit(inline="always", _nrt=False)
def push(waiting: Waiting, record: int, input_: int, place: int, row: int) -> int:
    """Lets a tuple wait as the last of its queue; returns its record."""
    tuples, trace, keys, keys_trace = waiting
    slot = blank_record(tuples, trace, Key(record, 0))
    tuples.records[slot, OPENED], tuples.records[slot, INPUT], tuples.records[slot, ROW] = place, input_, row
    tuples.records[slot, NEXT] = tuples.records[slot, SINCE] = NONE
    tuples.header[N] += 1
    head = QUEUES + 2 * input_
    last = keys.records[record, head + 1]
    if last >= 0:
        tuples.records[last, NEXT] = slot
        touch_record(trace, last)
    else:
        keys.records[record, head] = slot
    keys.records[record, head + 1] = slot
    keys.records[record, ROWS] += 1
    touch_record(keys_trace, record)
    tail = tuples.header[OPENINGS_TAIL] % len(tuples.openings)
    tuples.openings[tail, 0], tuples.openings[tail, 1] = slot, place
    tuples.header[OPENINGS_TAIL] += 1
    return slot


@njit(inline="always", _nrt=False)
def pop(waiting: Waiting, record: int, input_: int) -> None:
    """Takes the first tuple out of a queue and frees its record."""
    tuples, trace, keys, keys_trace = waiting
    head = QUEUES + 2 * input_
    slot = keys.records[record, head]
    keys.records[record, head] = tuples.records[slot, NEXT]
    if tuples.records[slot, NEXT] < 0:
        keys.records[record, head + 1] = NONE
    keys.records[record, ROWS] -= 1
    touch_record(keys_trace, record)
    free_record(tuples, trace, slot)
    tuples.header[N] -= 1


@njit(inline="always", _nrt=False)
def completes(keys: State, record: int, input_: int, inputs: int) -> bool:
    many = 0
    for i in range(inputs):
        many += (keys.records[record, QUEUES + 2 * i] >= 0) != (i == input_)
    return many == inputs


@njit(inline="always", _nrt=False)
def drop_oldest(waiting: Waiting, record: int, inputs: int, out: Outgoing, place: int) -> None:
    records, first = waiting.tuples.records, NONE
    for i in range(inputs):
        slot = waiting.keys.records[record, QUEUES + 2 * i]
        if slot >= 0 and (first < 0 or records[slot, OPENED] < records[first, OPENED]):
            first = slot
    line = out.counts[1]
    out.dropped[line, 0], out.dropped[line, 1] = records[first, INPUT], records[first, ROW]
    out.dropped[line, 2], out.dropped[line, 3] = records[first, OPENED], place
    pop(waiting, record, records[first, INPUT])
    out.counts[1] += 1


@njit(cache=True, nogil=True, _nrt=False)
def take_in(
    waiting: Waiting,
    incoming: Incoming,
    begin: int,
    is_word: bool,
    completes_sets: bool,
    at_most: int,
    out: Outgoing,
) -> tuple[int, int]:
    """Takes in tuples from number `begin` on; returns how far it came, and whether there is room for no more.

    Without `completes_sets` tuples wait that did so before, no matter what else waits. There is room for openings: the
    caller has looked.
    """
    tuples, _, keys, keys_trace = waiting
    batch, input_of, row_of = incoming
    inputs = (keys.records.shape[1] - QUEUES) // 2
    mask, seed = len(keys.buckets) - 1, keys.header[SEED]
    for t in range(begin, len(batch.keys)):
        if tuples.header[N] == len(tuples.records) or keys.header[N] == len(keys.records):
            return t, FULL
        key, input_, place, row = key_of(batch, t), input_of[t], batch.offsets[t], row_of[t]
        record = first_of_key(keys, batch, is_word, key, seed, mask)
        if completes_sets and record >= 0 and completes(keys, record, input_, inputs):
            line = out.counts[0]
            out.counts[0] += 1
            out.rows[line, input_], out.places[line, input_] = row, place
            for i in range(inputs):
                if i != input_:
                    slot = keys.records[record, QUEUES + 2 * i]
                    out.rows[line, i], out.places[line, i] = tuples.records[slot, ROW], tuples.records[slot, OPENED]
                    pop(waiting, record, i)
            if keys.records[record, ROWS] == 0:
                drop_window(keys, keys_trace, record, NO_START)
            continue
        if record < 0:
            record = add_key(keys, keys_trace, key, place)
        slot = push(waiting, record, input_, place, row)
        out.fresh[out.counts[2], 0], out.fresh[out.counts[2], 1] = slot, place
        out.counts[2] += 1
        if at_most >= 0 and keys.records[record, ROWS] > at_most:
            drop_oldest(waiting, record, inputs, out, place)
    return len(batch.keys), DONE


# ---------------------------------------------------------------------- footprints


@njit(cache=True, nogil=True, _nrt=False)
def oldest_unsaved(tuples: State) -> int:
    """Returns the first tuple that waits and has no footprint, -1 if there is none; drops openings before it."""
    records, header, openings = tuples.records, tuples.header, tuples.openings
    while header[OPENINGS_HEAD] < header[OPENINGS_TAIL]:
        at = header[OPENINGS_HEAD] % len(openings)
        slot = openings[at, 0]
        if records[slot, OPENED] == openings[at, 1] and records[slot, POS] < 0:
            return slot
        header[OPENINGS_HEAD] += 1
    return NONE


@njit(cache=True, nogil=True, _nrt=False)
def save_oldest_tuples(tuples: State, trace: Trace, page: Page, written: int, bounds: LimitBounds) -> int:
    """Saves the oldest tuples while a bound asks; returns how many are on the page then, where so many were before.

    The extent that is bounded is that of footprints; results behind the oldest tuple without one are no more than what
    is replayed. No tuple is written twice.
    """
    records = tuples.records
    while written < min(len(page.records), bounds.budget):
        position = page.position + written
        unsaved, saved = oldest_unsaved(tuples), oldest_footprint(tuples)
        replay = page.input_end - records[unsaved, OPENED] if unsaved >= 0 else 0
        since = records[unsaved, SINCE] if unsaved >= 0 else position
        first = records[saved, POS] if saved >= 0 else position
        is_old = saved >= 0 and first < page.position
        read = position - min(since, first)
        slot = NONE
        if replay > bounds.replay:
            slot = unsaved
        elif is_old and position - first > bounds.extent:
            slot = saved
        elif read * bounds.extent_cost + replay * bounds.replay_cost > bounds.cost:
            if unsaved >= 0 and (since <= first or replay * bounds.replay_cost >= read * bounds.extent_cost):
                slot = unsaved
            elif is_old:
                slot = saved
        if slot < 0:
            break
        leave_footprint(tuples, trace, slot, page, written)
        written += 1
    return written


@njit(cache=True, nogil=True, _nrt=False)
def save_slow_tuples(tuples: State, trace: Trace, page: Page, row: int, slow: SlowBounds) -> int:
    """Saves tuples that have waited for long, from this row of the page on; returns how many.

    Footprints are written again in their order only: with an older one of another tuple before it, a recovery would
    have to read as much.
    """
    records = tuples.records
    many = 0
    while many < min(len(page.records) - row, slow.budget):
        slot = oldest_unsaved(tuples)
        if slot < 0 or records[slot, OPENED] >= slow.opened_before:
            slot = oldest_footprint(tuples)
            if slot < 0 or records[slot, OPENED] >= slow.opened_before or records[slot, POS] >= slow.written_before:
                break
        leave_footprint(tuples, trace, slot, page, row + many)
        many += 1
    return many
