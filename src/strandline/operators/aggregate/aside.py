"""Values that an operator cannot compute and sets aside: tuples that no kernel takes, windows without a result.

Which tuples and windows these are follows from the input alone, never from batches: what was set aside once is set
aside again in a replay, and nothing of it is in any state.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import OFFSET
from strandline.errors import InputError
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.tuples import Columns
from strandline.operators.aside_tables import AsideTables, unfit_tuples
from strandline.operators.kernels.arrow_words import BYTES, arrow_type, whole, words_of
from strandline.operators.open_windows.record import LENGTH_MAX
from strandline.units import TIME_MAX

Rows = npt.NDArray[np.int64]


class Aside(AsideTables):
    """The tuples and windows that one step has set aside, by reason, in the columns of footprints."""

    def __init__(self, definition: AggregateDefinition) -> None:
        self._definition = definition
        super().__init__()

    def add_windows(self, reason: str, windows: Columns) -> None:
        """Adds windows that closed and have no result."""
        if self.is_ignoring:
            return
        columns = windows.without_result()
        names = [name for name, _ in [*self._definition.result_columns, *self._definition.control_columns]]
        self._keep(reason, pa.table(columns, names=names), f"windows of kind {self._definition.window.kind}")
        self.closed.append(columns[: len(self._definition.result_columns)])

    def add_tuples(self, reason: str, tuples: pa.Table, number: int = 0) -> None:
        """Adds tuples of one of the inputs: key, time in the place of the window's, offset in that of `_input`."""
        if self.is_ignoring:
            return
        d, rows = self._definition, tuples.num_rows
        offset = whole(tuples.column(OFFSET))
        moment = offset
        if d.window.has_times:
            moment = whole(tuples.column(d.times[number])).cast(offset.type).view(arrow_type(d.time_type))
        names = [
            *(name for name, _ in d.result_columns[: len(d.key) + 2]),
            d.control_columns[0][0],
        ]
        columns = [*(whole(tuples.column(c)) for c, _ in d.key), moment, moment, offset]
        where = f"{d.window.kind} window, input offset {offset[0].as_py() if rows else 0}"
        self._keep(reason, pa.table(columns, names=names), where)


def unfit(definition: AggregateDefinition, table: pa.Table) -> Mapping[str, Rows]:
    """Returns the rows that no kernel takes, by reason, each row once; empty, at almost no cost, if there are none."""
    found: dict[str, Rows] = {}
    taken = np.zeros(table.num_rows, bool)

    def note(reason: str, is_wrong: npt.NDArray[np.bool_]) -> None:
        rows = np.flatnonzero(is_wrong & ~taken)
        if len(rows):
            taken[rows] = True
            found[reason] = np.sort(np.concatenate([found[reason], rows])) if reason in found else rows

    if definition.window.has_times:
        times, _ = words_of(table.column(definition.time[0]), definition.time[1])
        if len(times) and (times.min() < -TIME_MAX or times.max() > TIME_MAX):
            note("time", (times < -TIME_MAX) | (times > TIME_MAX))
    too_long = definition.key_codec.too_long([table.column(c) for c, _ in definition.key])
    if too_long is not None:
        note("key", too_long)
    for a in definition.accumulators:
        if a.is_bytes and a.type in BYTES and a.column is not None and table.column(a.column).nbytes > LENGTH_MAX:
            note("value", _lengths(table, a.column) > LENGTH_MAX)
    return found


def _lengths(table: pa.Table, column: str) -> Rows:
    lengths: Rows = pc.fill_null(pc.binary_length(table.column(column)), 0).to_numpy().astype(np.int64)
    return lengths


def unfit_error(definition: AggregateDefinition, table: pa.Table, wrong: Mapping[str, Rows]) -> InputError:
    """Returns the error about the first of these rows."""
    reason, rows = next(iter(wrong.items()))
    many = sum(len(r) for r in wrong.values())
    offset = table.column(OFFSET)[int(rows[0])].as_py()
    return unfit_tuples(f"{definition.window.kind} window", reason, many, f"input offset {offset}")
