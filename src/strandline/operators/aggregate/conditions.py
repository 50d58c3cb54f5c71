"""Conditions of aggregates: `sum("price", where=pc.field("pieces") > 0)` takes the tuples for which that is true.

Each condition is computed once for all tuples that go through the kernels together, behind the stateless work before
the operator, and is a column of theirs from then on. A tuple for which it cannot be computed goes the same way as one
of which `select` makes nothing: it is set aside, or stops the operator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.operators.expressions.expressions import Formula
from strandline.operators.expressions.shape import Shape
from strandline.operators.kernels.arrow_words import whole
from strandline.operators.kernels.kernel_arrays import Bytes


@dataclass(frozen=True, slots=True)
class Conditioned(Shape):
    """A shape behind which conditions are computed."""

    conditions: tuple[Formula, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps or self.conditions)

    def require_computable(self, schema: pa.Schema) -> None:
        """Raises `SchemaError` if there is an expression that cannot be computed for any tuple of this schema."""
        Shape.require_computable(self, schema)
        behind = Shape.over(self, schema.empty_table()).schema
        for condition in self.conditions:
            condition.type_over(behind, "where=… of an aggregate")

    def over(self, table: pa.Table) -> pa.Table:
        """Returns the shaped tuples, with a column for each condition: true or not, null being false."""
        table = Shape.over(self, table)
        held = [pc.fill_null(condition.over(table), False) for condition in self.conditions]
        for number, column in enumerate(held):
            table = table.append_column(_name(number), column)
        return table


def _name(number: int) -> str:
    return f"_where{number}"


def validity_where(valid: Bytes, table: pa.Table, number: int) -> Bytes:
    """Returns whether a tuple counts: 0 if this condition is not true, else 1 if it has a value, 2 if it has none."""
    held: Bytes = np.asarray(whole(table.column(_name(number)))).astype(np.uint8)
    return (2 - valid) * held
