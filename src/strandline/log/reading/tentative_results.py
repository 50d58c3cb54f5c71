"""The tuples of an operator with a bound beside its results: tentative ones that count, and what became of others.

A tentative tuple counts if no undo stands behind it and its time is not before the stable boundary, up to which all
results are there. The state of the log knows both, so nothing is read to find out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import KIND, OFFSET
from strandline.log.operator_state.guesses import Guesses
from strandline.log.stream.kinds import Kind, is_tentative
from strandline.log.stream.log import END, Log

TENTATIVE = "_tentative"
"""The column that is true for a result that is only tentative."""
CHANGES = {Kind.RESULT: "stable", Kind.TENTATIVE: "tentative", Kind.UNDO: "undo", Kind.REC_DONE: "rec_done"}
"""The kinds that a reader of tentative results gets, and their names."""


def is_counting(table: pa.Table, guesses: Guesses | None, time: str) -> pa.ChunkedArray:
    """Returns which of the tuples, as the log has them, are tentative and count; `time` is their time's column."""
    if guesses is None:
        return pa.chunked_array([pa.repeat(pa.scalar(False), len(table))])
    found = pc.and_(is_tentative(table), pc.greater_equal(table.column(OFFSET), guesses.first))
    if guesses.since is None:
        return found
    return pc.and_(found, pc.greater_equal(table.column(time).cast(pa.int64()), guesses.since))


def changes(
    log: Log, partition: int, first: int | None = None, end: int = END, columns: Sequence[str] | None = None
) -> Iterator[pa.Table]:
    """Yields all changes to the results of a partition, in order: `_kind` is one of the words of `CHANGES`.

    The tables have the columns, then `_offset` and `_kind`.
    """
    names = list(log.spec.columns if columns is None else columns)
    for table in log.read(partition, first, end, names):
        yield changes_in(table)


@cache
def _words() -> pa.Array:
    """Returns the name of each kind; made when it is asked for, because an array of Python's texts loads pandas."""
    return pa.array([CHANGES.get(kind) for kind in Kind], pa.string())


def changes_in(table: pa.Table) -> pa.Table:
    """Returns the changes of results among tuples as the log has them; `_kind` is one of the words of `CHANGES`."""
    kinds = table.column(KIND).to_numpy()
    shown = np.isin(kinds, [int(kind) for kind in CHANGES])
    told = _words().take(pa.array(kinds[shown].astype(np.int64)))
    found = table.filter(pa.array(shown))
    return found.set_column(found.column_names.index(KIND), KIND, told)
