"""`stream.apply(f)`: a function that a user has written, over every key of a stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from strandline.errors import SchemaError
from strandline.operators.keyed.definition import INPUT_TYPE, KeyedDefinition
from strandline.operators.keyed.keyed_function import KeyedFunction
from strandline.operators.one_table import INPUT_NAME
from strandline.spark.describe.applied_inputs import AppliedInputs
from strandline.spark.describe.operator_description import OperatorDescription
from strandline.spark.operator.processing_element import Upstream


class Keyed(OperatorDescription[KeyedDefinition]):
    """A keyed function over a stream; `start` sets it going."""


def applied(input_: Upstream, function: Any) -> Keyed:
    """Applies a function to the keys of the input; raises OptionError or SchemaError if it cannot be applied."""
    is_one = isinstance(function, KeyedFunction)
    reads = function.main.use.columns["row"] if is_one else frozenset()
    inputs = AppliedInputs(input_, "a keyed function", "f", function.optional if is_one else (), reads)
    given = inputs.given
    if len(inputs.members) > 1:
        if INPUT_NAME in given.columns and isinstance(function, KeyedFunction) and function.names(INPUT_NAME):
            raise SchemaError(
                f"{function.name}: a column of the stream is called {INPUT_NAME!r}, as the number of its input is",
                todo=f"give it another name before: select(…, other=pc.field({INPUT_NAME!r}))",
            )
        given = replace(given, columns={**given.columns, INPUT_NAME: INPUT_TYPE})
    made = KeyedDefinition.of(function, given, inputs.more_times, inputs.before)
    return Keyed(inputs.bare(made.takes), made)
