"""The record of an open window: a row of 64-bit words. Every kernel and every column of the log maps onto it."""

from __future__ import annotations

from typing import Final

T: Final = 0
"""Its last footprint holds the tuples before this input offset; NONE if it has none."""
POS: Final = 1
"""Output offset of its last footprint."""
TICKET: Final = 2
"""Its place in the queue of footprints."""
OPENED: Final = 3
"""Offset of the tuple that opened it; FREE if there is no window in this record."""
START: Final = 4
"""Offset of the first tuple (count), or time at which the window begins."""
END: Final = 5
"""Offset of the last tuple (count; known when it closes), or time at which the window ends."""
# What every tuple touches lies together, from here on.
LINK: Final = 6
"""The next record of the same bucket (or the next free record)."""
KEY: Final = 7
"""The key itself if it fits a word, else its hash."""
KEY_AT: Final = 8
"""0 or 1 (null) if the key fits a word, else where its bytes lie."""
ROWS: Final = 9
"""Tuples so far."""
STATE: Final = 10
"""The first word of the aggregates' states."""

# Sessions have four words more before the aggregates' states. The sessions of a key are a list in the order of time,
# and only the newest of them is linked into its bucket.
TIMER: Final = STATE
"""The time its timer is set for."""
OLDER: Final = STATE + 1
"""The session of the same key before this one, or NONE."""
NEWER: Final = STATE + 2
"""The session of the same key after this one, or NONE."""
HINT: Final = STATE + 3
"""Of the newest session of a key: where tuples that came far behind it were last found. It may be out of date."""
SESSION_WORDS: Final = 4

FREE: Final = -1
CLOSED: Final = -2
"""OPENED of a mark that recovery leaves for a window it knows to be closed."""
NONE: Final = -1
CHOSEN: Final = -2
"""T of a window that is about to get its first footprint."""
OVERFLOWED: Final = -1
"""Number of values of a sum that does not fit any more; its window has no result."""

# What a bytes reference is: position and length in one word.
LENGTH_BITS: Final = 24
LENGTH_MAX: Final = (1 << LENGTH_BITS) - 1

# The header: numbers of the whole state.
N: Final = 0
"""Open windows."""
FREE_HEAD: Final = 1
USED: Final = 2
"""Records ever used; those above are untouched."""
QUEUE_HEAD: Final = 3
QUEUE_TAIL: Final = 4
TIMERS: Final = 5
"""Entries in the heap of timers."""
BYTES_END: Final = 6
"""Bytes in use."""
INPUT: Final = 7
"""The state holds the input tuples before this offset."""
BYTES_KEPT: Final = 8
"""Bytes that were in use when dead ones were last dropped."""
LAYOUT: Final = 9
"""How windows are found: BY_KEY, BY_START, BY_LIST or UNHASHED."""
FUNCTION: Final = 10
"""The version of the user's function that has made the state, if there is one."""
LISTED: Final = 11
"""True if every open window that has not been found to be slow is among the openings."""
OPENINGS_HEAD: Final = 12
OPENINGS_TAIL: Final = 13
PASSED: Final = 14
"""Entries of the queue before this ticket were looked at: their windows were not slow then, or have gone since."""
SEED: Final = 15
"""By which keys go to buckets."""
HEADER_WORDS: Final = 16

BY_KEY: Final = 0
"""Hashed by their key: all windows of a key are in one bucket."""
BY_START: Final = 1
"""Hashed by key and start."""
BY_LIST: Final = 2
"""The newest session of a key is hashed by the key and leads to the others."""
UNHASHED: Final = 3
"""Not hashed: other records lead to them."""
