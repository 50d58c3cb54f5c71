"""Dataclasses as parts of files in JSON: field by field, in the order in which the class names them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

_ALWAYS = object()


class JsonPart:
    """A frozen dataclass that manifests, snapshots, milestones and loss records hold."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    ONLY_IF_SAID: ClassVar[str] = ""
    """The names of fields that are left out where they have their default: most streams have none of what they say."""
    ELSEWHERE: ClassVar[str] = ""
    """The names of fields that stand elsewhere in the file."""
    PARTS: ClassVar[Mapping[str, type[JsonPart]]] = {}
    """Fields that are such dataclasses themselves, or tuples of them."""

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as a file holds them."""
        # Not `asdict`, which copies value by value: a manifest has a standing for every partition.
        kind: Any = type(self)  # mypy takes no class for hashable
        layout = _layout(kind)
        body = {name: found for name, default in layout.said if (found := getattr(self, name)) != default}
        for name in layout.tuples:
            if body.get(name) is not None:
                body[name] = list(body[name])
        for name in self.PARTS:
            if (part := body.get(name)) is not None:
                body[name] = part.to_json() if isinstance(part, JsonPart) else [one.to_json() for one in part]
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Returns the object that `to_json` wrote; ignores fields of later versions."""
        return cls(**own_fields(cls, body))

    @classmethod
    def fields_in(cls, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields that a file holds, as far as it holds them."""
        return own_fields(cls, body)


def own_fields(kind: Any, body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a class that do not stand elsewhere, as far as the file holds them."""
    _, names, tuples = _layout(kind)
    found = {name: body[name] for name in names if name in body}
    for name in tuples:
        if (several := found.get(name)) is not None:
            found[name] = tuple(several)
    for name, part in kind.PARTS.items():
        if (one := found.get(name)) is not None:
            found[name] = tuple(map(part.from_json, one)) if isinstance(one, tuple) else part.from_json(one)
    return found


class _Layout(NamedTuple):
    """The fields of one class."""

    said: tuple[tuple[str, Any], ...]
    """Their names, each with the value that is left out."""
    names: tuple[str, ...]
    tuples: tuple[str, ...]


@cache
def _layout(kind: type[Any]) -> _Layout:
    own = [f for f in fields(kind) if f.name not in kind.ELSEWHERE.split()]
    optional = kind.ONLY_IF_SAID.split()
    return _Layout(
        tuple((f.name, f.default if f.name in optional else _ALWAYS) for f in own),
        tuple(f.name for f in own),
        tuple(f.name for f in own if str(f.type).startswith("tuple")),
    )
