"""Tuples that a barrier set aside: more of their key waited than may, or they cannot be computed before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from strandline.control_columns import OFFSET
from strandline.operators.aside_tables import VALUE, AsideTables, long_keys
from strandline.operators.barrier.definition import TIME, BarrierDefinition
from strandline.operators.operator import OnError

REASON: Final = "barrier"
"""The reason of tuples of whose key more waited than may."""


class BarrierAside(AsideTables):
    """The tuples that one step has set aside, in the columns of footprints."""

    def __init__(self, definition: BarrierDefinition) -> None:
        self._definition = definition
        super().__init__("barrier")

    advice = (
        "all of one time is taken in by one step: let fewer tuples of a key have the same time, give the barrier a "
        "larger at_most, or drop columns with select() before it"
    )

    def add(self, number: int, tuples: pa.Table) -> None:
        """Adds tuples of an input, of whose key more waited than may; they come in columns of footprints."""
        name = self._definition.inputs[number].name
        first = tuples.column(self._definition.at_columns[number])[0].as_py()
        self._keep(REASON, tuples, f"input {name}, place {first}")

    def healthy(self, tuples: Sequence[pa.Table], on_error: OnError) -> list[pa.Table]:
        """Returns the tuples, a table an input, that a barrier can take; keeps the others, or raises InputError."""
        found = []
        for number, (table, one) in enumerate(zip(tuples, self._definition.inputs, strict=True)):
            unfit, place = long_keys(table, self._definition), f"input {one.name}, place"
            found.append(self._fit(table, unfit, on_error, partial(self._add_whole, number), place))
        return found

    def _add_whole(self, number: int, reason: str, tuples: pa.Table) -> None:
        one = self._definition.inputs[number]
        self._add(reason, number, tuples, {f"{one.name}_{name}": tuples.column(name) for name, _ in one.columns})

    def add_unmade(self, number: int, tuples: pa.Table) -> None:
        """Adds tuples of an input that cannot be computed before the barrier: their keys, times and places."""
        one = self._definition.inputs[number]
        self._add(VALUE, number, tuples, {f"{one.name}_{one.time}": tuples.column(one.time)})

    def _add(self, reason: str, number: int, tuples: pa.Table, own: Mapping[str, pa.ChunkedArray]) -> None:
        if self.is_ignoring:
            return
        d, one = self._definition, self._definition.inputs[number]
        known = {name: tuples.column(name) for name, _ in d.key} | {TIME: tuples.column(one.time), **own}
        known |= {d.at_columns[number]: tuples.column(OFFSET)}
        schema = pa.schema([f for f in d.output_schema if f.name in known])
        table = pa.table([known[f.name].cast(f.type) for f in schema], schema=schema)
        self._keep(reason, table, f"input {one.name}, place {tuples.column(OFFSET)[0].as_py()}")
