"""The streams that an operator's stream is made of, as stream.json names them: one, or several in their order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import xxhash

if TYPE_CHECKING:
    from strandline.log.stream.spec import StreamSpec

_NOT_COMPARED = ("expressions", "footprints")
"""Of an operator: how Arrow writes what `shape` says in words, and what is saved of it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """One input: which stream it is, and where it was when the operator was created."""

    stream: str
    """Its id; of replicas what they have in common, for one that has lost its disk comes back with another id."""
    path: str
    replicas: tuple[str, ...] = ()
    """Where each of several replicas was; the path is that of the first."""
    partition: int | None = None
    """The partition that is this input, if each partition of the stream is one; None: the stream is one input."""

    def __str__(self) -> str:
        return f"{' or '.join(self.paths)} ({self.stream})"

    @property
    def paths(self) -> tuple[str, ...]:
        """Where to look for it, one place after the other."""
        return self.replicas or (self.path,)


def upstream_of(origins: Sequence[Origin]) -> dict[str, Any]:
    """Returns what stream.json says of these inputs.

    >>> upstream_of([Origin("a", "streams/a")])
    {'stream': 'a', 'path': 'streams/a'}

    What is taken in as a serialised input is a list, be it of replicas alone. If each partition of one stream is an
    input, their number stands for them.

    >>> upstream_of([Origin("a", "streams/a", partition=p) for p in range(4)])
    {'stream': 'a', 'path': 'streams/a', 'partitions': 4}
    """
    if origins[0].partition is not None:
        return {"stream": origins[0].stream, "path": origins[0].path, "partitions": len(origins)}
    bodies: list[dict[str, Any]] = [{"stream": o.stream, "path": o.path} for o in origins]
    for body, origin in zip(bodies, origins, strict=True):
        if origin.replicas:
            body["replicas"] = list(origin.replicas)
    is_one = len(origins) == 1 and not origins[0].replicas
    return bodies[0] if is_one else {"streams": bodies}


def origins_of(upstream: Mapping[str, Any] | None) -> list[Origin]:
    """Returns the inputs that `upstream_of` was given; empty for a stream that is made of none."""
    if not upstream:
        return []
    if "partitions" in upstream:
        one = Origin(str(upstream.get("stream", "")), str(upstream.get("path", "")))
        return [replace(one, partition=number) for number in range(upstream["partitions"])]
    bodies = upstream.get("streams", [upstream])
    return [
        Origin(str(body.get("stream", "")), str(body.get("path", "")), tuple(body.get("replicas", ())))
        for body in bodies
    ]


def group_of(spec: StreamSpec) -> str:
    """Returns the name of an input that is several replicas: of what they share, and no other stream has.

    A checksum of the operator that writes the stream, its inputs, its partitions and where it began.
    """
    body: list[Any] = [
        compared(spec.operator),
        [origin.stream for origin in origins_of(spec.upstream)],
        spec.partitions,
    ]
    if spec.begins is not None:
        body += spec.begins.decides
    return f"xxh3:{xxhash.xxh3_64_hexdigest(json.dumps(body, sort_keys=True).encode())}"


def compared(operator: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the part of an operator that has to be the same in all replicas."""
    return {name: value for name, value in (operator or {}).items() if name not in _NOT_COMPARED}
