"""The input of a user's operator: one stream, or several as one."""

from __future__ import annotations

from collections.abc import Sequence, Set

from strandline.errors import OptionError
from strandline.log.stream.column_types import fields_of
from strandline.operators.expressions.input_shapes import InputShapes
from strandline.operators.given_input import GivenInput
from strandline.spark.describe.aggregation import require_columns
from strandline.spark.describe.optional_columns import with_nulls
from strandline.spark.operator.processing_element import ReplicatedInput, Upstream


class AppliedInputs:
    """The inputs, and what the operator may know of them."""

    def __init__(
        self, input_: Upstream, what: str, call: str, optional: Sequence[str] = (), reads: Set[str] = frozenset()
    ) -> None:
        """Raises OptionError for a shape between a union and `what`, which is applied by `call`.

        Of the columns that it `reads`, those that are `optional` are null in the streams of a union that lack them.
        """
        if len(input_._input_members) > 1 and input_._input_shape:
            raise OptionError(
                f"where(…) or select(…) between a union and {what}",
                todo=f"put it before: sl.union(a.where(…), b.where(…)).apply({call})",
            )
        self.members = with_nulls(input_._input_members, optional, reads)
        spec = self.members[0]._input_spec if len(self.members) > 1 else input_._input_spec
        comes_in_order = len(self.members) > 1 or isinstance(input_._bare_input, ReplicatedInput)
        lateness = 0 if comes_in_order else spec.lateness
        columns = {f["name"]: f["type"] for f in fields_of(spec.schema)}
        self.given = GivenInput(columns, spec.key, spec.time, lateness)
        self.more_times = [other._input_spec.time for other in self.members[1:]]
        self.before = InputShapes.of([one._input_shape for one in self.members])

    def bare(self, takes: Sequence[Sequence[str]]) -> list[Upstream]:
        """Returns the inputs without their shapes; raises SchemaError if they differ in the columns that are taken of
        each."""
        for other, names in zip(self.members[1:], takes[1:], strict=True):
            require_columns(self.members[0], takes[0], other, names)
        return [one._bare_input for one in self.members]
