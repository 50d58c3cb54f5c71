"""`sl.union(a, b, c)`: several streams as one, in the order of time, then of input, then of offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from strandline.errors import OptionError, SchemaError
from strandline.log.column_types import fields_of, type_name
from strandline.log.spec import StreamSpec
from strandline.spark.operator_input import OperatorInput
from strandline.spark.place import Place
from strandline.spark.processing_element import Input
from strandline.wording import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Union(OperatorInput):
    """Streams, or DataFrames on their way into some, that an operator takes in as one sequence of tuples."""

    def __init__(self, members: tuple[Input, ...]) -> None:
        self._members = members

    def __repr__(self) -> str:
        return f"Union({', '.join(map(repr, self._members))})"

    @property
    def members(self) -> tuple[Input, ...]:
        """The streams in their order."""
        return self._members

    @property
    def input_spec(self) -> StreamSpec:
        """What the first of them is: the others are like it in all that operators read."""
        return self._members[0].input_spec

    @property
    def input_place(self) -> Place:
        """Where the first of them is."""
        return self._members[0].input_place

    def ticks(self, spark: SparkSession) -> NoReturn:
        """Refused: operators look at each of the streams."""
        raise OptionError("a union is no stream by itself", todo="build an operator on it: union.window(…)")


def union(*inputs: Any) -> Union:
    """Several streams as one: `sl.union(a, b, c).window(…)`. Results do not depend on which of them was ahead.

    The streams, or sources, have the same key columns and partitions, and `lateness` set. A tuple is taken in when
    nothing before it can follow in any of them; what is not yet waits in its stream. Tuples of one time come in the
    order in which the streams are given here.
    """
    if len(inputs) < 2:
        raise OptionError(f"a union of {plural(len(inputs), 'stream')}", todo="give it two or more: sl.union(a, b)")
    for number, input_ in enumerate(inputs):
        if not isinstance(input_, OperatorInput) or len(input_.members) > 1:
            raise OptionError(
                f"input {number + 1} of the union is {input_!r}, not a stream",
                todo="give it sl.stream(…) or sl.source(…), and write where(…) and select(…) behind the union",
            )
    require_alike(inputs, "the union")
    return Union(inputs)


def require_alike(inputs: tuple[OperatorInput, ...], what: str) -> None:
    """Raises with what differs unless these inputs can be serialised: keys, partitions, times, lateness."""
    first = inputs[0].input_spec
    for number, input_ in enumerate(inputs):
        spec, url = input_.input_spec, input_.input_place.url
        if spec.lateness is None:
            raise OptionError(
                f"an input of {what} in which nothing is ever late: the others would wait for it for ever",
                where=url,
                todo='create the stream with lateness=, for example lateness="10 s"',
            )
        if any(_is_same(input_, other) for other in inputs[:number]):
            raise OptionError(f"the same stream twice in {what}", where=url, todo="give it each stream once")
        if spec.partitions != first.partitions:
            raise OptionError(
                f"inputs of {what} have {first.partitions} and {plural(spec.partitions, 'partition')}",
                where=f"{inputs[0].input_place.url}, {url}",
                todo="write one of them anew with the partitions of the other: stream.rekey(…, partitions=…)",
            )
        ours, theirs = _key(first), _key(spec)
        if ours != theirs:
            raise SchemaError(
                f"inputs of {what} have different keys: {_text(ours)}, and {_text(theirs)}",
                where=f"{inputs[0].input_place.url}, {url}",
                todo="key columns need the same names and types: rename or cast them before they are persisted",
            )
        if _type(first, first.time) != _type(spec, spec.time):
            raise SchemaError(
                f"inputs of {what} have times of different types: {first.time} {_type(first, first.time)}, and "
                f"{spec.time} {_type(spec, spec.time)}",
                where=f"{inputs[0].input_place.url}, {url}",
                todo="cast one of them before it is persisted",
            )


def _is_same(one: Input, other: Input) -> bool:
    if one.input_spec.id == other.input_spec.id:
        return True
    url = one.input_place.url
    return url == other.input_place.url and not url.startswith("memory:")


def _type(spec: StreamSpec, column: str) -> str:
    return next(type_name(f["type"]) for f in fields_of(spec.schema) if f["name"] == column)


def _key(spec: StreamSpec) -> list[tuple[str, str]]:
    return [(column, _type(spec, column)) for column in spec.key]


def _text(columns: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
