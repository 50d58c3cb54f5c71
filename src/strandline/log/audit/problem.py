"""Something that `verify` found wrong, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: which part of the stream, what, where, and what to do."""

    part: Literal["manifest", "milestone", "index", "block", "consumer", "operator"]
    what: str
    file: str
    partition: int | None = None
    first: int | None = None
    """The first offset that is concerned."""
    end: int | None = None
    """The offset behind the last one."""
    todo: str = ""
    follows: tuple[str, ...] = ()
    """Parts that are missing, or cannot be judged, because of it: no problems of their own until it is mended."""
