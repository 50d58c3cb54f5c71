"""Tuples that a barrier set aside: more of their key waited than may, or they cannot be computed before it."""

from __future__ import annotations

import pyarrow as pa

from strandline.operators.aside_tables import AsideTables
from strandline.operators.barrier.definition import TIME, BarrierDefinition
from strandline.operators.operator import OFFSET

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

    def add_unmade(self, number: int, tuples: pa.Table) -> None:
        """Adds tuples of an input that cannot be computed before the barrier: their keys, times and places."""
        d, one = self._definition, self._definition.inputs[number]
        known = {name: tuples.column(name) for name, _ in d.key} | {TIME: tuples.column(one.time)}
        known |= {f"{one.name}_{one.time}": tuples.column(one.time), d.at_columns[number]: tuples.column(OFFSET)}
        columns = [
            known[f.name].combine_chunks().cast(f.type) if f.name in known else pa.nulls(len(tuples), f.type)
            for f in d.output_schema
        ]
        self._keep(VALUE, pa.table(columns, schema=d.output_schema))
