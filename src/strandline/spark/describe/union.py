"""`sl.union(a, b, c)`: several streams as one, in the order of time, then of input, then of offset."""

from __future__ import annotations

from typing import Any, NoReturn

from strandline.errors import OptionError
from strandline.log.stream.spec import StreamSpec
from strandline.operators.expressions.shape import AS_IS
from strandline.spark.describe.operator_input import OperatorInput
from strandline.spark.describe.reprs import element_html
from strandline.spark.describe.several import require_several
from strandline.spark.describe.stateless import Stateless, StatelessWork, stateless
from strandline.spark.operator.processing_element import Upstream


class Union(StatelessWork, OperatorInput):
    """Streams, or DataFrames on their way into some, as one sequence of tuples: for an operator, or as a stream."""

    def __init__(self, members: tuple[Upstream, ...]) -> None:
        self._members = members
        self._input_place = members[0]._input_place

    def __repr__(self) -> str:
        return f"Union({', '.join(map(repr, self._members))})"

    def _repr_html_(self) -> str:
        return element_html("Union", self._members, self._facts)

    def _facts(self) -> dict[str, object]:
        times = ", ".join(member._input_spec.time for member in self._members)
        return {"times": times, "partitions": self._input_spec.partitions}

    @property
    def _input_members(self) -> tuple[Upstream, ...]:
        """The streams in their order."""
        return self._members

    @property
    def _input_spec(self) -> StreamSpec:
        """The spec of the first one; the others are like it in all that operators read."""
        return self._members[0]._input_spec

    def _operator(self) -> Stateless:
        """Returns the operator that writes the tuples of all streams as one stream."""
        return stateless(self, AS_IS)

    def read(self, *_: Any, **__: Any) -> NoReturn:
        """Raises: a union is written nowhere until it is started."""
        raise OptionError(
            "a union cannot be read before it is started",
            todo="call union.start(spark, path), then read sl.stream(path)",
        )

    read_stream = to_arrow = read


def union(*inputs: Any) -> Union:
    """Takes several streams in as one: `sl.union(a, b, c).window(…)`. Results do not depend on which of them was ahead.

    The streams, or sources, have the same key columns and partitions, and `lateness` set. A tuple is taken in when
    nothing before it can follow in any of them; what is not yet waits in its stream. Tuples of one time come in the
    order in which the streams are given here. `start` makes a stream of the union, which is an input like any other.
    """
    return Union(require_several({f"input {number + 1}": input_ for number, input_ in enumerate(inputs)}, "the union"))
