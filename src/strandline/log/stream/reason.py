"""Why tuples are in the side log and not in a partition; each block there holds tuples of one reason.

The name of a block says it, before its ending: `late/<first>-<unique>.ahead.parquet`. Late tuples, which were there
first, have no such word.
"""

from __future__ import annotations

import re
from typing import Final

LATE: Final = "late"
"""Older than the boundary that stood when their batch began."""
AHEAD: Final = "ahead"
"""Further in the future than `max_ahead`, by the clock of the writer of the batch."""
TIME: Final = "time"
"""At a time with which nothing can be computed: at the edge of the 64-bit range, or outside of the years 1 to 9999."""
KEY: Final = "key"
"""With a key that is longer than operators can hold."""

VALUE: Final = "value"
"""With which a `where` or `select` cannot compute, or with a value that is too long for the aggregate that reads it."""
OVERFLOW: Final = "overflow"
"""Not tuples: windows that have no result, because a sum does not fit its 64 bits, or 38 digits."""

INCOMPLETE: Final = "incomplete"
"""Not tuples: windows that closed in a recovery which does not replay, without the tuples that it left out."""

FUNCTION: Final = "function"
"""Tuples and keys for which a keyed function raised, or returned what it must not."""
PROCESS: Final = "process"
"""Tuples over which `process` of a user's class raised."""
WHERE: Final = "where"
"""Not tuples: pairs for which the condition of a join raised."""
BARRIER: Final = "barrier"
"""Of whose key more waited in a barrier than `at_most` allows."""

IN_NAME: Final = r"\.([a-z_]+)\.parquet$"


def reason_of(file: str) -> str:
    """Returns the reason that the name of a block of the side log says."""
    found = re.search(IN_NAME, file)
    return found[1] if found else LATE


def ending(reason: str | None) -> str:
    """Returns the ending of the name of a block."""
    return ".parquet" if reason in (None, LATE) else f".{reason}.parquet"
