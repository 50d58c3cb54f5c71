"""Where the columns of state, row and results lie, so that a compiled function has them as attributes.

The state of a key is the record of an open window: 64-bit words, one for each column, then a byte for each that says
whether it is null. A result lies in such words, too. Kernels see the words, the function sees the same memory as a
record with fields. What a row has is copied into records once a batch, the columns that the function names only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from strandline.arrow_types import decimal_of
from strandline.operators.kernels.arrow_words import BYTES, FLOATS, INTEGERS, WORDS
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

    def dtype(self, *more: tuple[str, int]) -> np.dtype[Any]:
        """Returns the type of a record with these words; `more` are names of further words."""
        names = [*self.words, *(NULL + name for name in self.words), *(name for name, _ in more)]
        formats = [field_type(kind) for _, kind in self.columns] + [np.bool_] * len(self.columns)
        offsets = [word * _WORD for word in self.words.values()]
        offsets += [self.nulls_at * _WORD + i for i in range(len(self.columns))]
        return np.dtype(
            {
                "names": names,
                "formats": [*formats, *([np.int64] * len(more))],
                "offsets": [*offsets, *(word * _WORD for _, word in more)],
                "itemsize": self.width * _WORD,
            },
            align=True,
        )


@dataclass(frozen=True)
class StateLayout(WordLayout):
    """The state of a key inside of the record of its window."""

    begin: int = STATE_BEGIN

    @property
    def record(self) -> np.dtype[Any]:
        """A record as the function sees it."""
        return self.dtype((COUNT, ROWS))

    @property
    def checks(self) -> tuple[Check, ...]:
        """The limits to check after a call; a column that is saved wider than it is declared may have any value."""
        return _checks(tuple((name, stored_kind(kind)) for name, kind in self.columns), self.begin)


@dataclass(frozen=True)
class ResultLayout(WordLayout):
    """A result: its key, its time, its columns."""

    begin: int = RESULT_BEGIN

    @property
    def record(self) -> np.dtype[Any]:
        """A result as the function sees it."""
        return self.dtype()

    @property
    def checks(self) -> tuple[Check, ...]:
        """The limits to check after a call."""
        return _checks(self.columns, self.begin)


def row_type(types: Mapping[str, str], names: Sequence[str], asked: Sequence[str]) -> np.dtype[Any]:
    """Returns the type of a row as the function sees it: its columns, and whether those are null of which it asks."""
    fields: list[tuple[str, Any]] = [(name, field_type(types[name])) for name in names]
    return np.dtype([*fields, *((NULL + name, np.bool_) for name in asked), ("_", np.uint8)], align=True)
