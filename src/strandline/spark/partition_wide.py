"""`stream.apply(Model(…))`: a class that a user has written, one object of it a partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from strandline.checkpoint.policy import Policy, instant
from strandline.errors import OptionError
from strandline.log.column_types import fields_of
from strandline.operators.input_shapes import InputShapes
from strandline.operators.partition_wide.definition import PartitionInput, PartitionWideDefinition
from strandline.operators.partition_wide.user_operator import UserOperator
from strandline.spark.aggregation import require_columns
from strandline.spark.operator_description import OperatorDescription
from strandline.spark.processing_element import Input
from strandline.spark.reprs import operator_html, operator_text

DEFAULT: Final = instant("10 s")
"""When the whole state is saved, if nobody says otherwise."""


class PartitionWide(OperatorDescription[PartitionWideDefinition]):
    """A user's class over a stream; `start` sets it going."""

    def __init__(
        self, inputs: Sequence[Input], definition: PartitionWideDefinition, policy: Policy | None = None
    ) -> None:
        chosen = policy or DEFAULT
        if chosen.starts_from == "footprints":
            raise OptionError(
                f"{chosen!r} saves window by window; the state of {definition.of.name} is one object, saved whole",
                todo='use sl.instant(every="10 s"), sl.partial(every="10 s") or sl.none()',
            )
        super().__init__(inputs, definition, chosen)

    def __repr__(self) -> str:
        return operator_text("PartitionWide", self._inputs, self._definition, self._policy)

    def _repr_html_(self) -> str:
        return operator_html("PartitionWide", self._inputs, self._definition, self._policy)


def applied_class(input_: Input, operator: UserOperator) -> PartitionWide:
    """The operator over the partitions of the input; raises OptionError or SchemaError if it cannot be."""
    spec, inputs = input_.input_spec, input_.members
    if len(inputs) > 1 and input_.shape:
        raise OptionError(
            "where(…) or select(…) between a union and an operator of yours",
            todo="put it before: sl.union(a.where(…), b.where(…)).apply(Model())",
        )
    lateness = spec.lateness if len(inputs) == 1 else 0  # tuples of several come in the order of their times
    given = PartitionInput({f["name"]: f["type"] for f in fields_of(spec.schema)}, spec.key, spec.time, lateness)
    before = InputShapes.of([one.shape for one in inputs])
    made = PartitionWideDefinition.over(operator, given, [other.input_spec.time for other in inputs[1:]], before)
    for other, names in zip(inputs[1:], made.takes[1:], strict=True):
        require_columns(inputs[0], made.takes[0], other, names)
    return PartitionWide([one.bare for one in inputs], made)
