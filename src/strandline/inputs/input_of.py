"""Which kind of input an operator has: nothing else asks."""

from __future__ import annotations

from collections.abc import Sequence, Set

from strandline.inputs.input import Input
from strandline.inputs.one_stream import OneStream
from strandline.inputs.serialised_union import SerialisedUnion
from strandline.log.operator_state.beginning import Beginning
from strandline.log.operator_state.standing import Standing, marks_in
from strandline.log.stream.log import Log
from strandline.operators.operator import Definition


def is_one_stream(definition: Definition, replicas: Set[int]) -> bool:
    """Returns whether places in the input of an operator are offsets; `replicas` are the numbers of its replicas.

    Offsets mean nothing in another replica, so a single input of replicas is a union of one.
    """
    return not definition.is_serialised and not replicas


def input_of(
    definition: Definition,
    logs: Sequence[Log],
    standings: Sequence[Standing] = (),
    begins: Beginning | None = None,
    *,
    replicas: Set[int] = frozenset(),
) -> Input:
    """Returns these streams as the input of an operator that began there, if not with all that they hold.

    An operator that has worked before says with its `standings` whether one input is several replicas.
    """
    if is_one_stream(definition, replicas) and not marks_in(standings):
        return OneStream(definition, logs[0], begins)
    return SerialisedUnion(definition, tuple(logs), frozenset(replicas), begins)
