"""The order in which the entry point puts the tuples of a batch, in plain Python: Spark's, by time, then all else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def sort_key(value: Any, kind: Any) -> tuple[Any, ...]:
    """Sorts as Spark sorts: nulls first, NaN last, zeros alike, text by its bytes; `kind` is the type in Spark's JSON.

    >>> sorted([2.0, None, math.nan, -1.0], key=lambda x: sort_key(x, "double"))
    [None, -1.0, 2.0, nan]
    """
    if value is None:
        return (0,)
    if isinstance(kind, Mapping):
        if kind["type"] == "struct":
            return (1, tuple(sort_key(value[f["name"]], f["type"]) for f in kind["fields"]))
        if kind["type"] == "array":
            return (1, tuple(sort_key(element, kind["elementType"]) for element in value))
        # Maps have no order of their own; the entry point takes their text.
        return (1, json.dumps(dict(value), separators=(",", ":"), ensure_ascii=False, default=str))
    if kind in ("float", "double"):
        return (1, True, 0.0) if math.isnan(value) else (1, False, value)
    return (1, value.encode() if isinstance(value, str) else value)
