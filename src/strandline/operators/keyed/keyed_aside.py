"""Tuples that a keyed operator cannot take, and keys whose last call failed: set aside, or an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import OFFSET
from strandline.operators.aside_tables import AsideTables, unfit_tuples
from strandline.operators.kernels.arrow_words import BYTES, arrow_type, whole, words_of
from strandline.operators.kernels.key_codec import BYTES_A_PART
from strandline.operators.keyed.definition import RESULT_TIME, KeyedDefinition
from strandline.operators.open_windows.record import LENGTH_MAX
from strandline.operators.operator import TAKEN_IN, OnError
from strandline.units import TIME_MAX

FUNCTION: Final = "function"
"""The reason of tuples and keys for which a function raised, or returned what it must not."""


class KeyedAside(AsideTables):
    """The tuples and keys that one step has set aside, in the columns of footprints, and the keys that have closed."""

    def __init__(self, definition: KeyedDefinition) -> None:
        self._definition = definition
        super().__init__()

    def healthy(self, tuples: pa.Table, on_error: OnError) -> pa.Table:
        """Returns the tuples that the loops can take; the others are kept here, or raised as an InputError."""
        for reason, is_wrong in self._unfit(tuples):
            if not is_wrong.any():
                continue
            found = tuples.filter(pa.array(is_wrong))
            if on_error == "stop":
                place = f"input offset {found.column(OFFSET)[0].as_py()}"
                raise unfit_tuples("keyed operator", reason, found.num_rows, place)
            self.add_tuples(reason, found)
            return self.healthy(tuples.filter(pa.array(~is_wrong)), on_error)
        return tuples

    def _unfit(self, tuples: pa.Table) -> list[tuple[str, npt.NDArray[np.bool_]]]:
        d = self._definition
        times, _ = words_of(tuples.column(d.time[0]), d.time[1])
        found = []
        if len(times) and (times.min() < -TIME_MAX or times.max() > TIME_MAX):
            found.append(("time", (times < -TIME_MAX) | (times > TIME_MAX)))
        keys = [c for c, kind in d.key if kind in BYTES]
        limit = LENGTH_MAX - BYTES_A_PART * len(d.key)
        if keys and sum(tuples.column(c).nbytes for c in keys) > limit:
            found.append(("key", np.sum([_lengths(tuples, c) for c in keys], axis=0) > limit))
        for c, kind in d.types:
            if kind in BYTES and tuples.column(c).nbytes > LENGTH_MAX:
                found.append(("value", _lengths(tuples, c) > LENGTH_MAX))
        return found

    def add_tuples(self, reason: str, tuples: pa.Table, number: int = 0) -> None:
        """Adds tuples as an input has them: their key, their time, their offset in the place of `_input`."""
        d, rows = self._definition, tuples.num_rows
        offset = whole(tuples.column(OFFSET))
        time = whole(tuples.column(d.times[number])).cast(offset.type).view(arrow_type(d.time_type))
        names = [*(name for name, _ in d.key), RESULT_TIME, TAKEN_IN]
        columns = [*(whole(tuples.column(c)) for c, _ in d.key), time, offset]
        self._add(reason, pa.table(columns, names=names), f"input offset {offset[0].as_py() if rows else 0}")

    def add_keys(self, reason: str, columns: Sequence[pa.Array]) -> None:
        """Adds keys as their footprints would be."""
        names = [name for name, _ in [*self._definition.result_columns, *self._definition.control_columns]]
        self._add(reason, pa.table(list(columns), names=names), "keys")

    def add_closed(self, columns: list[pa.Array]) -> None:
        """Adds keys that closed without a result, in the columns of results."""
        if not self.is_ignoring:
            self.closed.append(columns)

    def _add(self, reason: str, table: pa.Table, where: str) -> None:
        if not self.is_ignoring:
            self._keep(reason, table, f"{self._definition.function.name}, {where}")


def _lengths(tuples: pa.Table, column: str) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = pc.fill_null(pc.binary_length(tuples.column(column)), 0).to_numpy()
    return lengths.astype(np.int64)
