"""The options of a table in Spark's catalog, kept where Spark does not lose them: in the schema.

Spark hands the options of `CREATE TABLE … USING strandline OPTIONS (…)` to a Python source once, when it asks for the
schema, and never again: who reads the table gets the schema and the options of that one read. So the schema that we
give for a table carries its options, as metadata of the first column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import StructField, StructType

from strandline.errors import OptionError

_METADATA = "strandline"
_CREATED = "provider"
"""Spark names the provider where a table is created, and nowhere else."""
_OPTION = "option."


def options_of_table(options: Mapping[str, str]) -> dict[str, str] | None:
    """Returns the options in `CREATE TABLE … OPTIONS (…)`, without Spark's; None if no table is being created."""
    if _CREATED not in options:
        return None
    given = {name.removeprefix(_OPTION): text for name, text in options.items() if name.startswith(_OPTION)}
    if any("storageoptions" in name.replace("_", "").lower() for name in given):
        raise OptionError(
            "storage_options would be kept in Spark's catalog, where every user can read them",
            todo="leave them out: a table takes its credentials from the environment",
        )
    if "path" in options:
        given["path"] = options["path"]
    return given


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Returns the schema of a table, which carries its options."""
    first, *others = schema.fields
    text = json.dumps(dict(options), sort_keys=True)
    return StructType(
        [StructField(first.name, first.dataType, first.nullable, {**first.metadata, _METADATA: text}), *others]
    )


def options_in(schema: StructType) -> dict[str, str]:
    """Returns the options that `with_options` has put there; nothing for a schema of another origin."""
    found: dict[str, str] = {}
    for field in schema.fields:
        found.update(json.loads(field.metadata.get(_METADATA, "{}")))
    return found


def without_options(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the schema of a stream, in Spark's JSON, without the options of a table that it was read from."""
    fields = [
        {**field, "metadata": {name: value for name, value in field["metadata"].items() if name != _METADATA}}
        for field in schema["fields"]
    ]
    return {**schema, "fields": fields}
