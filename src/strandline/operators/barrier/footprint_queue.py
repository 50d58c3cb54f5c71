"""Which tuples of a barrier get a footprint next: two queues, of tuples by arrival and of footprints by offset.

Entries of both outlive what they stand for; a search for the oldest passes over those once.
"""

# mypy: disable-error-code="no-any-return,no-untyped-call,untyped-decorator"

from __future__ import annotations

from strandline.operators.barrier.matching import (
    ARRIVALS,
    ARRIVED,
    AT,
    INPUT_END,
    NONE,
    POS,
    PRINTS,
    SAVED,
    SINCE,
    Touched,
    WaitingArrays,
)
from strandline.operators.kernels.kernel_arrays import Float64s, Int64s
from strandline.operators.kernels.kernel_cache import njit


@njit(cache=True, nogil=True, _nrt=False)
def oldest_unsaved(w: WaitingArrays) -> int:
    """Returns the record of the first tuple that waits and has no footprint; -1 if there is none."""
    while w.header[ARRIVED] < w.header[ARRIVALS]:
        at = w.header[ARRIVED] % len(w.arrivals)
        slot = w.arrivals[at, 0]
        if w.tuples[slot, AT] == w.arrivals[at, 1] and w.tuples[slot, POS] < 0:
            return slot
        w.header[ARRIVED] += 1
    return NONE


@njit(cache=True, nogil=True, _nrt=False)
def oldest_print(w: WaitingArrays) -> int:
    """Returns the record of the tuple that waits and has the oldest footprint; -1 if there is none."""
    while w.header[SAVED] < w.header[PRINTS]:
        at = w.header[SAVED] % len(w.prints)
        slot = w.prints[at, 0]
        if w.tuples[slot, AT] >= 0 and w.tuples[slot, POS] == w.prints[at, 1]:
            return slot
        w.header[SAVED] += 1
    return NONE


@njit(inline="always", _nrt=False)
def note_print(w: WaitingArrays, slot: int, position: int, touched: Touched) -> None:
    """Notes that the tuple gets a footprint at this output offset."""
    w.tuples[slot, POS] = position
    touched.tuples[slot] = 1
    tail = w.header[PRINTS] % len(w.prints)
    w.prints[tail, 0], w.prints[tail, 1] = slot, position
    w.header[PRINTS] += 1


@njit(cache=True, nogil=True, _nrt=False)
def note_prints(w: WaitingArrays, slots: Int64s, positions: Int64s, touched: Touched) -> None:
    """Notes footprints of several tuples, in the order of their offsets."""
    for i in range(len(slots)):
        note_print(w, slots[i], positions[i], touched)


@njit(cache=True, nogil=True, _nrt=False)
def save_oldest(w: WaitingArrays, begin: int, written: int, limits: Float64s, touched: Touched, chosen: Int64s) -> int:
    """Notes footprints of the oldest tuples from the output offset `begin` on, behind so many, while a limit is
    exceeded; how many there are then.

    Limits are those of the extent, of the replay, of both by cost, their unit costs, and how many may be written. The
    extent that is bounded is that of footprints; results behind the oldest tuple without one are no more than what is
    replayed. No tuple is written twice.
    """
    position, end = begin + written, w.header[INPUT_END]
    while position - begin < min(len(chosen), limits[5]):
        unsaved, saved = oldest_unsaved(w), oldest_print(w)
        replay = end - w.tuples[unsaved, AT] if unsaved >= 0 else 0
        since = w.tuples[unsaved, SINCE] if unsaved >= 0 else position
        first = w.tuples[saved, POS] if saved >= 0 else position
        is_old = saved >= 0 and first < begin
        read = position - min(since, first)
        slot = NONE
        if replay > limits[1]:
            slot = unsaved
        elif is_old and position - first > limits[0]:
            slot = saved
        elif read * limits[3] + replay * limits[4] > limits[2]:
            if unsaved >= 0 and (since <= first or replay * limits[4] >= read * limits[3]):
                slot = unsaved
            elif is_old:
                slot = saved
        if slot < 0:
            break
        chosen[position - begin] = slot
        note_print(w, slot, position, touched)
        position += 1
    return position - begin


@njit(cache=True, nogil=True, _nrt=False)
def save_slow(w: WaitingArrays, position: int, slow: Int64s, touched: Touched, chosen: Int64s) -> int:
    """Notes footprints of tuples that have waited for long, from this output offset on; how many.

    `slow` is the place before which such tuples came, the output offset before which a footprint of theirs is too old,
    and how many may be written. Footprints are written again in their order only: with an older one of another tuple
    before it, a recovery would have to read as much.
    """
    many = 0
    while many < min(len(chosen), slow[2]):
        slot = oldest_unsaved(w)
        if slot < 0 or w.tuples[slot, AT] >= slow[0]:
            slot = oldest_print(w)
            if slot < 0 or w.tuples[slot, AT] >= slow[0] or w.tuples[slot, POS] >= slow[1]:
                break
        chosen[many] = slot
        note_print(w, slot, position + many, touched)
        many += 1
    return many
