"""Which parts of the state a step has changed, so that the hand-over is of the size of the work.

A part is listed when it is touched for the first time, without a branch: whether it is the first time is anybody's
guess, and wrong guesses cost more. So every list has room for one entry that is written and not counted.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import NamedTuple

from strandline.operators.kernels.kernel_arrays import Bytes, Int32s, Int64s
from strandline.operators.kernels.kernel_cache import njit


class Trace(NamedTuple):
    """Lists of what was touched, marks of what is listed, and what loops count and note."""

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
