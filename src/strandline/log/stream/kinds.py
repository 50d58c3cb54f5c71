"""The kinds of tuples in a stream: results are what readers get, the others are for recovery, or a guess at results."""

from __future__ import annotations

import enum

import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import KIND


class Kind(enum.IntEnum):
    """The meaning of a tuple."""

    RESULT = 0
    G_OPEN = 1
    """The state of a window that opened."""
    G_CHECK = 2
    """The state of a window that had been saved before."""
    CLOSED = 3
    """A window that closed and has no result: its footprints do not count any more."""
    TENTATIVE = 4
    """A tuple that would be a result if no input were missing."""
    UNDO = 5
    """All tentative tuples of the partition before it are void."""
    REC_DONE = 6
    """Reconciliation done: what was void is corrected."""


def is_result(table: pa.Table) -> pa.ChunkedArray:
    """Returns which of the tuples are results."""
    return pc.equal(table.column(KIND), int(Kind.RESULT))


def is_closed(table: pa.Table) -> pa.ChunkedArray:
    """Returns which of the tuples say that a window closed: results, and windows without one."""
    return pc.or_(is_result(table), pc.equal(table.column(KIND), int(Kind.CLOSED)))


def is_footprint(table: pa.Table) -> pa.ChunkedArray:
    """Returns which of the tuples hold the state of a window."""
    kinds = table.column(KIND)
    return pc.or_(pc.equal(kinds, int(Kind.G_OPEN)), pc.equal(kinds, int(Kind.G_CHECK)))


def is_tentative(table: pa.Table) -> pa.ChunkedArray:
    """Returns which of the tuples are tentative results, void or not."""
    return pc.equal(table.column(KIND), int(Kind.TENTATIVE))


def only_results(table: pa.Table) -> pa.Table:
    """Returns the results among the tuples; the table itself if they are all results, which costs next to nothing."""
    return table if not pc.max(table.column(KIND)).as_py() else table.filter(is_result(table))
