"""The schema of columns, as text, as Arrow or as Spark has it, in Spark's JSON; no JVM is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from strandline.arrow_types import simple_name, simple_type
from strandline.errors import OptionError, SchemaError

_COLUMN = re.compile(r"\s*(`[^`]+`|\w+)\s*:?\s+([a-zA-Z_]+\s*(?:\(\s*\d+\s*(?:,\s*\d+\s*)?\))?)\s*(?:,|$)")
_ALIASES = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "dec": "decimal",
    "numeric": "decimal",
}


def schema_json(schema: Any) -> dict[str, Any]:
    """Makes Spark's JSON of `"id long, at timestamp"`, of a `pyarrow.Schema` or of a `StructType`.

    >>> [f["type"] for f in schema_json("id bigint, price decimal(10, 2)")["fields"]]
    ['long', 'decimal(10,2)']
    """
    if isinstance(schema, str):
        return struct_json(dict(columns_of(schema, "schema")).items())
    if isinstance(schema, pa.Schema):
        return struct_json((f.name, _of_arrow(f.type, f.name)) for f in schema)
    if hasattr(schema, "jsonValue"):
        found: dict[str, Any] = schema.jsonValue()
        return found
    raise OptionError(f"schema={schema!r} is no schema", todo='write it like "id long, at timestamp, price double"')


def struct_json(columns: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Returns Spark's JSON of a struct with these columns, names and types, all of which may be null."""
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns]
    return {"type": "struct", "fields": fields}


_TEXT_TODO = 'write it like "id long, at timestamp, price double"'
_SCHEMA_TODO = f"{_TEXT_TODO}; for structs, arrays and maps pass a pyarrow.Schema or a StructType"


def columns_of(text: str, option: str, todo: str = _SCHEMA_TODO) -> tuple[tuple[str, str], ...]:
    """Returns names and types of the columns that a text names; raises `OptionError` with `todo` if it cannot be read.

    >>> columns_of("n long, mean double", "state")
    (('n', 'long'), ('mean', 'double'))
    """
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text.rstrip()):
        match = _COLUMN.match(text, at)
        kind = "" if match is None else _kind(match[2])
        if match is None or simple_type(kind) is None:
            raise OptionError(
                f"{option}={text!r} cannot be read from {text[at : at + 30].strip()!r} on",
                todo=todo,
            )
        found.append((match[1].strip("`"), kind))
        at = match.end()
    return tuple(found)


def key_names(key: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the names of key columns as a program gives them, one or several; raises `OptionError` for a repetition.

    >>> key_names("k"), key_names(["a", "b"])
    (('k',), ('a', 'b'))
    """
    names = (key,) if isinstance(key, str) else tuple(key)
    if repeated := [name for n, name in enumerate(names) if name in names[:n]]:
        raise OptionError(
            f"the key names {repeated[0]!r} twice", where=f"key: {', '.join(names)}", todo="name each key column once"
        )
    return names


def _kind(text: str) -> str:
    name, bracket, digits = text.lower().replace(" ", "").partition("(")
    name = _ALIASES.get(name, name)
    if name == "decimal" and "," not in digits:
        return f"decimal({digits.rstrip(')') or '10'},0)"
    return f"{name}{bracket}{digits}"


def _of_arrow(kind: pa.DataType, column: str) -> Any:
    if pa.types.is_struct(kind):
        return struct_json((f.name, _of_arrow(f.type, column)) for f in kind)
    if pa.types.is_map(kind):
        key, value = _of_arrow(kind.key_type, column), _of_arrow(kind.item_type, column)
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _of_arrow(kind.value_type, column), "containsNull": True}
    name = simple_name(kind)
    if name is None:
        raise SchemaError(f"column {column!r} has type {kind}, which a stream cannot hold", todo="cast the column")
    return name
