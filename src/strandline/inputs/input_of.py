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


def input_kind(definition: Definition, replicas: Set[int] = frozenset()) -> type[OneStream | SerialisedUnion]:
    """Returns the kind of input of an operator; `replicas` are the numbers of inputs that are several replicas.

    Offsets mean nothing in another replica, so a single input of replicas is a union of one.
    """
    return SerialisedUnion if len(definition.times) > 1 or replicas else OneStream


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
    if input_kind(definition, replicas) is SerialisedUnion or marks_in(standings):
        return SerialisedUnion(definition, tuple(logs), frozenset(replicas), begins)
    return OneStream(definition, logs[0], begins)
