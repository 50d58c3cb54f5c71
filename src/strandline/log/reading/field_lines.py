"""Large objects as a prompt shows them: a field a line, under the name by which a program gets it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

_WIDTH_MAX = 100


def field_lines(value: Any) -> str:
    """Returns the fields of a dataclass, a line each, those of its parts indented; long ones are cut."""
    lines = [type(value).__name__, *_lines(value, "  ")]
    return "\n".join(line if len(line) <= _WIDTH_MAX else line[: _WIDTH_MAX - 1] + "…" for line in lines)


def _lines(value: Any, indent: str) -> Iterator[str]:
    for field in fields(value):
        part = getattr(value, field.name)
        if is_dataclass(part):
            yield f"{indent}{field.name}"
            yield from _lines(part, indent + "  ")
        elif isinstance(part, tuple) and part and (is_dataclass(part[0]) or isinstance(part[0], Mapping)):
            yield f"{indent}{field.name}"
            yield from (f"{indent}  {_plain(one)}" for one in part)
        else:
            yield f"{indent}{field.name}: {_plain(part)}"


def _plain(part: Any) -> str:
    """Returns `name=value, …` for a part of several values, without what an empty one is made of."""
    if is_dataclass(part):
        return ", ".join(f"{field.name}={getattr(part, field.name)!r}" for field in fields(part))
    if isinstance(part, Mapping) and part:
        return ", ".join(f"{name}={value!r}" for name, value in part.items())
    return repr(part)
