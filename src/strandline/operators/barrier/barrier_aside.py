"""Tuples that a barrier set aside because more of their key waited than may."""

from __future__ import annotations

import pyarrow as pa

from strandline.operators.aside_tables import AsideTables
from strandline.operators.barrier.definition import BarrierDefinition

REASON = "barrier"


class BarrierAside(AsideTables):
    """What one step has set aside, in the columns of footprints."""

    def __init__(self, definition: BarrierDefinition) -> None:
        self._schema = definition.output_schema
        super().__init__()

    def add(self, columns: list[pa.Array]) -> None:
        """Adds tuples, which do not wait any more."""
        self.closed.append(columns)
        self._keep(REASON, pa.Table.from_arrays(columns, schema=self._schema))
