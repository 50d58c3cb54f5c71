"""Tuples that a barrier set aside: more of their key waited than may, or they cannot be computed before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from strandline.operators.aside_tables import AsideTables, unfit_tuples
from strandline.operators.barrier.definition import TIME, BarrierDefinition
from strandline.operators.operator import OFFSET, OnError

REASON, VALUE = "barrier", "value"


class BarrierAside(AsideTables):
    """What one step has set aside, in the columns of footprints."""

    def __init__(self, definition: BarrierDefinition) -> None:
        self._definition = definition
        super().__init__()

    def add(self, columns: list[pa.Array]) -> None:
        """Adds tuples, which do not wait any more."""
        self.closed.append(columns)
        self._keep(REASON, pa.Table.from_arrays(columns, schema=self._definition.output_schema))

    def healthy(self, tuples: Sequence[pa.Table], on_error: OnError) -> list[pa.Table]:
        """The tuples, a table an input, that a barrier can take; others are kept here, or raised as an InputError."""
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
        columns = [
            known[f.name].combine_chunks().cast(f.type) if f.name in known else pa.nulls(len(tuples), f.type)
            for f in d.output_schema
        ]
        self._keep(reason, pa.table(columns, schema=d.output_schema))
