"""Where the columns of state, row and results lie, so that a compiled function has them as attributes.

The state of a key is the record of an open window: 64-bit words, one for each column, then a byte for each that says
whether it is null. A result lies in such words, too. Kernels see the words, the function sees the same memory as a
record with fields. What a row has is copied into records once a batch, the columns that the function names only.

The loops around a function write results and keys that closed to a `Sheet`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from strandline.arrow_types import decimal_of
from strandline.operators.kernels.arrow_words import BYTES, FLOATS, INTEGERS, WORDS
from strandline.operators.kernels.kernel_arrays import Int32s, Int64s
from strandline.operators.kernels.wide import WORD_DIGITS_MAX
from strandline.operators.open_windows.record import ROWS, TIMER

Columns = tuple[tuple[str, str], ...]
"""Names and types."""

NULL: Final = "_null_"
"""In front of a column's name: the field that says whether it is null."""
COUNT: Final = "_rows"
"""The field of state that says how many tuples there were before."""
STATE_BEGIN: Final = TIMER + 1
"""The first word of a record that is the function's."""
RESULT_KEY, RESULT_KEY_AT, RESULT_TIME_WORD, RESULT_BEGIN = range(4)
"""The words of a result: its key as in records, its time, then its columns."""
_WORD: Final = 8
_LIMITS: Final = {"byte": 1 << 7, "short": 1 << 15, "integer": 1 << 31}

Check = tuple[int, int, int]
"""A word, and the least and the greatest value that it may have."""
_ANY: Final[Check] = (0, -(1 << 63), (1 << 63) - 1)


def is_computable(kind: str) -> bool:
    """Returns whether functions can have columns of this type."""
    decimal = decimal_of(kind)
    return kind in (*WORDS, *FLOATS, *BYTES) or (decimal is not None and decimal[0] <= WORD_DIGITS_MAX)


def field_type(kind: str) -> type:
    """Returns what a function sees of a column: decimals without their point, dates and timestamps as whole numbers."""
    if kind == "boolean":
        return np.bool_
    return np.float64 if kind in FLOATS else np.int64


def stored_kind(kind: str) -> str:
    """Returns the type in which a column of state is saved: as wide as the function may have made it."""
    if kind in FLOATS:
        return "double"
    return "long" if kind in INTEGERS else kind


def _checks(columns: Columns, begin: int) -> tuple[Check, ...]:
    """Returns what has to be looked at behind a call: whole numbers that must fit less than a word."""
    found = []
    for word, (_, kind) in enumerate(columns, begin):
        decimal = decimal_of(kind)
        if decimal is not None:
            found.append((word, 1 - 10 ** decimal[0], 10 ** decimal[0] - 1))
        elif kind in _LIMITS or kind == "date":
            limit = _LIMITS.get(kind, 1 << 31)
            found.append((word, -limit, limit - 1))
    return tuple(found) or (_ANY,)


@dataclass(frozen=True)
class WordLayout:
    """Columns in words from `begin` on, then the bytes that say which of them are null."""

    columns: Columns
    begin: int

    @property
    def nulls_at(self) -> int:
        """The word in which the bytes for nulls begin."""
        return self.begin + len(self.columns)

    @property
    def width(self) -> int:
        """Words, those before the columns among them."""
        return self.nulls_at + -(-len(self.columns) // _WORD)

    @cached_property
    def words(self) -> dict[str, int]:
        """Where each column is."""
        return {name: word for word, (name, _) in enumerate(self.columns, self.begin)}

    @cached_property
    def texts(self) -> list[int]:
        """The words that refer to bytes."""
        return [self.words[name] for name, kind in self.columns if kind in BYTES]

    @property
    def fields(self) -> list[tuple[str, type, int]]:
        """The fields of a record as the function sees it: name, type, and the byte where it begins."""
        values = [(name, field_type(kind), self.words[name] * _WORD) for name, kind in self.columns]
        return [*values, *((NULL + name, np.bool_, self.nulls_at * _WORD + i) for i, name in enumerate(self.words))]

    @property
    def record(self) -> np.dtype[Any]:
        """A record as the function sees it."""
        names, formats, offsets = zip(*self.fields, strict=True)
        return np.dtype(
            {"names": names, "formats": formats, "offsets": offsets, "itemsize": self.width * _WORD}, align=True
        )

    @property
    def checks(self) -> tuple[Check, ...]:
        """The limits to check after a call."""
        return _checks(self.columns, self.begin)


@dataclass(frozen=True)
class StateLayout(WordLayout):
    """The state of a key inside of the record of its window."""

    begin: int = STATE_BEGIN

    @property
    def fields(self) -> list[tuple[str, type, int]]:
        """The fields of a record, the number of tuples among them."""
        return [*super().fields, (COUNT, np.int64, ROWS * _WORD)]

    @property
    def checks(self) -> tuple[Check, ...]:
        """The limits to check after a call; a column that is saved wider than it is declared may have any value."""
        return _checks(tuple((name, stored_kind(kind)) for name, kind in self.columns), self.begin)


def row_type(types: Mapping[str, str], names: Sequence[str], asked: Sequence[str]) -> np.dtype[Any]:
    """Returns the type of a row as the function sees it: its columns, and whether those are null of which it asks."""
    fields: list[tuple[str, Any]] = [(name, field_type(types[name])) for name in names]
    return np.dtype([*fields, *((NULL + name, np.bool_) for name in asked), ("_", np.uint8)], align=True)


# ---------------------------------------------------------------------- the sheet: what loops write

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
