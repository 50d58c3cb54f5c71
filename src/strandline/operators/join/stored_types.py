"""Types of a join's columns: Spark's JSON on one side, Arrow on the other, nested ones included."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from strandline.arrow_types import nested_type
from strandline.errors import SchemaError


def type_text(kind: Any) -> str:
    """Returns a type as a text that is equal for equal types: Spark's name, or the JSON of a nested type."""
    return json.dumps(kind, sort_keys=True) if isinstance(kind, Mapping) else str(kind)


def type_json(text: str) -> Any:
    """Returns what `type_text` was made of."""
    return json.loads(text) if text.startswith("{") else text


def stored_type(text: str) -> pa.DataType:
    """Returns the Arrow type of a column; `SchemaError` for a type that no stream holds."""
    found = nested_type(type_json(text))
    if found is None:
        raise SchemaError(f"a column of type {text}, which a stream cannot hold", todo="cast it before it is joined")
    return found
