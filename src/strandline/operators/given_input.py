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
