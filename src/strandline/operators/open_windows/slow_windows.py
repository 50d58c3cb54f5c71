"""The policy of slow windows: G-checks for those that have been open for long, and for no others.

Which windows are due is found without a look at the others, from two lists. The queue of footprints has them by the age
of their footprints, and every entry is passed once: a slow window gets its G-check, one that is not slow yet is left
to the other list. That has windows by their opening; each is looked at once, when it has become slow. If its footprint
is young enough then, the queue has not passed it, and will find it.
"""

# mypy: disable-error-code="call-overload,no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from typing import NamedTuple

from strandline.operators.kernels.kernel_arrays import Int32s
from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.arrays import State
from strandline.operators.open_windows.record import (
    OPENED,
    OPENINGS_HEAD,
    OPENINGS_TAIL,
    PASSED,
    POS,
    QUEUE_HEAD,
    QUEUE_TAIL,
    TICKET,
)
from strandline.operators.open_windows.trace import Trace
from strandline.operators.open_windows.window_footprints import Page, leave_footprint
from strandline.operators.operator import Limits, SlowLimits


class SlowBounds(NamedTuple):
    """`SlowLimits` as kernels take them."""

    opened_before: int
    written_before: int
    budget: int

    @classmethod
    def of(cls, limits: Limits, page: Page, written: int) -> SlowBounds:
        """Returns the bounds that these limits set to slow windows, after so many other G-checks on the page."""
        slow = limits.slow or SlowLimits(0, 0, 0)
        before = min(slow.written_before, page.position)  # nothing is written twice
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
