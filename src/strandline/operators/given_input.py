"""The input of an operator that a user has written, as its stream is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class GivenInput:
    """Types of all columns by name, key columns, time column."""

    columns: Mapping[str, Any]
    key: tuple[str, ...]
    time: str
    lateness: int | None
    """Of one stream; of several, whose tuples come in the order of their times, it is 0."""

    def type_of(self, column: str) -> str:
        """Returns Spark's name of a column's type; of a nested type only which kind of type it is."""
        kind = self.columns[column]
        return kind if isinstance(kind, str) else str(kind["type"])
