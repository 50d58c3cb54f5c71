"""Footprints: which window is saved next, and the queue of those that are, oldest first.

An entry of the queue outlives what it stands for: a record's ticket says which entry is its own.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import NamedTuple

from strandline.operators.kernels.kernel_arrays import Int32s, Int64s
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.arrays import State
from strandline.operators.open_windows.record import (
    CHOSEN,
    NONE,
    OPENED,
    PASSED,
    POS,
    QUEUE_HEAD,
    QUEUE_TAIL,
    TICKET,
    T,
)
from strandline.operators.open_windows.trace import Trace, touch_record
from strandline.operators.open_windows.window_records import copy_row
from strandline.operators.operator import Limits


class Page(NamedTuple):
    """Where footprints go that are made together."""

    records: Int64s
    """Row i is what the i-th of them saves."""
    position: int
    """The output offset of the first."""
    input_end: int
    """They hold the input tuples before this place."""


class LimitWords(NamedTuple):
    """`Limits` as kernels take them: numbers of one type each."""

    extent: float
    replay: float
    cost: float
    extent_cost: float
    replay_cost: float
    budget: int

    @classmethod
    def of(cls, limits: Limits) -> LimitWords:
        """Returns the bounds that are these limits."""
        return cls(
            float(limits.extent),
            float(limits.replay),
            float(limits.cost),
            float(limits.extent_cost),
            float(limits.replay_cost),
            int(limits.budget),
        )


@njit(_nrt=False)
def leave_footprint(state: State, trace: Trace, slot: int, page: Page, row: int) -> None:
    """Saves a window: its record goes to this row of the page, the window to the end of the queue."""
    records, header = state.records, state.header
    touch_record(trace, slot)
    records[slot, T] = page.input_end
    records[slot, POS] = page.position + row
    ticket = header[QUEUE_TAIL]
    header[QUEUE_TAIL] += 1
    records[slot, TICKET] = ticket
    state.queue[ticket % len(state.queue)] = slot
    copy_row(page.records, row, records, slot)


@njit(inline="always", _nrt=False)
def oldest_footprint(state: State) -> int:
    """Returns the window with the oldest footprint, -1 if there is none; drops entries of windows that have gone."""
    records, header = state.records, state.header
    while header[QUEUE_HEAD] < header[QUEUE_TAIL]:
        slot = state.queue[header[QUEUE_HEAD] % len(state.queue)]
        if records[slot, TICKET] == header[QUEUE_HEAD]:
            return slot
        header[QUEUE_HEAD] += 1
    return -1


@njit(cache=True, nogil=True, _nrt=False)
def still_open(state: State, fresh: Int32s, chosen: Int32s) -> int:
    """Fills `chosen`, from its end, with those of `fresh` that are open and have no footprint; returns how many.

    Each comes once, in the order they were opened in. Backwards, because the last entry of a record is the one of the
    window that is in it now. T of a window that was chosen becomes CHOSEN.
    """
    records = state.records
    count = 0
    for i in range(len(fresh) - 1, -1, -1):
        slot = fresh[i]
        if records[slot, OPENED] >= 0 and records[slot, T] == NONE:
            records[slot, T] = CHOSEN
            count += 1
            chosen[len(chosen) - count] = slot
    return count


@njit(cache=True, nogil=True, _nrt=False)
def save_open(state: State, trace: Trace, slots: Int32s, page: Page) -> None:
    """Saves each of these windows, in this order."""
    for i in range(len(slots)):
        leave_footprint(state, trace, slots[i], page, i)


@njit(cache=True, nogil=True, _nrt=False)
def save_oldest(state: State, trace: Trace, page: Page, written: int, begin: int, bounds: LimitWords) -> int:
    """Saves windows, those with the oldest footprint first, while one of the bounds is exceeded.

    These are G-checks; returns how many are on the page then, on which `written` were before. What has a footprint at
    output offset `begin` or behind it was saved in this step already.
    """
    records = state.records
    while written < bounds.budget:
        slot = oldest_footprint(state)
        if slot < 0 or records[slot, POS] >= begin:  # none is left that this step has not saved
            break
        extent = page.position + written - records[slot, POS]
        replay = page.input_end - records[slot, T]
        cost = extent * bounds.extent_cost + replay * bounds.replay_cost
        if extent <= bounds.extent and replay <= bounds.replay and cost <= bounds.cost:
            break
        leave_footprint(state, trace, slot, page, written)
        written += 1
    return written


@njit(cache=True, nogil=True, _nrt=False)
def oldest(state: State) -> int:
    """Returns what `oldest_footprint` returns, to callers outside of kernels."""
    return oldest_footprint(state)


@njit(cache=True, nogil=True, _nrt=False)
def renumber_queue(state: State, queue: Int32s) -> None:
    """Moves the entries that still stand for something into another queue, from ticket 0 on."""
    records, header = state.records, state.header
    kept, passed = 0, 0
    for ticket in range(header[QUEUE_HEAD], header[QUEUE_TAIL]):
        if ticket == header[PASSED]:
            passed = kept
        slot = state.queue[ticket % len(state.queue)]
        if records[slot, TICKET] == ticket:
            queue[kept] = slot
            records[slot, TICKET] = kept
            kept += 1
    header[PASSED] = kept if header[PASSED] >= header[QUEUE_TAIL] else passed
    header[QUEUE_HEAD], header[QUEUE_TAIL] = 0, kept
