"""Which streams can be read as one: those that agree on keys, partitions and what a time is, and that keep time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from strandline.errors import OptionError, SchemaError, StreamMismatchError
from strandline.log.stream.column_types import fields_of, type_name
from strandline.log.stream.spec import StreamSpec


def require_serialisable(inputs: Mapping[str, StreamSpec]) -> None:
    """Raises if these streams, by what they are called, cannot be serialised: says in what they differ."""
    by_id: dict[str, str] = {}
    for name, spec in inputs.items():
        if spec.id in by_id:
            raise OptionError(
                f"{by_id[spec.id]} and {name} are the same stream",
                where=spec.id,
                todo="give every stream once; an operator over several streams takes each of them once",
            )
        by_id[spec.id] = name
        require_time(name, spec)
    _require_equal(inputs, "partitions", lambda spec: str(spec.partitions), StreamMismatchError)
    _require_equal(inputs, "key", _key, SchemaError)
    _require_equal(inputs, "time", lambda spec: _types(spec)[spec.time], SchemaError)


def require_time(name: str, spec: StreamSpec) -> None:
    """Raises unless the tuples of a stream, called so, have a place in a serialised input: unless it keeps time."""
    if spec.lateness is None:
        raise OptionError(
            f"{name} has no lateness, so no operator can know up to which time it is complete",
            todo='create the stream with lateness="10 s" or however late its tuples may come',
        )
    if spec.time_is_offset:
        raise OptionError(
            f"{name} holds results of count windows, whose times are offsets and cannot be compared with others",
            todo="use time or session windows in the operator that writes it, or read the input of that operator",
        )


def _require_equal(
    inputs: Mapping[str, StreamSpec],
    what: str,
    fact: Callable[[StreamSpec], str],
    kind: type[StreamMismatchError | SchemaError],
) -> None:
    facts = {name: fact(spec) for name, spec in inputs.items()}
    if len(set(facts.values())) > 1:
        raise kind(
            f"inputs that are read as one differ in {what}",
            where="; ".join(f"{name}: {found}" for name, found in facts.items()),
            todo=_TODO[what],
        )


_TODO = {
    "partitions": "create the streams with the same number of partitions, or bring one there with rekey()",
    "key": "give all streams the same key columns of the same types, for example with rekey()",
    "time": "cast the times to one type before they enter the streams",
}


def _types(spec: StreamSpec) -> dict[str, str]:
    return {f["name"]: type_name(f["type"]) for f in fields_of(spec.schema)}


def _key(spec: StreamSpec) -> str:
    return ", ".join(f"{name} {_types(spec)[name]}" for name in spec.key)
