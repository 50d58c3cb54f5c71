"""The arrays that kernels work on, in groups: state, tuples, what comes out of them, what a step has changed."""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strandline.operators.kernels.arrow_words import bytes_of
from strandline.operators.kernels.kernel_arrays import Bytes, Float64s, Int32s, Int64s, sealed
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.record import LENGTH_BITS
from strandline.operators.operator import Definition


class State(NamedTuple):
    """The open windows of a partition. `floats` is `records` seen as doubles."""

    records: Int64s
    floats: Float64s
    buckets: Int32s
    """Hash table: the first record of each bucket, or -1."""
    header: Int64s
    queue: Int32s
    """Records in the order of their footprints, oldest first; entries outlive what they stand for."""
    timers: Int64s
    """A heap of (end, record), smallest end first."""
    bytes: Bytes
    """Keys and values that do not fit a word."""
    openings: Int64s
    """(record, OPENED) of windows in the order in which they were opened, for the policy of slow windows; entries
    outlive what they stand for."""


class Batch(NamedTuple):
    """Input tuples. Row r of `values` is what the r-th input of the operator reads; `floats` is the same as doubles."""

    keys: Int64s
    key_at: Int64s
    offsets: Int64s
    times: Int64s
    values: Int64s
    floats: Float64s
    valid: Bytes
    bytes: Bytes
    """Positions in here continue those in the state's bytes."""


class Key(NamedTuple):
    """The key of a tuple or a window."""

    word: int
    """The key itself if it fits a word, else its hash."""
    at: int
    """0 or 1 (null) if the key fits a word, else where its bytes lie."""


class Outcome(NamedTuple):
    """The arrays that a loop over tuples fills, as far as `Trace.counts` says."""

    results: Int64s
    """Records of windows that closed."""
    fresh: Int32s
    """Windows that opened, by their records; some of them may be closed by now."""


DONE, FULL = 0, 1
"""How a loop over tuples ends: all rows done; no room for another window (grow, then go on)."""


def sealed_batch(batch: Batch) -> Batch:
    """Returns the batch with every array `sealed`, as kernels know it."""
    return Batch(*(sealed(array) for array in batch))


NO_BATCH = sealed_batch(
    Batch(
        keys=np.empty(0, np.int64),
        key_at=np.empty(0, np.int64),
        offsets=np.empty(0, np.int64),
        times=np.empty(0, np.int64),
        values=np.empty((0, 0), np.int64),
        floats=np.empty((0, 0)),
        valid=np.empty((0, 0), np.uint8),
        bytes=np.empty(0, np.uint8),
    )
)


class BatchBytes:
    """The bytes of keys and values that come together in one batch, and references to them."""

    def __init__(self, first: Bytes, held: int) -> None:
        self._pieces = [first]
        self._end = held + len(first)

    def references(self, column: pa.ChunkedArray, kind: str) -> tuple[Int64s, Bytes]:
        """Returns references to the texts of a column, and validity; adds their bytes."""
        starts, piece, valid = bytes_of(column, kind)
        words = np.where(valid, (starts[:-1] + self._end) << LENGTH_BITS | np.diff(starts), 0)
        self._pieces.append(piece)
        self._end += len(piece)
        return words, valid

    @property
    def bytes(self) -> Bytes:
        """All of them."""
        return self._pieces[0] if len(self._pieces) == 1 else np.concatenate(self._pieces)


def keys_of(definition: Definition, table: pa.Table, held: int) -> tuple[Batch, BatchBytes]:
    """Returns the keys of these rows as a batch, and their bytes, which continue `held` ones."""
    keys, key_at, data = definition.key_codec.encode([table.column(c) for c, _ in definition.key], held)
    return NO_BATCH._replace(keys=keys, key_at=key_at), BatchBytes(data, held)


class Trace(NamedTuple):
    """Which parts of the state a step has changed, so that a hand-over is of the size of the work, and notes of loops.

    A part is listed when it is touched for the first time, without a branch: the processor could only guess whether it
    is the first time, and wrong guesses cost more. So every list has room for one entry that is written and not
    counted. Marks say what is listed.
    """

    record_marks: Bytes
    records: Int32s
    bucket_marks: Bytes
    buckets: Int32s
    timer_marks: Bytes
    timers: Int32s
    counts: Int64s
    """How many records, buckets, timers are listed; then what a kernel has to say."""
    hits: Int64s
    """Numbers of windows and the rows that came to them, for aggregates that are computed behind the loop."""
    numbered: Int64s
    """Of each window that has a number, its record and what that referred to."""


RECORDS, BUCKETS, TIMERS, RESULTS, FRESH, OVERFLOWS, HITS, NUMBERS = range(8)
"""Places in `Trace.counts`: lengths of the lists, results written, windows opened, sums that overflowed, and of the
lists of hits and of windows with a number."""
COUNTS = 8


@njit(inline="always", _nrt=False)
def touch_record(trace: Trace, slot: int) -> None:
    """Lists a record as changed, once."""
    trace.records[trace.counts[RECORDS]] = slot
    trace.counts[RECORDS] += 1 - trace.record_marks[slot]
    trace.record_marks[slot] = 1


@njit(inline="always", _nrt=False)
def touch_bucket(trace: Trace, bucket: int) -> None:
    """Lists a bucket of the hash table as changed, once."""
    trace.buckets[trace.counts[BUCKETS]] = bucket
    trace.counts[BUCKETS] += 1 - trace.bucket_marks[bucket]
    trace.bucket_marks[bucket] = 1


@njit(inline="always", _nrt=False)
def touch_timer(trace: Trace, place: int) -> None:
    """Lists a place in the heap of timers as changed, once."""
    trace.timers[trace.counts[TIMERS]] = place
    trace.counts[TIMERS] += 1 - trace.timer_marks[place]
    trace.timer_marks[place] = 1
