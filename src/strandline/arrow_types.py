"""The types of columns by Spark's names, and the Arrow types in which they are stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

SIMPLE: dict[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def decimal_of(kind: str) -> tuple[int, int] | None:
    """Returns precision and scale of a decimal type, None for any other type."""
    match = _DECIMAL.fullmatch(kind)
    return (int(match[1]), int(match[2])) if match else None


def simple_type(kind: str) -> pa.DataType | None:
    """Returns the Arrow type of a simple type, None for structs, arrays, maps and types that streams do not hold."""
    decimal = decimal_of(kind)
    return pa.decimal128(*decimal) if decimal else SIMPLE.get(kind)


_NAMES = {kind: name for name, kind in SIMPLE.items()}


def simple_name(kind: pa.DataType) -> str | None:
    """Returns Spark's name of an Arrow type, None for a type that `simple_type` never gives."""
    if pa.types.is_decimal128(kind) and kind.scale >= 0:
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES.get(kind)


def nested_type(kind: Any) -> pa.DataType | None:
    """Returns the Arrow type of any type in Spark's JSON, also a nested one; None if streams do not hold it."""
    if not isinstance(kind, Mapping):
        return simple_type(str(kind))
    if kind["type"] == "struct":
        fields = [(f["name"], nested_type(f["type"])) for f in kind["fields"]]
        return None if any(found is None for _, found in fields) else pa.struct([pa.field(n, t) for n, t in fields])
    if kind["type"] == "array":
        element = nested_type(kind["elementType"])
        return None if element is None else pa.list_(pa.field("element", element))
    if kind["type"] == "map":
        key, value = nested_type(kind["keyType"]), nested_type(kind["valueType"])
        return None if key is None or value is None else pa.map_(key, value)
    return None
