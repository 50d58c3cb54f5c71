"""What kernels work on: plain arrays, grouped by what they are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from strandline.operators.kernel_arrays import Bytes, Float64s, Int32s, Int64s, sealed


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


class Trace(NamedTuple):
    """Which parts of the state a step has changed, so that the hand-over is of the size of the work."""

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


def sealed_batch(batch: Batch) -> Batch:
    """The batch as kernels know it: see `sealed`."""
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
