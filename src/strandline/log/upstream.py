"""What stream.json says of the streams that an operator's stream is made of: one, or several in their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Origin:
    """One input: which stream it is, and where it was when the operator was created."""

    stream: str
    path: str

    def __str__(self) -> str:
        return f"{self.path} ({self.stream})"


def upstream_of(origins: Sequence[Origin]) -> dict[str, Any]:
    """What stream.json is to say of these inputs.

    >>> upstream_of([Origin("a", "streams/a")])
    {'stream': 'a', 'path': 'streams/a'}
    """
    bodies = [{"stream": o.stream, "path": o.path} for o in origins]
    return bodies[0] if len(bodies) == 1 else {"streams": bodies}


def origins_of(upstream: Mapping[str, Any] | None) -> list[Origin]:
    """The inputs that `upstream_of` was given; empty for a stream that is made of none."""
    if not upstream:
        return []
    bodies = upstream.get("streams", [upstream])
    return [Origin(str(body.get("stream", "")), str(body.get("path", ""))) for body in bodies]
