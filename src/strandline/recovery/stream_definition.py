"""Between what stream.json says of an operator and its definition."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from strandline.errors import KeyMissingError, OptionError
from strandline.log import spec as spec_
from strandline.log.column_types import fields_of, type_name
from strandline.log.spec import FORMAT, SHAPED_FORMAT, StreamSpec
from strandline.log.storage.storage import Storage
from strandline.operators.operator import Definition
from strandline.operators.registry import from_json
from strandline.version import VERSION


def definition_of(spec: StreamSpec, where: str, input_: StreamSpec | None = None) -> Definition:
    """The definition of the operator that writes a stream; good for reading its input only if that is given, too.

    Raises `OptionError` if no operator writes the stream.
    """
    if spec.operator is None:
        raise OptionError("no operator writes this stream", where=where, todo="ask the output stream of an operator")
    types = {f["name"]: type_name(f["type"]) for f in fields_of(spec.schema)}
    time = None
    if input_ is not None:
        time = (input_.time, next(type_name(f["type"]) for f in fields_of(input_.schema) if f["name"] == input_.time))
    return from_json(spec.operator, {c: types[c] for c in spec.key}, types, time)


def output_spec(definition: Definition, input_: StreamSpec, retention: int | None = None) -> StreamSpec:
    """What the stream of a new operator is."""
    return StreamSpec(
        id=str(uuid.uuid4()),
        schema={
            "type": "struct",
            "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in definition.result_columns],
        },
        key=input_.key,
        time=definition.result_time,
        partitions=input_.partitions,
        lateness=0,
        retention=retention,
        created_by=f"strandline {VERSION}",
        operator={**definition.to_json(), "footprints": [list(c) for c in definition.control_columns]},
        format=SHAPED_FORMAT if definition.needs_newer_format else FORMAT,
    )


def continued(definition: Definition, storage: Storage) -> Definition:
    """The definition by the rules of the stream that lies there, if one does: they may be older than today's."""
    spec = _stored(storage)
    return definition if spec is None else definition.continuing(spec.operator)


def stored_expressions(storage: Storage) -> Mapping[str, str]:
    """The expressions by which the stream that lies there is made of another: texts, and Arrow's form of each."""
    spec = _stored(storage)
    found: Mapping[str, str] = ((spec.upstream if spec else None) or {}).get("expressions", {})
    return found


def _stored(storage: Storage) -> StreamSpec | None:
    try:
        data = storage.read(spec_.KEY)
    except KeyMissingError:
        return None
    return StreamSpec.from_json(data, f"{storage.url}/{spec_.KEY}")
