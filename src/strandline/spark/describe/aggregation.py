"""`stream.window(…).aggregate(…)`: how a user says what an aggregation is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from strandline.errors import OptionError, SchemaError
from strandline.log.stream.column_types import fields_of, type_name
from strandline.log.stream.spec import StreamSpec
from strandline.operators.aggregate.aggregates import Aggregate
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import Window
from strandline.operators.expressions.shape import AS_IS, InputShapes, Shape
from strandline.spark.describe.operator_description import OperatorDescription
from strandline.spark.describe.reprs import element_html, element_text
from strandline.spark.operator.processing_element import Upstream


def _missing(method: str) -> Callable[..., NoReturn]:
    def refuse(self: Windowed, *_: Any, **__: Any) -> NoReturn:
        """Raises OptionError: there is nothing to compute yet."""
        raise OptionError(
            f"window(…) without an aggregate has no {method}()",
            todo="say what to compute over each window: .aggregate(n=sl.count_all(), …)",
        )

    return refuse


class Windowed:
    """A stream cut into windows; `aggregate` says what to compute over each."""

    start = _missing("start")
    checkpoint = _missing("checkpoint")
    availability = _missing("availability")

    def __init__(self, input_: Upstream, window: Window, shape: Shape = AS_IS) -> None:
        if not isinstance(window, Window):
            raise OptionError(
                f"window({window!r}) is not a window",
                todo='use sl.count_window(10), sl.time_window("1 hour") or sl.session_window(gap="30 min")',
            )
        if not window.size:
            raise OptionError(
                f"{window!r} keeps no tuple: such a window is for a side of a join",
                todo="use windows of 1 or more tuples",
            )
        if window.has_times and not window.has_unit and input_._input_spec.time_is_timestamp:
            raise OptionError(
                f"{window!r} was given as a number without a unit, and the times are timestamps",
                todo=f'write the unit, as in sl.{window.kind}_window("5 s")',
            )
        self._input = input_
        self._window = window
        self._shape = shape

    def __repr__(self) -> str:
        return element_text("Windowed", self._input._input_members, self._facts)

    def _repr_html_(self) -> str:
        return element_html("Windowed", self._input._input_members, self._facts, self._window.picture)

    def _facts(self) -> dict[str, object]:
        return {"window": self._window}

    def aggregate(self, **aggregates: Aggregate) -> Aggregation:
        """Adds a column to the results for each `name=aggregate`, for example `average=sl.avg("item_price")`."""
        spec = self._input._input_spec
        if self._window.has_times and spec.lateness is None:
            raise OptionError(
                f"{self._window.kind} windows need a stream with lateness=: without it they would never close",
                where=self._input._input_place.url,
                todo='create the stream with lateness=, for example lateness="10 s"',
            )
        inputs = self._input._input_members
        types = self._shape.types_over(_types(spec), spec.arrow)
        times = [other._input_spec.time for other in inputs[1:]]
        plan = AggregateDefinition.of(self._window, aggregates, types, spec.key, spec.time, self._shape, times)
        if len(inputs) > 1:
            plan = replace(plan, before=InputShapes.of([one._input_shape for one in inputs]))
        for other, names in zip(inputs[1:], plan.takes[1:], strict=True):
            require_columns(inputs[0], plan.takes[0], other, names)
        return Aggregation([one._bare_input for one in inputs], plan)


def _types(spec: StreamSpec) -> dict[str, str]:
    return {f["name"]: type_name(f["type"]) for f in fields_of(spec.schema)}


def require_columns(first: Upstream, columns: Sequence[str], other: Upstream, names: Sequence[str]) -> None:
    """Raises `SchemaError` unless the other input has what is read of the first, in the same types."""
    ours, theirs = _types(first._input_spec), _types(other._input_spec)
    for column, name in zip(columns, names, strict=True):
        if theirs.get(name) != ours[column]:
            has = f"has {name} {theirs[name]}" if name in theirs else f"has no column {name!r}"
            raise SchemaError(
                f"the operator reads {column} {ours[column]} of the first input of the union, another one {has}",
                where=f"{first._input_place.url}, {other._input_place.url}",
                todo="columns that are read need the same names and types in all inputs",
            )


class Aggregation(OperatorDescription[AggregateDefinition]):
    """A windowed aggregation; `start` sets it going."""

    def _facts(self) -> dict[str, str]:
        aggregates = [f"{a.name}={a.aggregate!r}" for a in self._definition.accumulators]
        return {"window": repr(self._definition.window), "results": ", ".join(aggregates), **self._choices}

    def _picture(self) -> str:
        return self._definition.window.picture()
