"""Checks that streams are replicas: one operator over the same inputs, so that the n-th result is the same in all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xxhash

from strandline.errors import NotAStreamError, StreamError, StreamMismatchError, TruncatedError
from strandline.inputs.stream_definition import words_of
from strandline.log.operator_state.beginning import since_text
from strandline.log.operator_state.upstream import compared, origins_of
from strandline.log.reading.result_ordinals import offset_of_result
from strandline.log.stream import spec as spec_
from strandline.log.stream.log import Log
from strandline.log.stream.log_errors import uncounted
from strandline.log.stream.spec import StreamSpec

_TODO = "give replicas only: the same operator, started over the same inputs with other outputs"
BEGIN_ANEW = (
    "a replica that began when its inputs were truncated already has other results: start that replica again "
    "with a new output stream, while the inputs are whole"
)


def require_replica(log: Log, other: Log) -> None:
    """Raises unless the two are replicas of each other, as far as what they are and what was said of them tells.

    Of the results themselves, the last one that both have is compared, in one partition.
    """
    where = f"{log.storage.url} and {other.storage.url}"
    if log.spec.id == other.spec.id:
        raise StreamMismatchError(
            "these are one and the same stream, or one is a copy of the other", where=where, todo=_TODO
        )
    require_same_operator(log.spec, other.spec, where)
    for one in (log, other):
        require_replicable(one)
        created = _created(one)
        if compared(created.operator) != compared(one.spec.operator):
            version = (one.spec.operator or {}).get("version", 1)
            raise StreamMismatchError(
                f"the operator has gone on with version {version} of its function, and another replica cannot know "
                "after which result",
                stream=one.storage.url,
                todo="to have replicas of the new version, start it with new output streams",
            )
    _require_same_result(log, other, where)


def require_replicable(log: Log) -> None:
    """Raises unless the results of this stream depend on nothing but its operator and its inputs."""
    for partition, standing in enumerate(log.state.standings):
        if standing.results is None:
            raise uncounted(log.storage.url)
        if standing.losses is not None:
            raise StreamMismatchError(
                f"a failure has cost the operator part of its input in partition {partition}, so that other replicas "
                "have other results",
                stream=log.storage.url,
                todo="start this replica with a new output stream and a policy that replays, sl.cec(…) or "
                "sl.instant(…)",
            )


def require_same_operator(spec: StreamSpec, other: StreamSpec, where: str) -> None:
    """Raises unless two streams are made by the same operator over the same inputs, as they are by now."""
    if problem := _difference(spec, other):
        raise StreamMismatchError(f"these streams are no replicas: {problem}", where=where, todo=_TODO)


def require_still_there(log: Log) -> None:
    """Raises unless the stream of the handle lies there still: nothing may be written into one that has begun anew.

    A disk may have been lost. The handle would publish a commit of the old stream, at a place that the new one has not
    come to yet.
    """
    if _created(log).id != log.spec.id:
        raise NotAStreamError(
            "another stream is at this path now", stream=log.storage.url, todo="wait until it has caught up"
        )


def _created(log: Log) -> StreamSpec:
    return StreamSpec.from_json(log.storage.read(spec_.KEY), f"{log.storage.url}/{spec_.KEY}")


def result_checksum(log: Log, partition: int, ordinal: int) -> str | None:
    """Returns a checksum of the result before which there are `ordinal` others; None if it was dropped."""
    try:
        offset = offset_of_result(log, partition, ordinal)
    except TruncatedError:
        return None
    (table,) = log.read(partition, offset, offset + 1, list(log.spec.columns))
    return row_checksum(table.select(list(log.spec.columns)).to_pylist()[0])


def row_checksum(row: Mapping[str, Any]) -> str:
    """Returns a checksum of a result: the same for the same values, from any block."""
    return f"xxh3:{xxhash.xxh3_64_hexdigest(repr(list(row.items())).encode())}"


def require_result(log: Log, partition: int, results: int, last: str) -> None:
    """Raises unless so many results are here, and the last has this checksum, too; empty: nothing is known of it."""
    counted = log.state.standings[partition].results or 0 if log.state.standings else 0
    if counted < results:
        raise StreamError(
            f"partition {partition} has {counted:,} results, and {results:,} were read from another replica",
            stream=log.storage.url,
            todo="wait until this replica has caught up",
        )
    found = result_checksum(log, partition, results - 1) if last and results else None
    if found is not None and found != last:
        raise StreamMismatchError(
            f"result {results - 1:,} of partition {partition} differs from that of the replica that was read before",
            stream=log.storage.url,
            todo=f"{BEGIN_ANEW}; or leave this replica out",
        )


def _require_same_result(log: Log, other: Log, where: str) -> None:
    pairs = enumerate(zip(log.state.standings, other.state.standings, strict=False))
    for partition, (ours, theirs) in pairs:
        common = min(ours.results or 0, theirs.results or 0)
        if not common:
            continue
        found, wanted = (result_checksum(one, partition, common - 1) for one in (log, other))
        if None not in (found, wanted) and found != wanted:
            raise StreamMismatchError(
                f"these streams are no replicas: they differ in result {common - 1:,} of partition {partition}",
                where=where,
                todo=BEGIN_ANEW,
            )
        return


def _difference(spec: StreamSpec, other: StreamSpec) -> str | None:
    """Returns in what two streams differ that have to be the same; None if they may be replicas."""
    for one in (spec, other):
        if one.operator is None:
            return f"the stream {one.id} was written by an entry point, not by an operator"
    before, now = (origins_of(one.upstream) for one in (spec, other))
    if [origin.stream for origin in before] != [origin.stream for origin in now]:
        return f"the inputs are {' and '.join(map(str, before))}, and {' and '.join(map(str, now))}"
    if spec.partitions != other.partitions:
        return f"they have {spec.partitions} and {other.partitions} partitions"
    if compared(spec.operator) != compared(other.operator):
        mine, its = (words_of(one).text for one in (spec, other))
        more = "" if mine != its else f", which differ in {_words(spec, other)}"
        return f"they are made by {mine}, and by {its}{more}"
    ours, theirs = (None if one.begins is None else one.begins.decides for one in (spec, other))
    if ours != theirs:
        return f"they begin at other places in their inputs: {_since(spec)}, and {_since(other)}"
    for name in ("schema", "key", "time"):
        if getattr(spec, name) != getattr(other, name):
            return f"their {name} differs: {getattr(spec, name)}, and {getattr(other, name)}"
    return None


def _since(spec: StreamSpec) -> str:
    return f"since {since_text(spec.begins, is_timestamp=spec.time_is_timestamp)}"


def _words(spec: StreamSpec, other: StreamSpec) -> str:
    ours, theirs = compared(spec.operator), compared(other.operator)
    return ", ".join(
        f"{name} ({ours.get(name, 'none')}, and {theirs.get(name, 'none')})"
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name)
    )
