"""`sl.barrier(temperature=a, pressure=b)`: per key, the n-th tuples of all inputs together."""

from __future__ import annotations

from typing import Any

from strandline.errors import OptionError
from strandline.log.stream.column_types import fields_of, type_name
from strandline.operators.barrier.definition import BarrierDefinition, BarrierInput
from strandline.operators.expressions.input_shapes import InputShapes
from strandline.spark.describe.operator_description import OperatorDescription
from strandline.spark.describe.several import require_several
from strandline.spark.operator.processing_element import Upstream
from strandline.wording import plural


class Barrier(OperatorDescription[BarrierDefinition]):
    """A barrier; `start` sets it going."""


def barrier(*nameless: Any, at_most: int | None = None, **inputs: Any) -> Barrier:
    """Joins the n-th tuples of all inputs, per key, into one result: `sl.barrier(temperature=a, pressure=b).start(…)`.

    Inputs, two to sixteen, are streams or sources with the same key columns and partitions, and `lateness` set. A
    result has the key columns, `time` (the latest of its tuples), and the other columns of each input, with the name of
    the input in front: `temperature_value`. With `at_most`, no more tuples of a key wait: over that the oldest is set
    aside.
    """
    if nameless:
        raise OptionError(
            f"{plural(len(nameless), 'input')} of the barrier {'has' if len(nameless) == 1 else 'have'} no name",
            todo="name them, results are called by it: sl.barrier(temperature=a, pressure=b)",
        )
    if at_most is not None and (isinstance(at_most, bool) or not isinstance(at_most, int)):
        raise OptionError(f"barrier: at_most={at_most!r} is not a number of tuples", todo="use 1 or more, or None")
    if at_most is not None and 0 < at_most < len(inputs) - 1:
        raise OptionError(
            f"barrier: at_most={at_most} of {plural(len(inputs), 'input')}: no set would ever be complete, for "
            f"{len(inputs) - 1} tuples have to wait until the last one comes",
            todo=f"use {len(inputs) - 1} or more, or None for no bound",
        )
    found = require_several(inputs, "the barrier")
    key = found[0]._input_spec.key
    types = {f["name"]: type_name(f["type"]) for f in fields_of(found[0]._input_spec.schema)}
    own = tuple(_input(name, input_) for name, input_ in zip(inputs, found, strict=True))
    shapes = InputShapes.of([one._input_shape for one in found])
    definition = BarrierDefinition(tuple((column, types[column]) for column in key), own, at_most, shapes)
    return Barrier([one._bare_input for one in found], definition)


def _input(name: str, input_: Upstream) -> BarrierInput:
    spec = input_._input_spec
    columns = tuple((f["name"], f["type"]) for f in fields_of(spec.schema) if f["name"] not in spec.key)
    return BarrierInput(name, spec.time, columns)
