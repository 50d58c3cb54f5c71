"""`stream.apply(f)`: a function that a user has written, over every key of a stream."""

from __future__ import annotations

from typing import Any

from strandline.errors import OptionError, SchemaError
from strandline.log.column_types import fields_of
from strandline.operators.input_shapes import InputShapes
from strandline.operators.keyed.definition import INPUT_TYPE, KeyedDefinition, KeyedInput
from strandline.operators.keyed.keyed_function import KeyedFunction
from strandline.operators.one_table import INPUT_NAME
from strandline.spark.aggregation import require_columns
from strandline.spark.operator_description import OperatorDescription
from strandline.spark.processing_element import Input
from strandline.spark.reprs import operator_html, operator_text


class Keyed(OperatorDescription[KeyedDefinition]):
    """A keyed function over a stream; `start` sets it going."""

    def __repr__(self) -> str:
        return operator_text("Keyed", self._inputs, self._definition, self._policy)

    def _repr_html_(self) -> str:
        return operator_html("Keyed", self._inputs, self._definition, self._policy)


def applied(input_: Input, function: Any) -> Keyed:
    """The function over the keys of the input; raises OptionError or SchemaError if it cannot be."""
    spec, inputs = input_.input_spec, input_.members
    if len(inputs) > 1 and input_.shape:
        raise OptionError(
            "where(…) or select(…) between a union and a keyed function",
            todo="put it before: sl.union(a.where(…), b.where(…)).apply(f)",
        )
    lateness = spec.lateness if len(inputs) == 1 else 0  # tuples of several come in the order of their times
    columns = {f["name"]: f["type"] for f in fields_of(spec.schema)}
    if len(inputs) > 1:
        if INPUT_NAME in columns and isinstance(function, KeyedFunction) and function.names(INPUT_NAME):
            raise SchemaError(
                f"{function.name}: a column of the stream is called {INPUT_NAME!r}, as the number of its input is",
                todo=f"give it another name before: select(…, other=pc.field({INPUT_NAME!r}))",
            )
        columns = {**columns, INPUT_NAME: INPUT_TYPE}
    given = KeyedInput(columns, spec.key, spec.time, lateness)
    before = InputShapes.of([one.shape for one in inputs])
    made = KeyedDefinition.of(function, given, [other.input_spec.time for other in inputs[1:]], before)
    for other, names in zip(inputs[1:], made.takes[1:], strict=True):
        require_columns(inputs[0], made.takes[0], other, names)
    return Keyed([one.bare for one in inputs], made)
