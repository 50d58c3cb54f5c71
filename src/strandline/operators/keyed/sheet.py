"""The output of the loops of keyed operators, what their functions return, and their own reasons to return."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from strandline.operators.kernels.kernel_arrays import Int32s, Int64s

EMIT: Final = 1
"""A result is what `out` has now; 2 * EMIT: `out[0]` and `out[1]`."""
CLOSE: Final = 1 << 16
"""The state of the key is forgotten; the next tuple of the key begins a new one."""
EMIT_MAX: Final = 1024
"""Results of one call at most."""

DONE, FULL, FLUSH, REFUSED = range(4)
"""Why a loop returns: all is done; no room for another key; no room for results; a call returned what it must not."""

ROW, SLOT, RESULTS, CLOSINGS, DUE_NEXT, DUE_END, EXPIRING, RETURNED = range(8)
"""Places in `Sheet.at`: the tuple and the record at hand, how many results and closings there are, which of the keys
that are due are not through, whether the call at hand is for one of them, and what it returned."""
PLACES: Final = 8
CLOSING_WORDS: Final = 4
"""Of a key that closed: word and place of the key, the tuple that opened it, the end of its time."""


class Sheet(NamedTuple):
    """The output of a loop."""

    results: Int64s
    outs: Any
    """The same memory as records."""
    closings: Int64s
    """Keys that closed and have a footprint."""
    before: Int64s
    """The words of the state at hand, as they were before the call."""
    due: Int32s
    """Records of keys that expire, in order."""
    at: Int64s
