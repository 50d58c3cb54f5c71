"""The name of an input that is several replicas: the facts that replicas share, and that no other stream has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import xxhash

from strandline.log.operator_state.upstream import origins_of
from strandline.log.stream.spec import StreamSpec

_NOT_COMPARED = ("expressions", "footprints")
"""Of an operator: how Arrow writes what `shape` says in words, and what is saved of it."""


def group_of(spec: StreamSpec) -> str:
    """Returns a checksum of the operator that writes a stream, its inputs, its partitions and where it began."""
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
