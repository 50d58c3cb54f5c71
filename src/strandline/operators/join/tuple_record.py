"""The record of a kept tuple, and the arrays in which a side keeps its tuples.

The tuples of a side lie in a ring in the order of arrival. Each has a *number* that counts up; records of the numbers
from HEAD to TAIL are there, the tuples among them that are not kept any more are marked. Tuples are found by key in one
of two ways:

- *trails*, where tuples go in the order in which they came (bands, windows of the partition): a bucket of the hash
  table has the number of its newest tuple, and each tuple that of the one before it in the same bucket. Who goes need
  not be taken out: numbers before HEAD end the trail.
- *lists*, for windows of n tuples a key: from the oldest tuple of a key to the newest. Buckets lead to the oldest of
  each key, which knows the newest and how many there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from strandline.operators.join.join_windows import LEFT, RIGHT
from strandline.operators.kernels.kernel_arrays import Bytes, Int32s, Int64s

if TYPE_CHECKING:
    from strandline.operators.join.definition import JoinDefinition

# ---------------------------------------------------------------------- words of a record

ORDINAL: Final = 0
"""Its place in the serialised input; DEAD if it is not kept any more."""
TIME: Final = 1
KEY: Final = 2
"""The key itself if it fits a word, else its hash."""
DEAD: Final = -1
TRAIL_WORDS: Final = 4
"""Of a record on a trail; with one more, the last, for where the bytes of the key lie if it does not fit a word."""
LIST_WORDS: Final = 5
"""Of a record in a list, with one more likewise."""

# On a trail, word 3 is the number of the tuple before, shifted by the bits that the tuple itself has there.
OLDER: Final = 3
FLAG_BITS: Final = 2
MATCHED: Final = 1
NULL: Final = 2
"""The key has a null in it: the tuple is on no trail."""

# In a list, words 3 and 4 are four numbers of 32 bits: places in the view of the record as such.
NEWER: Final = 6
"""The record of the next tuple of the same key, or -1."""
CHAIN: Final = 7
"""Of the oldest of a key: the oldest of the next key in the same bucket, or -1."""
NEWEST: Final = 8
"""Of the oldest of a key: the record of the newest."""
COUNT: Final = 9
"""Of the oldest of a key: how many there are."""

# ---------------------------------------------------------------------- words of a side's header

HEAD, TAIL = 0, 1
ORIGIN: Final = 2
"""The number of the tuple in record 0, or of the one that will be there next in this round."""
SETTLED: Final = 3
"""Outer joins: tuples before this number came out, or never will."""
SAVED: Final = 4
"""Tuples before this number are in footprints."""
LIVE: Final = 5
"""How many are kept."""
FIRST: Final = 6
"""The number of the first tuple that has a payload: the *place* of a tuple is its number, counted from here."""
BYTES_END: Final = 7
BYTES_KEPT: Final = 8
"""Bytes that were in use when dead ones were last dropped."""
INPUT: Final = 9
"""The state holds the tuples before this place (left's header only)."""
SEED: Final = 10
"""By which keys go to buckets."""
HEADER_WORDS: Final = 16


class Side(NamedTuple):
    """The kept tuples of one side. `links` is `records` seen as numbers of 32 bits."""

    records: Int64s
    links: Int32s
    buckets: Int64s
    """On trails, numbers of the newest tuples; with lists, records of the oldest of a key; -1: none."""
    header: Int64s
    bytes: Bytes
    record_marks: Bytes
    """1 where a record was changed in this step."""
    bucket_marks: Bytes


class Arrivals(NamedTuple):
    """New tuples of one side."""

    keys: Int64s
    key_at: Int64s
    """Where the bytes of the key lie among the side's; of a key that fits a word, nothing that matters."""
    nulls: Bytes
    times: Int64s
    ordinals: Int64s


class Pairs(NamedTuple):
    """Room for results. Tuples are named by their places: in kept payloads, new tuples behind them; -1: none."""

    left: Int64s
    right: Int64s
    left_times: Int64s
    right_times: Int64s
    keys: Int64s
    key_at: Int64s
    """Where the bytes of the key lie, `side` says among whose; 1 if a key that fits a word is null, else 0."""
    sides: Bytes
    """The side of the later tuple, or of the only one."""

    @classmethod
    def room(cls, rows: int) -> Pairs:
        """Returns room for so many."""
        return cls._make(np.empty(rows, np.uint8 if name == "sides" else np.int64) for name in cls._fields)

    def rows(self, which: slice | npt.NDArray[Any]) -> Pairs:
        """Returns some of them."""
        return Pairs._make(array[which] for array in self)


# ---------------------------------------------------------------------- rules, as kernels take them


class Rules(NamedTuple):
    """The windows of a join, and what each side keeps: see `JoinWindows`."""

    is_band: bool
    is_partition: bool
    """True if windows are of the partition."""
    meets_any: bool
    fits_word: bool
    low: int
    high: int
    sizes: tuple[int, int]
    outer: tuple[bool, bool]
    reach: tuple[int, int]
    keep: tuple[int, int]
    keeps: tuple[bool, bool]
    keeps_null: tuple[bool, bool]


def rules_of(definition: JoinDefinition) -> Rules:
    """Returns the rules of a join."""
    w, null = definition.windows, (definition.windows.keeps_null(LEFT), definition.windows.keeps_null(RIGHT))
    forms = w.is_band, w.kind == "partition", w.meets_any, definition.fits_word
    return Rules(*forms, w.low, w.high, w.sizes, w.outer, w.reach, w.keep, w.keeps, null)


# ---------------------------------------------------------------------- what a kernel remembers between two calls

ROW: Final = 0
"""The next row of left, of right."""
FOUND: Final = 2
"""Results so far."""
MEETS: Final = 3
"""True if tuples meet at all: in the recovery of an inner join they need not."""
WHO: Final = 4
"""The side that needs more room."""
TOUCHED: Final = 5
"""Nothing that anybody reads."""
AHEAD: Final = 6
"""From here on: how far the look ahead has come on the trail of each of the next tuples."""
AHEAD_MAX: Final = 48
"""Tuples that are looked ahead."""
PROGRESS: Final = AHEAD + AHEAD_MAX
DONE, FULL, GROW = 0, 1, 2
"""FULL without any result: there is not even room for those of one tuple."""
