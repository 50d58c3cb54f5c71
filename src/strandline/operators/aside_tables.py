"""The tuples and windows that a step sets aside, by reason, for every operator.

Which tuples and windows these are follows from the input alone, never from batches: what was set aside once is set
aside again in a replay, and nothing of it is in any state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import OFFSET
from strandline.errors import InputError
from strandline.operators.expressions.shape import AS_IS, Shape
from strandline.operators.kernels.arrow_words import arrow_type, whole, words_of
from strandline.operators.one_table import OneTableDefinition, one_table
from strandline.operators.open_windows.record import LENGTH_MAX
from strandline.operators.operator import TAKEN_IN, Definition, OnError
from strandline.units import TIME_MAX

BYTES_MAX = 256 << 20
"""More than that is set aside by no step: it would not go through the driver."""
VALUE: Final = "value"
"""The reason of tuples whose shape cannot be computed, or with a value that is too long."""
WHY: Final = {
    "time": "a time at the edge of what 64 bits hold",
    "key": f"a key of more than {LENGTH_MAX} bytes",
    VALUE: f"a value of more than {LENGTH_MAX} bytes",
}
"""Reasons why a tuple cannot be taken."""

Unfit = tuple[str, npt.NDArray[np.bool_]]
"""A reason, and which tuples cannot be taken for it."""


def bad_times(tuples: pa.Table, column: str, kind: str) -> list[Unfit]:
    """Returns which tuples have a time that kernels cannot compute with; nothing, at almost no cost, if none has."""
    times, _ = words_of(tuples.column(column), kind)
    if not len(times) or (times.min() >= -TIME_MAX and times.max() <= TIME_MAX):
        return []
    return [("time", (times < -TIME_MAX) | (times > TIME_MAX))]


def long_keys(tuples: pa.Table, definition: Definition) -> list[Unfit]:
    """Returns which tuples have a key that is too long; nothing, at almost no cost, if none has."""
    found = definition.key_codec.too_long([tuples.column(name) for name, _ in definition.key])
    return [] if found is None else [("key", found)]


def long_values(tuples: pa.Table, columns: Iterable[str]) -> list[Unfit]:
    """Returns which tuples have a value that is too long in one of these columns of texts or bytes, as above."""
    large = [tuples.column(name) for name in columns if tuples.column(name).nbytes > LENGTH_MAX]
    lengths = [pc.fill_null(pc.binary_length(column), 0).to_numpy() for column in large]
    return [(VALUE, np.max(lengths, axis=0) > LENGTH_MAX)] if lengths else []


class AsideTables:
    """Tables in those of the columns of footprints that have values, by the reason why they were set aside."""

    advice = "this is for poison, not for a whole stream: repair the condition, or filter before the operator"
    """The advice if it is too much."""

    def __init__(self, owner: str) -> None:
        """Begins with nothing; `owner` is the operator in messages."""
        self._owner = owner
        self._parts: dict[str, dict[tuple[str, ...], list[pa.Table]]] = {}
        self.nbytes = 0
        """How much that is: it travels through the driver."""
        self.closed: list[list[pa.Array]] = []
        """Columns that say which windows, or waiting tuples, are among them, so that no reader takes them for open."""
        self.is_ignoring = False
        """True if what is added is dropped."""

    @property
    def tables(self) -> dict[str, list[pa.Table]]:
        """For each reason some tables, each with columns of its own: those that it does not have are null."""
        return {reason: [*map(pa.concat_tables, parts.values())] for reason, parts in self._parts.items()}

    def ignore(self) -> None:
        self.is_ignoring = True

    def add_closed(self, columns: list[pa.Array]) -> None:
        """Adds windows that closed without a result, in the columns of results."""
        if not self.is_ignoring:
            self.closed.append(columns)

    def _keep(self, reason: str, table: pa.Table, where: str) -> None:
        """Keeps what is at `where`; raises InputError if that is too much."""
        if self.is_ignoring:
            return
        self.nbytes += table.nbytes
        if self.nbytes > BYTES_MAX:
            raise InputError(
                f"one step sets aside more than {BYTES_MAX >> 20} MiB of tuples, the last of them for the reason "
                f"{reason!r}",
                where=f"{self._owner}, {where}",
                todo=self.advice,
            )
        self._parts.setdefault(reason, {}).setdefault(tuple(table.column_names), []).append(table)

    def _fit(
        self,
        tuples: pa.Table,
        unfit: Sequence[Unfit],
        on_error: OnError,
        set_aside: Callable[[str, pa.Table], None],
        place: str,
    ) -> pa.Table:
        """Returns the tuples that can be taken; the others go to `set_aside`, each for the first of its reasons.

        With "stop", InputError is raised about them; `place` and its offset say where the first of them is.
        """
        is_fit = np.ones(tuples.num_rows, bool)
        for reason, is_wrong in unfit:
            found = tuples.filter(pa.array(is_wrong & is_fit))
            if not found.num_rows:
                continue
            if on_error == "stop":
                more = f" (and {found.num_rows - 1} more like it)" if found.num_rows > 1 else ""
                raise InputError(
                    f"the {self._owner} cannot take a tuple: {WHY[reason]}{more}",
                    where=f"{place} {found.column(OFFSET)[0].as_py()}",
                    todo='start the operator with on_error="set_aside": such tuples go to its side log, '
                    "read(late=True)",
                )
            set_aside(reason, found)
            is_fit &= ~is_wrong
        return tuples if is_fit.all() else tuples.filter(pa.array(is_fit))


class OneTableAside(AsideTables):
    """The tuples and windows that one step has set aside, in the columns of footprints."""

    def __init__(
        self,
        definition: OneTableDefinition,
        owner: str,
        times: Sequence[str],
        time_type: str | None,
        texts: Sequence[str] = (),
    ) -> None:
        """Begins with nothing; `times` are the result columns in which a tuple's time stands.

        Without a type it is the tuple's offset. `texts` are the columns of texts and bytes that kernels read.
        """
        super().__init__(owner)
        self._definition = definition
        self._times = times
        self._time_type = time_type
        self._texts = texts

    def one_table(self, tuples: Sequence[pa.Table], on_error: OnError, *, numbered: bool = False) -> pa.Table:
        """Returns the tuples of all inputs, each in its shape, in one table, see the function `one_table`.

        Tuples that cannot be computed are kept here, or raised as an InputError.
        """
        d = self._definition
        made = d.shaping.over(tuples, on_error, lambda number, rows: self.add_tuples(VALUE, rows, number))
        return one_table(made, d.takes, numbered=numbered)

    def healthy(
        self, tuples: Sequence[pa.Table], on_error: OnError, shape: Shape = AS_IS, *, numbered: bool = False
    ) -> pa.Table:
        """Returns what `one_table` does, in this shape; tuples that kernels cannot take are kept or raised, too."""
        d, table = self._definition, self.one_table(tuples, on_error, numbered=numbered)
        table = shape.computed(table, on_error, partial(self.add_tuples, VALUE))
        unfit = [] if self._time_type is None else bad_times(table, *d.time)
        unfit += [*long_keys(table, d), *long_values(table, self._texts)]
        return self._fit(table, unfit, on_error, self.add_tuples, "input offset")

    def add_tuples(self, reason: str, tuples: pa.Table, number: int = 0) -> None:
        """Adds tuples as an input has them: their key, their time, their offset in the place of `_input`."""
        if self.is_ignoring or not tuples.num_rows:
            return
        d = self._definition
        offset = whole(tuples.column(OFFSET))
        time = offset
        if self._time_type is not None:
            time = whole(tuples.column(d.times[number])).cast(pa.int64()).cast(arrow_type(self._time_type))
        key = [name for name, _ in d.key if name not in self._times]
        columns = [*(whole(tuples.column(name)) for name in key), *(time for _ in self._times), offset]
        table = pa.table(columns, names=[*key, *self._times, TAKEN_IN])
        self._keep(reason, table, f"input offset {offset[0].as_py()}")

    def add_windows(self, reason: str, columns: Sequence[pa.Array]) -> None:
        """Adds windows as their footprints would be."""
        names = [name for name, _ in [*self._definition.result_columns, *self._definition.control_columns]]
        self._keep(reason, pa.table(list(columns), names=names), "windows")
