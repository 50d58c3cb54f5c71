"""`left.join(right, within="10 min")`: tuples of two streams with the same key, side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from strandline.errors import OptionError
from strandline.log.stream.column_types import fields_of
from strandline.operators.join.definition import GROUP, JoinDefinition, JoinInput
from strandline.operators.join.join_windows import JoinWindows
from strandline.operators.join.predicate import Predicate
from strandline.spark.describe.operator_description import OperatorDescription
from strandline.spark.describe.several import require_several
from strandline.spark.operator.processing_element import Upstream


class Join(OperatorDescription[JoinDefinition]):
    """A join; `where` may say which pairs count, `start` sets it going."""

    def where(self, condition: Callable[[Any, Any], Any], *, version: int = 1) -> Join:
        """Keeps only pairs for which the condition is true: `where(lambda left, right: left.n <= right.most)`.

        It is compiled, over numbers, booleans, dates and timestamps; texts can be compared with == and !=. A null in a
        column that it names makes it false. Raises OptionError at once if it cannot be compiled. Over a stream that
        another condition has made it is refused when it is started, unless a later `version` says that the change is
        meant: what is kept stays, pairs from then on are judged by the new one.
        """
        if self._definition.where is not None:
            raise OptionError("a join with two conditions", todo="write one: where(lambda left, right: … and …)")
        definition = replace(self._definition, where=Predicate.of(condition, version))
        definition.require_sound()
        return Join(self._inputs, definition, self._policy, self._promise)


def joined(left: Upstream, right: Any, windows: JoinWindows, group: int | None) -> Join:
    """Joins two streams or sources; raises with the difference if they cannot be joined."""
    inputs = require_several({"left": left, "right": right}, "the join")
    first, second = (_input(one) for one in inputs)
    definition = JoinDefinition.of(first, second, windows, group=GROUP if group is None else group)
    return Join([one._bare_input for one in inputs], definition)


def _input(input_: Upstream) -> JoinInput:
    spec = input_._input_spec
    return JoinInput({f["name"]: f["type"] for f in fields_of(spec.schema)}, spec.key, spec.time, input_._input_shape)
