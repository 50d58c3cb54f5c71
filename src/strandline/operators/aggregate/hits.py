"""Which tuple came to which window, noted by the loops over tuples for the aggregates that they do not compute.

A window that is met gets a number, which lies in its record until the loop is through (0: it has none), and what its
record refers to is noted with it: the record may be gone by then. That two sessions became one is noted, too.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

from strandline.operators.kernels.kernel_cache import njit
from strandline.operators.open_windows.arrays import State
from strandline.operators.open_windows.trace import HITS, NUMBERS, Trace


@njit(inline="always", _nrt=False)
def number_of(state: State, trace: Trace, slot: int, word: int, sketches: int) -> int:
    """Returns the number of a window; gives it the next one, noting what its sketches are, if it has none."""
    records = state.records
    if records[slot, word] == 0:
        place = trace.counts[NUMBERS]
        trace.counts[NUMBERS] += 1
        records[slot, word] = place + 1
        trace.numbered[place, 0] = slot
        for i in range(sketches):
            trace.numbered[place, 1 + i] = records[slot, word + 1 + i]
    return records[slot, word]  # type: ignore[no-any-return]


@njit(inline="always", _nrt=False)
def note_hit(state: State, trace: Trace, slot: int, word: int, sketches: int, row: int) -> None:
    """Notes that a tuple came to a window."""
    place = trace.counts[HITS]
    trace.hits[place, 0] = number_of(state, trace, slot, word, sketches)
    trace.hits[place, 1] = row
    trace.counts[HITS] += 1


@njit(inline="always", _nrt=False)
def note_join(state: State, trace: Trace, into: int, other: int, word: int, sketches: int) -> None:
    """Notes that a session was swallowed by another: its number comes as a negative row."""
    place = trace.counts[HITS]
    trace.hits[place, 0] = number_of(state, trace, into, word, sketches)
    trace.hits[place, 1] = -number_of(state, trace, other, word, sketches) - 1
    trace.counts[HITS] += 1
