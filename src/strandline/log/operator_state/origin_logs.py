"""The inputs of an operator as its stream.json names them, opened; of replicas, one that can be."""

from __future__ import annotations

from collections.abc import Callable

from strandline.errors import StrandlineError
from strandline.log.operator_state.standing import marks_in
from strandline.log.operator_state.upstream import Origin, group_of, origins_of
from strandline.log.stream.log import Log
from strandline.log.stream.partition_view import PartitionView


def opened_origins(log: Log, open_log: Callable[[str], Log]) -> list[Log]:
    """Opens the inputs of the operator that writes a stream; raises if one of them cannot be opened."""
    return [opened_origin(log, number, open_log) for number in range(len(origins_of(log.spec.upstream)))]


def opened_origin(log: Log, number: int, open_log: Callable[[str], Log]) -> Log:
    """Opens one of them, by its number: of replicas the one that was read last, or that has come furthest."""
    origin, marks = origins_of(log.spec.upstream)[number], marks_in(log.state.standings)
    last = marks[0].inputs[number].replica if marks else None
    found, problem = [], None
    for path in origin.paths:
        try:
            found.append(open_log(path))
        except StrandlineError as refused:
            problem = problem or refused
    mine = [one for one in found if is_of(origin, one)] or found
    if not mine:
        assert problem is not None
        raise problem
    ids = {last.stream} if last else ()
    best = max(mine, key=lambda one: (one.spec.id in ids, one.state.boundary is not None, one.state.boundary or 0))
    return best if origin.partition is None else PartitionView(best, origin.partition, log.spec.partitions)


def is_of(origin: Origin, log: Log) -> bool:
    """Returns whether this is the operator's input, or a replica of it."""
    return (group_of(log.spec) if origin.replicas else log.spec.id) == origin.stream
