"""`start(…, since=…)`: the place where a new output begins, from the option that a user gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from strandline.errors import OptionError, StreamMismatchError
from strandline.inputs.serialised_union import beginning_at
from strandline.log.operator_state.beginning import Beginning, Since, since_text
from strandline.log.stream.log import Log
from strandline.log.stream.spec import SINCE_FORMAT, StreamSpec
from strandline.running.element import Element
from strandline.times import Time, Zone, time_value
from strandline.units import whole_number

SinceOption = Time | Mapping[int, int] | None
"""The values that `start(since=…)` takes."""


def since_of(value: SinceOption, inputs: Sequence[StreamSpec], zone: Zone, element: Element) -> Since | None:
    """Returns the option in the log's integers; None if it was not given. Raises `OptionError` if it names no place."""
    if value is None:
        return None
    if isinstance(value, str) and value in ("earliest", "latest"):
        return "earliest" if value == "earliest" else "latest"
    first = inputs[0]
    if not isinstance(value, Mapping):
        return time_value(value, "since", first.time_kind, zone)
    if not element.takes_offsets:
        raise OptionError(
            f"since={dict(value)!r}: offsets are places in one stream, and this operator reads several streams, or "
            "replicas",
            todo='give it a time, "latest" or "earliest"',
        )
    offsets = {p: whole_number(offset) for p, offset in value.items()}
    known = {p: o for p, o in offsets.items() if p in range(first.partitions) and o is not None and o >= 0}
    if len(known) < len(offsets) or not known:
        raise OptionError(
            f"since={dict(value)!r} gives no valid offset for some of the partitions 0 to {first.partitions - 1}",
            todo="pass an offset for each partition, as offsets() of the input returns them",
        )
    return known


def begun(spec: StreamSpec, since: Since | None, logs: Sequence[Log], element: Element) -> StreamSpec:
    """Returns the spec of a new output that begins at `since` in these inputs; raises if they lack that place."""
    if since is None or since == "earliest":
        return spec
    return replace(spec, begins=_beginning(since, logs, element), format=SINCE_FORMAT)


def _beginning(since: Literal["latest"] | int | Mapping[int, int], logs: Sequence[Log], element: Element) -> Beginning:
    partitions = logs[0].spec.partitions
    if isinstance(since, Mapping):
        return Beginning(since, (tuple(_kept(logs[0], p, since) for p in range(partitions)),))
    if since == "latest":
        return element.input(logs).latest()
    return beginning_at(since, logs, element.replicas, (since,) * partitions, ())


def _kept(log: Log, partition: int, asked: Mapping[int, int]) -> int:
    """Returns the offset that the user asked for; raises if it was dropped, or lies behind the end of the partition."""
    first, end = asked.get(partition, log.state.starts[partition]), log.state.ends[partition]
    log.require_kept(partition, first)
    if first > end:
        raise OptionError(
            f"since={dict(asked)!r}: partition {partition} ends at {end}",
            stream=log.storage.url,
            todo='pass offsets that are not larger than those of offsets() of the input, or "latest"',
        )
    return first


def require_same_beginning(since: Since | None, spec: StreamSpec, input_: StreamSpec, where: str) -> None:
    """Raises `StreamMismatchError` if `since` is given and an output that exists did not begin there."""
    if since is None or since == ("earliest" if spec.begins is None else spec.begins.since):
        return
    asked = None if since == "earliest" else Beginning(since, ())
    began, wanted = (since_text(one, is_timestamp=input_.time_is_timestamp) for one in (spec.begins, asked))
    raise StreamMismatchError(
        f"the stream began with since={began}, this program says since={wanted}",
        where=where,
        todo="leave since= out to go on with this stream, or write to a new stream",
    )
