"""From what stream.json says of an operator to its definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.errors import FormatVersionError
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.barrier.definition import BarrierDefinition
from strandline.operators.join.definition import JoinDefinition
from strandline.operators.keyed.definition import KeyedDefinition
from strandline.operators.operator import Definition
from strandline.operators.partition_wide.definition import PartitionWideDefinition

AGGREGATE = AggregateDefinition.kind
"""Of operators of which stream.json says no kind: there was only one."""


def from_json(
    body: Mapping[str, Any], key: Mapping[str, str], types: Mapping[str, str], times: Sequence[tuple[str, str]]
) -> Definition:
    """The definition of an operator whose results have these key columns and columns of these types.

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
    if kind != AGGREGATE:
        raise FormatVersionError(
            f"an operator of the kind {kind!r}, which is not known here", todo="upgrade Strandline"
        )
    return AggregateDefinition.from_json(body, key, types, times)
