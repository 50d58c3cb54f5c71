"""Column types: Spark's JSON schema on one side, Arrow on the other, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from strandline.arrow_types import simple_type
from strandline.control_columns import KIND, OFFSET
from strandline.errors import SchemaError

CONTROL_FIELDS = [pa.field(OFFSET, pa.int64()), pa.field(KIND, pa.int8())]


def fields_of(schema: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Returns the fields of a struct in Spark's JSON."""
    fields: Sequence[Mapping[str, Any]] = schema["fields"]
    return fields


def type_name(kind: Any) -> str:
    """Returns a type as one short text, the same for equal types."""
    if not isinstance(kind, Mapping):
        return str(kind)
    if kind["type"] == "struct":
        return "struct<" + ",".join(f"{f['name']}:{type_name(f['type'])}" for f in fields_of(kind)) + ">"
    if kind["type"] == "array":
        return f"array<{type_name(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{type_name(kind['keyType'])},{type_name(kind['valueType'])}>"
    return str(kind["type"])


def has_map(kind: Any) -> bool:
    """Returns whether a map is anywhere in the type (Spark cannot sort by maps)."""
    return "map<" in type_name(kind)


def arrow_type(kind: Any, column: str) -> pa.DataType:
    """Returns the Arrow type in which the column is stored; `SchemaError` for types that a stream cannot hold."""
    if isinstance(kind, Mapping):
        if kind["type"] == "struct":
            return pa.struct([pa.field(f["name"], arrow_type(f["type"], column)) for f in fields_of(kind)])
        if kind["type"] == "array":
            return pa.list_(pa.field("element", arrow_type(kind["elementType"], column)))
        if kind["type"] == "map":
            return pa.map_(arrow_type(kind["keyType"], column), arrow_type(kind["valueType"], column))
    elif (found := simple_type(str(kind))) is not None:
        return found
    raise SchemaError(
        f"column {column!r} has type {type_name(kind)}, which a stream cannot hold",
        todo="cast it (for example to string or binary) before it enters the stream",
    )


def arrow_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """Returns the Arrow schema of the tuples, without the control columns."""
    return pa.schema([pa.field(f["name"], arrow_type(f["type"], f["name"])) for f in fields_of(schema)])


def block_schema(tuples: pa.Schema, footprints: Sequence[tuple[str, str]] = ()) -> pa.Schema:
    """Returns the Arrow schema of a block: the tuples' columns, offset and kind, then what only footprints fill."""
    extra = [pa.field(name, arrow_type(kind, name)) for name, kind in footprints]
    return pa.schema([*tuples, *CONTROL_FIELDS, *extra])
