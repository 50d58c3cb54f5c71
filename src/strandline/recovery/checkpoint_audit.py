"""Tries a recovery out: could the operator get back to where its manifest says it stands?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from strandline.errors import CorruptionError, InputError, StrandlineError, StreamError
from strandline.inputs.input_of import input_of
from strandline.inputs.stream_definition import definition_of, require_inputs
from strandline.log.audit.problem import Problem
from strandline.log.operator_state.origin_logs import opened_origins
from strandline.log.operator_state.standing import Standing
from strandline.log.operator_state.upstream import origins_of
from strandline.log.storage.storage_url import open_storage
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import commit_key
from strandline.operators.operator import Operator
from strandline.recovery import eventual_checkpoint
from strandline.recovery.recover import Stand, recover

_TODO = (
    "keep the input: a recovery would look for an older checkpoint and replay more; let the operator run on, it saves "
    "everything anew (sl.instant with its next whole checkpoint, any other policy after such a recovery)"
)


@dataclass(frozen=True, slots=True)
class CheckpointAudit:
    """The outcome of the audit."""

    open_windows: int
    """Rebuilt from footprints, over all partitions."""
    replayed: int | None
    """Input tuples that were replayed; None if the input, or the user's function, cannot be had here."""
    problems: tuple[Problem, ...]


def audit(log: Log) -> CheckpointAudit:
    """Rebuilds the eventual checkpoint of every partition and, where inputs can be read, replays what came since."""
    inputs = _inputs_of(log)
    definition = definition_of(log.spec, log.storage.url, [input_.spec for input_ in inputs])
    can_replay = inputs and definition.can_compute
    input_ = input_of(definition, inputs, log.state.standings, log.spec.begins) if can_replay else None
    windows, replayed = 0, 0
    problems: list[Problem] = []
    for partition, standing in enumerate(log.state.standings):
        try:
            operator = eventual_checkpoint.load(log, definition, partition, standing, log.state.ends[partition])
            windows += operator.open_windows
            problems += [_problem(log, partition, standing, what) for what in _contradictions(log, partition, operator)]
            if input_ is not None and standing.replays:
                done = recover(log, input_, definition, Stand.of(log, partition))[1]
                replayed += done.replayed
        except (CorruptionError, StreamError, InputError) as problem:
            problems.append(_problem(log, partition, standing, problem.what))
    return CheckpointAudit(windows, replayed if input_ is not None else None, tuple(problems))


def _inputs_of(log: Log) -> list[Log]:
    """Returns the operator's inputs; none if one of them cannot be read from here, or is another stream by now."""
    try:
        if not all(origin.path for origin in origins_of(log.spec.upstream)):
            return []
        found = opened_origins(log, lambda path: Log.open(open_storage(path)))
        require_inputs(log, found)
    except StrandlineError:  # moved, or in a store that wants options: what is here can be checked without it
        return []
    return found


def _contradictions(log: Log, partition: int, operator: Operator) -> Iterator[str]:
    """Yields the differences between the footprints found and the standing."""
    standing, end = log.state.standings[partition], log.state.ends[partition]
    oldest = operator.oldest_footprint()
    if standing.mode != "eventual" or oldest is None or operator.definition.replays_windows:
        return
    input_end, position = oldest
    if input_end != standing.oldest:
        yield f"the oldest footprint holds the input before {input_end}, the manifest says {standing.oldest}"
    if position != end - standing.extent:
        yield f"the oldest footprint stands at offset {position}, the manifest says {end - standing.extent}"


def _problem(log: Log, partition: int, standing: Standing, what: str) -> Problem:
    end = log.state.ends[partition]
    return Problem(
        "operator",
        f"a recovery of partition {partition} would fail here: {what}",
        commit_key(log.state.seq),
        partition,
        end - standing.extent,
        end,
        _TODO,
    )
