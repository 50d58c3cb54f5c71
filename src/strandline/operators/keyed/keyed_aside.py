"""Tuples that a keyed operator cannot take, and keys whose last call failed: set aside, or an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import InputError
from strandline.operators.arrow_words import BYTES, arrow_type, null_column, whole, words_of
from strandline.operators.aside_tables import AsideTables
from strandline.operators.key_codec import BYTES_A_PART
from strandline.operators.keyed.definition import KeyedDefinition
from strandline.operators.open_windows.record import LENGTH_MAX
from strandline.operators.operator import OFFSET, OnError

FUNCTION: Final = "function"
"""The reason of tuples and keys for which a function raised, or returned what it must not."""
TIME_MAX: Final = 1 << 61
"""Times lie that near to 1970, so that what is added to them fits 64 bits."""
_WHY: Final = {
    "time": "a time at the edge of what 64 bits hold",
    "key": f"a key of more than {LENGTH_MAX} bytes",
    "value": f"a value of more than {LENGTH_MAX} bytes",
}


class KeyedAside(AsideTables):
    """What one step has set aside, by reason, in the columns of footprints; and the keys that have closed."""

    def __init__(self, definition: KeyedDefinition) -> None:
        self._definition = definition
        super().__init__()

    def healthy(self, tuples: pa.Table, on_error: OnError) -> pa.Table:
        """The tuples that the loops can take; the others are kept here, or raised as an InputError."""
        for reason, is_wrong in self._unfit(tuples):
            if not is_wrong.any():
                continue
            found = tuples.filter(pa.array(is_wrong))
            if on_error == "stop":
                more = f" (and {found.num_rows - 1} more like it)" if found.num_rows > 1 else ""
                raise InputError(
                    f"a tuple that no keyed operator can take: {_WHY[reason]}{more}",
                    where=f"input offset {found.column(OFFSET)[0].as_py()}",
                    todo='start the operator with on_error="set_aside": such tuples go to its side log',
                )
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
        nothing = [null_column(kind, rows) for _, kind in d.function.output]
        control = [offset, *(null_column(kind, rows) for _, kind in d.control_columns[1:])]
        self._add(reason, [*(whole(tuples.column(c)) for c, _ in d.key), time, *nothing, *control])

    def add_keys(self, reason: str, columns: Sequence[pa.Array]) -> None:
        """Adds keys as their footprints would be."""
        self._add(reason, columns)

    def _add(self, reason: str, columns: Sequence[pa.Array]) -> None:
        names = [name for name, _ in [*self._definition.result_columns, *self._definition.control_columns]]
        self._keep(reason, pa.table(list(columns), names=names))


def _lengths(tuples: pa.Table, column: str) -> npt.NDArray[np.int64]:
    lengths: npt.NDArray[np.int64] = pc.fill_null(pc.binary_length(tuples.column(column)), 0).to_numpy()
    return lengths.astype(np.int64)
