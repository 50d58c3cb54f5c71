"""`left.join(right, within="10 min")`: how a user says what a join is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.log.column_types import fields_of
from strandline.log.spec import StreamSpec
from strandline.operators.join.definition import GROUP, JoinDefinition, JoinInput
from strandline.operators.join.join_windows import join_windows
from strandline.spark.operator_description import OperatorDescription
from strandline.spark.operator_input import OperatorInput
from strandline.spark.reprs import operator_html, operator_text
from strandline.spark.several import require_several


class Join(OperatorDescription[JoinDefinition]):
    """A join of two inputs; `start` sets it going."""

    def __repr__(self) -> str:
        return operator_text("Join", self._inputs, self._policy)

    def _repr_html_(self) -> str:
        return operator_html("Join", self._inputs, self._policy)

    def where(self, condition: Any) -> Join:
        """Only pairs for which a function is true: `where(lambda left, right: left.amount <= right.most)`. Compiled."""
        left, right = (_side(input_.input_spec) for input_ in self._inputs)
        d = self._definition
        return Join(self._inputs, JoinDefinition.of(left, right, d.windows, condition, d.group), self._policy)


def joined(left: OperatorInput, right: Any, windows: Mapping[str, Any], group: int | None = None) -> Join:
    """The join of two inputs; `windows` are the arguments of `join_windows`."""
    sides = require_several({"left": left, "right": right}, "the join")
    own, other = (_side(input_.input_spec) for input_ in sides)
    return Join(sides, JoinDefinition.of(own, other, join_windows(**windows), group=GROUP if group is None else group))


def _side(spec: StreamSpec) -> JoinInput:
    return JoinInput({f["name"]: f["type"] for f in fields_of(spec.schema)}, spec.key, spec.time)
