"""`stream.apply(Model(…))`: a class that a user has written, one object of it a partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from strandline.checkpoint.policy import Policy, instant
from strandline.errors import OptionError
from strandline.operators.partition_wide.definition import PartitionWideDefinition
from strandline.operators.partition_wide.user_operator import UserOperator
from strandline.running.promise import Promise
from strandline.spark.describe.applied_inputs import AppliedInputs
from strandline.spark.describe.operator_description import OperatorDescription
from strandline.spark.operator.processing_element import Upstream

DEFAULT: Final = instant("10 s")
"""The policy of a class, unless `checkpoint` names another."""


class PartitionWide(OperatorDescription[PartitionWideDefinition]):
    """A user's class over a stream; `start` sets it going."""

    def __init__(
        self,
        inputs: Sequence[Upstream],
        definition: PartitionWideDefinition,
        policy: Policy | None = None,
        promise: Promise | None = None,
    ) -> None:
        chosen = policy or DEFAULT
        if chosen.starts_from == "footprints":
            raise OptionError(
                f"{chosen!r} saves window by window; the state of {definition.of.name} is one object, saved whole",
                todo='use sl.instant(every="10 s"), sl.partial(every="10 s") or sl.none()',
            )
        super().__init__(inputs, definition, chosen, promise)


def applied_class(input_: Upstream, operator: UserOperator) -> PartitionWide:
    """Applies a user's class to the partitions of the input; raises OptionError or SchemaError if that cannot be."""
    inputs = AppliedInputs(input_, "an operator of yours", "Model()")
    made = PartitionWideDefinition.over(operator, inputs.given, inputs.more_times, inputs.before)
    return PartitionWide(inputs.bare(made.takes), made)
