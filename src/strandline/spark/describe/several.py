"""Operators over several streams with the same key: `left.join(right, …)`, `sl.barrier(temperature=a, pressure=b)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from strandline.errors import OptionError
from strandline.inputs.serialisable import require_serialisable
from strandline.log.stream.column_types import fields_of, type_name
from strandline.operators.barrier.definition import BarrierDefinition, BarrierInput
from strandline.operators.expressions.shape import InputShapes
from strandline.operators.join.definition import GROUP, JoinDefinition, JoinInput
from strandline.operators.join.join_windows import JoinWindows
from strandline.operators.join.predicate import Predicate
from strandline.spark.describe.operator_description import OperatorDescription
from strandline.spark.operator.processing_element import Upstream
from strandline.wording import plural


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
            raise OptionError(
                "a join has one condition, and where(…) was called twice",
                todo="write where(…) once: where(lambda left, right: … and …)",
            )
        definition = replace(self._definition, where=Predicate.of(condition, version))
        definition.require_sound()
        return Join(self._inputs, definition, self._policy, self._promise)


def joined(left: Upstream, right: Any, windows: JoinWindows, group: int | None) -> Join:
    """Joins two streams or sources; raises with the difference if they cannot be joined."""
    is_self = isinstance(right, Upstream) and _is_same_stream(left, right)
    names = {"left": left} if is_self else {"left": left, "right": right}
    inputs = require_several(names, "the join", least=len(names))
    first, second = (_join_input(one) for one in (left, right))
    definition = JoinDefinition.of(first, second, windows, group=GROUP if group is None else group, is_self=is_self)
    return Join([one._bare_input for one in inputs], definition)


def _is_same_stream(left: Upstream, right: Upstream) -> bool:
    """Returns whether both are one stream, whatever their shapes are."""
    if len(left._input_members) > 1 or len(right._input_members) > 1:
        return False
    url = left._input_place.url
    if url.startswith("memory:"):  # such addresses are no places
        return left._input_spec.id == right._input_spec.id
    return url == right._input_place.url


def _join_input(input_: Upstream) -> JoinInput:
    spec = input_._input_spec
    return JoinInput({f["name"]: f["type"] for f in fields_of(spec.schema)}, spec.key, spec.time, input_._input_shape)


class Barrier(OperatorDescription[BarrierDefinition]):
    """A barrier; `start` sets it going."""


def barrier(*nameless: Any, at_most: int | None = None, **inputs: Any) -> Barrier:
    """Joins the n-th tuples of all inputs, per key, into one result: `sl.barrier(temperature=a, pressure=b).start(…)`.

    Inputs, two to sixteen, are streams or sources with the same key columns and partitions, and `lateness` set. A
    result has the key columns, `time` (the latest of its tuples), and the other columns of each input, with the name of
    the input in front: `temperature_value`. With `at_most`, no more tuples of a key wait: over that the oldest is set
    aside.
    """
    if nameless:
        raise OptionError(
            f"{plural(len(nameless), 'input')} of the barrier {'has' if len(nameless) == 1 else 'have'} no name",
            todo="name the inputs, the columns of the results begin with these names: sl.barrier(temperature=a, "
            "pressure=b)",
        )
    if at_most is not None and (isinstance(at_most, bool) or not isinstance(at_most, int)):
        raise OptionError(f"barrier: at_most={at_most!r} is not a number of tuples", todo="use 1 or more, or None")
    if at_most is not None and 0 < at_most < len(inputs) - 1:
        raise OptionError(
            f"barrier: at_most={at_most} of {plural(len(inputs), 'input')}: no set would ever be complete, for "
            f"{len(inputs) - 1} tuples have to wait until the last one comes",
            todo=f"use {len(inputs) - 1} or more, or None for no bound",
        )
    found = require_several(inputs, "the barrier")
    key = found[0]._input_spec.key
    types = {f["name"]: type_name(f["type"]) for f in fields_of(found[0]._input_spec.schema)}
    own = tuple(_barrier_input(name, input_) for name, input_ in zip(inputs, found, strict=True))
    shapes = InputShapes.of([one._input_shape for one in found])
    definition = BarrierDefinition(tuple((column, types[column]) for column in key), own, at_most, shapes)
    return Barrier([one._bare_input for one in found], definition)


def _barrier_input(name: str, input_: Upstream) -> BarrierInput:
    spec = input_._input_spec
    columns = tuple((f["name"], f["type"]) for f in fields_of(spec.schema) if f["name"] not in spec.key)
    return BarrierInput(name, spec.time, columns)


def require_several(inputs: Mapping[str, Any], what: str, *, least: int = 2) -> tuple[Upstream, ...]:
    """Returns the inputs, by their names in messages; raises with what is wrong, or differs, if they cannot be read as
    one."""
    if len(inputs) < least:
        is_list = any(isinstance(input_, list | tuple) for input_ in inputs.values())
        raise OptionError(
            f"{what} has {len(inputs) or 'no'} input{', a list' if is_list else ''}",
            todo="pass two or more streams, one by one" if is_list else "pass two or more streams",
        )
    for name, input_ in inputs.items():
        if not isinstance(input_, Upstream) or len(input_._input_members) > 1:
            raise OptionError(
                f"{name} of {what} is {input_!r}, not a stream",
                todo="pass sl.stream(…) or sl.source(…), or one of them with where(…) and select(…); an operator or "
                "a union needs an output: .into(path)",
            )
    urls: dict[str, str] = {}
    for name, input_ in inputs.items():
        url = input_._input_place.url
        if url in urls and not url.startswith("memory:"):
            raise OptionError(
                f"{urls[url]} and {name} of {what} are the same stream", where=url, todo="give every stream once"
            )
        urls[url] = name
    require_serialisable({name: input_._input_spec for name, input_ in inputs.items()})
    return tuple(inputs.values())
