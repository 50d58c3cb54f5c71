"""Between what stream.json says of an operator and its definition, and the texts that the definition gives."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from strandline.errors import FormatVersionError, KeyMissingError, OptionError, StreamMismatchError
from strandline.log.operator_state.operator_words import OperatorWords, kind_words
from strandline.log.operator_state.origin_logs import is_of
from strandline.log.operator_state.upstream import origins_of
from strandline.log.storage.storage import Storage
from strandline.log.stream import spec as spec_
from strandline.log.stream.column_types import fields_of, type_name
from strandline.log.stream.log import Log
from strandline.log.stream.spec import FORMAT, SEVERAL_FORMAT, SHAPED_FORMAT, StreamSpec
from strandline.schema_text import struct_json
from strandline.units import Retention
from strandline.version import VERSION
from strandline.wording import plural

if TYPE_CHECKING:
    from strandline.operators.operator import Definition


def stated_operator(spec: StreamSpec, times: Sequence[tuple[str, str]] = ()) -> Definition:
    """Returns the definition of the operator that writes a stream; raises FormatVersionError if its kind is unknown.

    `times` are names and types of the time columns of its inputs, if they are known.
    """
    from strandline.operators.registry import from_json  # takes a while: it imports every operator's compiler

    types = {f["name"]: type_name(f["type"]) for f in fields_of(spec.schema)}
    return from_json(spec.operator or {}, {c: types[c] for c in spec.key}, types, times)


def words_of(spec: StreamSpec) -> OperatorWords:
    """Returns the texts that the operator of a stream gives; of an unknown kind, only the kind."""
    several = len(origins_of(spec.upstream))
    try:
        definition = stated_operator(spec, [_time_of(spec)] * several if several > 1 else ())
    except FormatVersionError:
        return kind_words(spec)
    return OperatorWords(definition.text(is_timestamp=spec.time_is_timestamp), definition.blocked_without_input)


def definition_of(spec: StreamSpec, where: str, inputs: Sequence[StreamSpec] = ()) -> Definition:
    """Returns the definition of the operator that writes a stream; with `inputs`, one that can read them.

    Raises `OptionError` if no operator writes the stream.
    """
    if spec.operator is None:
        raise OptionError("no operator writes this stream", where=where, todo="ask the output stream of an operator")
    return stated_operator(spec, [_time_of(input_) for input_ in inputs])


def _time_of(spec: StreamSpec) -> tuple[str, str]:
    return spec.time, next(type_name(f["type"]) for f in fields_of(spec.schema) if f["name"] == spec.time)


def require_inputs(log: Log, inputs: Sequence[Log]) -> None:
    """Raises `StreamMismatchError` if these are not the inputs of the operator that writes the stream."""
    origins = origins_of(log.spec.upstream)
    if len(origins) != len(inputs):
        raise StreamMismatchError(
            f"{plural(len(inputs), 'stream')} for an operator over {len(origins)}",
            stream=log.storage.url,
            todo="give it the streams that stream.json names, in their order",
        )
    for origin, input_ in zip(origins, inputs, strict=True):
        if not is_of(origin, input_):
            raise StreamMismatchError(
                f"the stream has another id ({input_.spec.id}) than the operator's input ({origin.stream})",
                stream=input_.storage.url,
                todo="put the input back where the operator has read it, or ask for open_windows() as they were saved",
            )


def output_spec(definition: Definition, input_: StreamSpec, retention: Retention | None = None) -> StreamSpec:
    """Returns the spec of the stream of a new operator, in the oldest format whose readers would understand it."""
    oldest = SHAPED_FORMAT if definition.needs_newer_format else FORMAT
    oldest = SEVERAL_FORMAT if definition.is_serialised else oldest
    return StreamSpec(
        id=str(uuid.uuid4()),
        schema=struct_json(definition.result_columns),
        key=definition.result_key(input_.key),
        time=definition.result_time,
        partitions=input_.partitions,
        lateness=definition.result_lateness(input_.lateness),
        retention=retention,
        created_by=f"strandline {VERSION}",
        operator={**definition.to_json(), "footprints": [list(c) for c in definition.control_columns]},
        format=oldest,
    )


def continued(definition: Definition, storage: Storage) -> Definition:
    """Returns the definition by the rules of the stream there, if there is one: they may be older than today's."""
    spec = _stored(storage)
    return definition if spec is None else definition.continuing(spec.operator)


def stored_expressions(storage: Storage) -> Mapping[str, str]:
    """Returns the expressions by which the stream there is made of another: texts, and Arrow's form of each."""
    spec = _stored(storage)
    found: Mapping[str, str] = ((spec.upstream if spec else None) or {}).get("expressions", {})
    return found


def _stored(storage: Storage) -> StreamSpec | None:
    try:
        data = storage.read(spec_.KEY)
    except KeyMissingError:
        return None
    return StreamSpec.from_json(data, f"{storage.url}/{spec_.KEY}")
