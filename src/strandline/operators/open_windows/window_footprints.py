"""Footprints: which window is saved next, and the queue of those that are, oldest first.

An entry of the queue outlives what it stands for: a record's ticket says which entry is its own.

The policy of slow windows has G-checks for those that have been open for long, and for no others. Which of them are due
is found without a look at the others, from two lists. The queue has them by the age of their footprints, and every
entry is passed once: a slow window gets its G-check, one that is not slow yet is left to the other list. That has
windows by their opening; each is looked at once, when it has become slow. If its footprint is young enough then, the
queue has not passed it, and will find it.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import NamedTuple

from strandline.operators.kernels.kernel_arrays import Int32s, Int64s
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.arrays import State, Trace, touch_record
from strandline.operators.open_windows.record import (
    CHOSEN,
    NONE,
    OPENED,
    OPENINGS_HEAD,
    OPENINGS_TAIL,
    PASSED,
    POS,
    QUEUE_HEAD,
    QUEUE_TAIL,
    TICKET,
    T,
)
from strandline.operators.open_windows.window_records import copy_row
from strandline.operators.operator import Limits, SlowLimits


class Page(NamedTuple):
    """Where footprints go that are made together."""

    records: Int64s
    """Row i is what the i-th of them saves."""
    position: int
    """The output offset of the first."""
    input_end: int
    """They hold the input tuples before this place."""


class LimitBounds(NamedTuple):
    """`Limits` as kernels take them: numbers of one type each."""

    extent: float
    replay: float
    cost: float
    extent_cost: float
    replay_cost: float
    budget: int

    @classmethod
    def of(cls, limits: Limits) -> LimitBounds:
        """Returns the bounds that are these limits."""
        extent, replay, cost = float(limits.extent), float(limits.replay), float(limits.cost)
        return cls(extent, replay, cost, float(limits.extent_cost), float(limits.replay_cost), int(limits.budget))


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
def save_oldest(state: State, trace: Trace, page: Page, written: int, begin: int, bounds: LimitBounds) -> int:
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


# ---------------------------------------------------------------------- the queue


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


# ---------------------------------------------------------------------- slow windows


class SlowBounds(NamedTuple):
    """`SlowLimits` as kernels take them."""

    opened_before: int
    written_before: int
    budget: int

    @classmethod
    def of(cls, limits: Limits, position: int, written: int) -> SlowBounds:
        """Returns the bounds for slow windows, after so many other G-checks from this output offset on."""
        slow = limits.slow or SlowLimits(0, 0, 0)
        before = min(slow.written_before, position)  # nothing is written twice
        return cls(int(slow.opened_before), int(before), int(limits.slow_budget(written)))


@njit(cache=True, nogil=True, _nrt=False)
def note_openings(state: State, slots: Int32s) -> None:
    """Lists these windows, which were opened after all that are listed. There is room: the caller has looked."""
    header, openings = state.header, state.openings
    for i in range(len(slots)):
        place = header[OPENINGS_TAIL] % len(openings)
        openings[place, 0], openings[place, 1] = slots[i], state.records[slots[i], OPENED]
        header[OPENINGS_TAIL] += 1


@njit(inline="always", _nrt=False)
def became_slow(state: State, slow: SlowBounds) -> int:
    """Returns the first of the listed windows that is slow and due, -1 if there is none; drops those before it."""
    records, header, openings = state.records, state.header, state.openings
    while header[OPENINGS_HEAD] < header[OPENINGS_TAIL]:
        place = header[OPENINGS_HEAD] % len(openings)
        slot = openings[place, 0]
        if openings[place, 1] >= slow.opened_before:
            break
        if records[slot, OPENED] == openings[place, 1]:
            if records[slot, POS] < slow.written_before:
                return slot
            # The queue must not have passed it; it has if the policy was another one before.
            header[PASSED] = min(header[PASSED], records[slot, TICKET])
        header[OPENINGS_HEAD] += 1
    return -1


@njit(inline="always", _nrt=False)
def grew_stale(state: State, slow: SlowBounds) -> int:
    """Returns the next window in the queue that is slow and due, -1 if there is none; passes those before it."""
    records, header = state.records, state.header
    header[PASSED] = max(header[PASSED], header[QUEUE_HEAD])
    while header[PASSED] < header[QUEUE_TAIL]:
        slot = state.queue[header[PASSED] % len(state.queue)]
        if records[slot, TICKET] == header[PASSED]:
            if records[slot, POS] >= slow.written_before:
                break
            if records[slot, OPENED] < slow.opened_before:
                return slot
        header[PASSED] += 1
    return -1


@njit(cache=True, nogil=True, _nrt=False)
def save_slow(state: State, trace: Trace, page: Page, row: int, slow: SlowBounds) -> int:
    """Saves slow windows that are due, from this row of the page on; returns how many."""
    records, header = state.records, state.header
    written = 0
    while written < slow.budget:
        slot, other = became_slow(state, slow), grew_stale(state, slow)
        if slot < 0 or (other >= 0 and records[other, POS] < records[slot, POS]):
            slot = other
        else:
            header[OPENINGS_HEAD] += 1
        if slot < 0:
            break
        leave_footprint(state, trace, slot, page, row + written)
        written += 1
    return written
