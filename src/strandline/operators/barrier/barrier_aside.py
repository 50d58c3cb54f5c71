"""Tuples that a barrier set aside because more of their key waited than may."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from strandline.operators.barrier.definition import BarrierDefinition

REASON = "barrier"


class BarrierAside:
    """What one step has set aside, in the columns of footprints."""

    def __init__(self, definition: BarrierDefinition) -> None:
        self._schema = definition.output_schema
        self.closed: list[list[pa.Array]] = []
        """The same as tuples of the output: so that nobody takes them for waiting."""
        self.nbytes = 0
        """How much that is: it travels through the driver."""

    @property
    def tables(self) -> Mapping[str, pa.Table]:
        """By reason; there is one."""
        parts = [pa.Table.from_arrays(columns, schema=self._schema) for columns in self.closed]
        return {REASON: pa.concat_tables(parts)} if parts else {}

    def add(self, columns: list[pa.Array]) -> None:
        """Adds tuples."""
        self.closed.append(columns)
        self.nbytes += sum(column.nbytes for column in columns)
