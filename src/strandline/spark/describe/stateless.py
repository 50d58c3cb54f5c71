"""`stream.where(…).start(…)`, `sl.union(a, b).start(…)`: stateless work whose results are a stream of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from strandline.checkpoint.policy import Policy
from strandline.errors import OptionError, SchemaError
from strandline.log.stream.column_types import fields_of, type_name
from strandline.log.stream.spec import StreamSpec
from strandline.operators.expressions.shape import UNSHAPED, InputShapes, Select, Shape
from strandline.operators.stateless.definition import StatelessDefinition
from strandline.spark.describe.aggregation import require_columns
from strandline.spark.describe.operator_description import OperatorDescription
from strandline.spark.operator.processing_element import Upstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.spark.describe.stage import Stage
    from strandline.spark.query.query import Query
    from strandline.units import Duration


class Stateless(OperatorDescription[StatelessDefinition]):
    """A filter, a selection of columns or a union as an operator; `start` sets it going."""

    @property
    def _choices(self) -> dict[str, str]:
        """The options that were chosen: a policy is none of them."""
        return {name: text for name, text in super()._choices.items() if name != "checkpoint"}

    def checkpoint(self, policy: Policy) -> NoReturn:
        """Raises: there is no state to save."""
        raise OptionError(
            f"checkpoint({policy!r}): this operator has no state to save",
            where=", ".join(input_._input_place.url for input_ in self._inputs),
            todo="leave checkpoint(…) out: a recovery only needs the place of the operator in its input",
        )


class StatelessWork:
    """Stateless work on streams: an input of operators, or with `start` an operator of its own."""

    def _operator(self) -> Stateless:
        """Returns the operator that writes the tuples which are left; raises if there can be none."""
        raise NotImplementedError

    def start(self, spark: SparkSession, path: str, **options: Any) -> Query:
        """Starts an operator that writes the tuples which are left to a stream at `path`, or goes on where it stood.

        There is no state: results and no footprints are written, and a recovery reads nothing. Results have the
        selected columns, in the order of the input. Options are those of `Aggregation.start`.
        """
        return self._operator().start(spark, path, **options)

    def into(self, path: str, **options: Any) -> Stage:
        """Gives this operator an output at `path`, without starting it, see `Aggregation.into`."""
        return self._operator().into(path, **options)

    def availability(self, bound: Duration, **options: Any) -> Stateless:
        """Returns the operator with a bound, see `Aggregation.availability`: no tuple waits longer for a missing
        input."""
        return self._operator().availability(bound, **options)

    def checkpoint(self, policy: Policy) -> NoReturn:
        """Raises: there is no state to save."""
        self._operator().checkpoint(policy)


def stateless(input_: Upstream, shape: Shape) -> Stateless:
    """Returns the operator that does this work on a stream, or on the union of several.

    Raises `SchemaError` if the streams of a union differ in a column that a result has.
    """
    spec, members = input_._input_spec, input_._input_members
    schema = {f["name"]: f["type"] for f in fields_of(spec.schema)}
    more_times = tuple(other._input_spec.time for other in members[1:])
    definition = StatelessDefinition(
        output=tuple(shape.columns_over(schema, spec.arrow).items()),
        key=tuple((name, type_name(schema[name])) for name in spec.key),
        time=(spec.time, type_name(schema[spec.time])),
        more_times=more_times,
        shape=shape,
        before=InputShapes.of([one._input_shape for one in members]) if more_times else UNSHAPED,
        time_is_offset=spec.time_is_offset,
    )
    takes = definition.takes
    for other, names in zip(members[1:], takes[1:], strict=True):
        require_columns(members[0], takes[0], other, names)
        _require_no_more(shape, members[0], other, names)
    return Stateless([one._bare_input for one in members], definition)


def _require_no_more(shape: Shape, first: Upstream, other: Upstream, names: Sequence[str]) -> None:
    """Raises `SchemaError` if the union would lose columns of another input without a `select` that leaves them out."""
    spec: StreamSpec = other._input_spec
    more = [name for name in spec.columns if name not in names]
    if more and not any(isinstance(step, Select) for step in shape.steps):
        raise SchemaError(
            f"another input of the union has columns that the first has not: {', '.join(more)}",
            where=f"{first._input_place.url}, {other._input_place.url}",
            todo="select the same columns of all inputs: sl.union(a.select(…), b.select(…)), or sl.union(a, "
            "b).select(…)",
        )
