"""The seven kinds of operators, by their names in stream.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.errors import FormatVersionError
from strandline.operators.aggregate.aggregates import avg, count_all
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import count_window, session_window, time_window
from strandline.operators.barrier.definition import BarrierDefinition
from strandline.operators.join.definition import JoinDefinition
from strandline.operators.keyed.definition import KeyedDefinition
from strandline.operators.operator import Definition
from strandline.operators.partition_wide.definition import PartitionWideDefinition
from strandline.operators.stateless.definition import StatelessDefinition
from strandline.operators.stateless.rekey_definition import RekeyDefinition

AGGREGATE = AggregateDefinition.kind
"""The kind of operators for which stream.json has none: there was only one."""


def from_json(
    body: Mapping[str, Any], key: Mapping[str, str], types: Mapping[str, str], times: Sequence[tuple[str, str]]
) -> Definition:
    """Returns the definition of an operator whose results have these key columns and columns of these types.

    `times` are names and types of the time columns of its inputs, if they are known. Raises FormatVersionError for an
    operator of a kind that came later.
    """
    kind = body.get("kind", AGGREGATE)
    if kind == BarrierDefinition.kind:
        return BarrierDefinition.from_json(body, key)
    if kind == JoinDefinition.kind:
        return JoinDefinition.from_json(body)
    if kind == KeyedDefinition.kind:
        return KeyedDefinition.from_json(body, key, times)
    if kind == PartitionWideDefinition.kind:
        return PartitionWideDefinition.from_json(body, key, times)
    if kind == StatelessDefinition.kind:
        return StatelessDefinition.from_json(body, key, times)
    if kind == RekeyDefinition.kind:
        return RekeyDefinition.from_json(body, key, times)
    if kind != AGGREGATE:
        raise FormatVersionError(
            f"this Strandline does not know operators of the kind {kind!r}", todo="upgrade Strandline"
        )
    return AggregateDefinition.from_json(body, key, types, times)


def common_operators() -> list[tuple[Definition, Mapping[str, str]]]:
    """Returns operators that run most of the kernels which do not depend on the computation.

    Each comes with the columns of its input, whose key is the column `key`, and whose time is the column `time`.
    """
    made: list[tuple[Definition, Mapping[str, str]]] = []
    for window, key in ((count_window(2), "long"), (time_window(2), "string"), (session_window(2), "string")):
        types = {"key": key, "value": "double", "time": "timestamp"}
        aggregates = {"average": avg("value"), "n": count_all()}
        made.append((AggregateDefinition.of(window, aggregates, types, ["key"], "time"), types))
    return made
