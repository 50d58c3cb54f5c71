"""`stream.apply(…)`: a user's function over every key of a stream, or a user's class over every partition."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.checkpoint.policy import Policy, instant
from strandline.errors import OptionError, SchemaError
from strandline.log.stream.column_types import fields_of
from strandline.operators.expressions.shape import InputShapes
from strandline.operators.keyed.definition import INPUT_TYPE, KeyedDefinition
from strandline.operators.keyed.keyed_function import KeyedFunction
from strandline.operators.one_table import INPUT_NAME, GivenInput
from strandline.operators.partition_wide.definition import PartitionWideDefinition
from strandline.operators.partition_wide.user_operator import UserOperator
from strandline.running.promise import Promise
from strandline.spark.describe.aggregation import require_columns
from strandline.spark.describe.operator_description import OperatorDescription
from strandline.spark.operator.processing_element import ReplicatedInput, Upstream

DEFAULT: Final = instant("10 s")
"""The policy of a class, unless `checkpoint` names another."""


class Keyed(OperatorDescription[KeyedDefinition]):
    """A keyed function over a stream; `start` sets it going."""


def applied(input_: Upstream, function: Any) -> Keyed:
    """Applies a function to the keys of the input; raises OptionError or SchemaError if it cannot be applied."""
    is_one = isinstance(function, KeyedFunction)
    reads = function.main.use.columns["row"] if is_one else frozenset()
    inputs = _Inputs(input_, "a keyed function", "f", function.optional if is_one else (), reads)
    given = inputs.given
    if len(inputs.members) > 1:
        if INPUT_NAME in given.columns and isinstance(function, KeyedFunction) and function.names(INPUT_NAME):
            raise SchemaError(
                f"{function.name}: a column of the stream is called {INPUT_NAME!r}, the name for the number of the "
                "input",
                todo=f"give the column another name before the function: select(…, other=pc.field({INPUT_NAME!r}))",
            )
        given = replace(given, columns={**given.columns, INPUT_NAME: INPUT_TYPE})
    made = KeyedDefinition.of(function, given, inputs.more_times, inputs.before)
    return Keyed(inputs.bare(made.takes), made)


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
                f"{chosen!r} saves single windows, and the state of {definition.of.name} is one object",
                todo='use sl.instant(every="10 s"), sl.partial(every="10 s") or sl.none()',
            )
        super().__init__(inputs, definition, chosen, promise)


def applied_class(input_: Upstream, operator: UserOperator) -> PartitionWide:
    """Applies a user's class to the partitions of the input; raises OptionError or SchemaError if that cannot be."""
    inputs = _Inputs(input_, "an operator of yours", "Model()")
    made = PartitionWideDefinition.over(operator, inputs.given, inputs.more_times, inputs.before)
    return PartitionWide(inputs.bare(made.takes), made)


# ---------------------------------------------------------------------- their inputs


class _Inputs:
    """The inputs, and what the operator may know of them."""

    def __init__(
        self, input_: Upstream, what: str, call: str, optional: Sequence[str] = (), reads: Set[str] = frozenset()
    ) -> None:
        """Raises OptionError for a shape between a union and `what`, which is applied by `call`.

        Of the columns that it `reads`, those that are `optional` are null in the streams of a union that lack them.
        """
        if len(input_._input_members) > 1 and input_._input_shape:
            raise OptionError(
                f"where(…) or select(…) cannot stand between a union and {what}",
                todo=f"put it before the union: sl.union(a.where(…), b.where(…)).apply({call})",
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


def with_nulls(members: Sequence[Upstream], optional: Sequence[str], reads: Set[str]) -> tuple[Upstream, ...]:
    """Returns the streams, each with all `optional` columns that the operator reads: as nulls where it has none.

    That is a `select` before the operator, of what the operator reads: columns of no interest do not matter to it.
    Raises SchemaError for an optional column that no stream has, or that is a key or time, and for any other column
    that only some of the streams have.
    """
    fixed = {name for member in members for name in (*member._input_spec.key, member._input_spec.time)}
    kinds: dict[str, pa.DataType] = {}
    for name in optional:
        having = [member._input_spec.arrow for member in members if name in member._input_spec.columns]
        if name in fixed:
            raise SchemaError(
                f"the optional column {name!r} is the key or the time of a stream", todo="leave it out of optional="
            )
        if not having:
            raise SchemaError(
                f"no stream of the union has a column {name!r}",
                where=", ".join(member._input_place.url for member in members),
                todo="leave it out of optional=, or correct its name",
            )
        if name in reads:
            kinds[name] = having[0].field(name).type
    found = tuple(_completed(member, kinds, reads) for member in members)
    for name in sorted(reads - fixed):
        lacking = [member for member in found if name not in member._input_spec.columns]
        if 0 < len(lacking) < len(found):
            raise SchemaError(
                f"the operator reads {name!r}, and some streams of the union have no such column",
                where=", ".join(member._input_place.url for member in lacking),
                todo=f'let it be null in their tuples: @sl.keyed(…, optional="{name}"); or make it with select(…)',
            )
    return found


def _completed(member: Upstream, kinds: dict[str, pa.DataType], reads: Set[str]) -> Upstream:
    from strandline.spark.describe.shaped import Shaped, shaped

    spec = member._input_spec
    lacking = {name: pc.scalar(pa.scalar(None, kind)) for name, kind in kinds.items() if name not in spec.columns}
    if not lacking:
        return member
    wanted = [c for c in spec.columns if c in reads or c in spec.key or c == spec.time]
    return (member if isinstance(member, Shaped) else shaped(member)).select(*wanted, **lacking)
