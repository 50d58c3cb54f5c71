"""Tuples that a barrier set aside: more of their key waited than may, or they cannot be computed before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from strandline.control_columns import OFFSET
from strandline.operators.aside_tables import AsideTables, unfit_tuples
from strandline.operators.barrier.definition import TIME, BarrierDefinition
from strandline.operators.operator import OnError

REASON, VALUE = "barrier", "value"


class BarrierAside(AsideTables):
    """The tuples that one step has set aside, in the columns of footprints."""

    def __init__(self, definition: BarrierDefinition) -> None:
        self._definition = definition
        super().__init__()

    advice = (
        "all of one time is taken in by one step: let fewer tuples of a key have the same time, give the barrier a "
        "larger at_most, or drop columns with select() before it"
    )

    def add(self, number: int, tuples: pa.Table) -> None:
        """Adds tuples of an input, of whose key more waited than may; they come in columns of footprints."""
        name = self._definition.inputs[number].name
        first = tuples.column(self._definition.at_columns[number])[0].as_py()
        self._keep(REASON, tuples, f"barrier, input {name}, place {first}")

    def healthy(self, tuples: Sequence[pa.Table], on_error: OnError) -> list[pa.Table]:
        """Returns the tuples, a table an input, that a barrier can take; keeps the others, or raises InputError."""
        found = []
        for number, table in enumerate(tuples):
            d, one = self._definition, self._definition.inputs[number]
            too_long = d.key_codec.too_long([table.column(name) for name, _ in d.key])
            if too_long is None:
                found.append(table)
                continue
            wrong = table.filter(pa.array(too_long))
            if on_error == "stop":
                where = f"input {one.name}, place {wrong.column(OFFSET)[0].as_py()}"
                raise unfit_tuples("barrier", "key", len(wrong), where)
            self._add("key", number, wrong, {f"{one.name}_{name}": wrong.column(name) for name, _ in one.columns})
            found.append(table.filter(pa.array(~too_long)))
        return found

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
        self._keep(reason, table, f"barrier, input {one.name}, place {tuples.column(OFFSET)[0].as_py()}")
