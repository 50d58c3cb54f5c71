"""The definition of the operator that stream.json states, and the texts that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from strandline.errors import FormatVersionError
from strandline.log.operator_state.operator_words import OperatorWords, kind_words
from strandline.log.stream.column_types import fields_of, type_name
from strandline.log.stream.spec import StreamSpec

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
    try:
        definition = stated_operator(spec)
    except FormatVersionError:
        return kind_words(spec)
    return OperatorWords(definition.text(is_timestamp=spec.time_is_timestamp), definition.blocked_without_input)
