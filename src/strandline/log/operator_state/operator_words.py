"""Texts about operators and streams: what an operator says of itself, and how two operators or schemas differ."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from strandline.operator_texts import aggregate_texts, call_text, join_text, shape_text, shapes_text, window_text

if TYPE_CHECKING:
    from strandline.log.stream.spec import StreamSpec

_PROGRAMS = ("where", "function", "on_expire")
_FUNCTIONS = (*_PROGRAMS, "class", "arguments")
_VERSIONED = (*_FUNCTIONS, "reads", "version")
"""The fields of an operator that a later version may have changed."""
_NOT_COMPARED = ("expressions",)
"""Arrow's form of the expressions that `shape` has in words; another Arrow may write them otherwise."""
_HELPER = re.compile(r"; (\w+): def \1\(")
"""Where the text of a function goes on with one that it calls."""


@dataclass(frozen=True, slots=True)
class OperatorWords:
    """Texts that the definition of an operator gives; the log itself knows no definitions."""

    text: str
    blocked: str | None = None
    """Why there are no tentative results while an input is missing; None if there may be some."""


WordsOf = Callable[["StreamSpec"], OperatorWords]
"""Returns the texts of the operator that writes a stream."""


def kind_words(spec: StreamSpec) -> OperatorWords:
    """Returns the kind of the operator as its only text, for callers that cannot ask its definition."""
    return OperatorWords(str((spec.operator or {}).get("kind")))


def rekey_advice(key: Sequence[str], **changed: Any) -> str:
    """Returns how to make a new stream of the tuples of an old one, with this key and other settings.

    >>> rekey_advice(("k",), partitions=3)
    ', or make a new stream of its tuples: sl.stream(…).rekey("k", "new/path", partitions=3, start="earliest")'
    """
    columns = json.dumps(key[0] if len(key) == 1 else list(key), ensure_ascii=False)
    options = "".join(f"{name}={value!r}, " for name, value in changed.items())
    call = f'rekey({columns}, "new/path", {options}start="earliest")'
    return f", or make a new stream of its tuples: sl.stream(…).{call}"


def version_advice(mine: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Returns how to go on with another function, if nothing else has changed; else an empty text.

    >>> version_advice({"function": "a"}, {"function": "b"})
    '; or, if the change is meant, say so: keyed(…, version=2)'
    """
    if any(mine.get(name) != value for name, value in wanted.items() if name not in _VERSIONED):
        return ""
    if not any(name in wanted for name in _FUNCTIONS):
        return ""
    version = mine.get("version", 1) + 1
    says = f"{'where' if 'where' in wanted else 'keyed'}(…, version={version})"
    if "class" in wanted:
        says = f"version = {version} in the class"
    return f"; or, if the change is meant, say so: {says}"


def origin_text(upstream: Mapping[str, Any]) -> str:
    """Returns of which stream `rekey` makes another, and how; "without rekey" of any other stream.

    >>> origin_text({"stream": "5f", "path": "streams/items", "shape": [{"where": "(price > 0)"}]})
    'by rekey of streams/items (5f), where (price > 0)'
    >>> origin_text({})
    'without rekey'
    """
    if not upstream:
        return "without rekey"
    shape = shape_text(upstream["shape"])
    return f"by rekey of {upstream['path']} ({upstream['stream']}){', ' if shape else ''}{shape}"


def differences(mine: Mapping[str, Any], wanted: Mapping[str, Any], *, is_timestamp: bool) -> Iterator[str]:
    """Yields the differences of two operators of one kind, a sentence each."""
    changed = {name for name in {*mine, *wanted} if mine.get(name) != wanted.get(name)}
    changed -= {*_NOT_COMPARED, *(_VERSIONED if mine.get("version", 1) != wanted.get("version", 1) else ())}
    changed -= {name for name in _PROGRAMS if _is_same_program(mine.get(name), wanted.get(name))}
    if "window" in changed:
        ours, theirs = (window_text(o["window"], is_timestamp=is_timestamp) for o in (mine, wanted))
        if ours == theirs:
            ours, theirs = str(mine["window"]), str(wanted["window"])
        yield f"it has {ours}, this program says {theirs}"
    if "windows" in changed:
        ours, theirs = (join_text(o["windows"], is_timestamp=is_timestamp) for o in (mine, wanted))
        yield f"it has been: {ours}; in this program: {theirs}"
    if "aggregates" in changed:
        ours, theirs = (_listed(o["aggregates"]) for o in (mine, wanted))
        if ours == theirs:  # of the same columns, whose types are others
            ours, theirs = str(mine["aggregates"]), str(wanted["aggregates"])
        yield f"it computes {ours}, this program {theirs}"
    if "shape" in changed:
        ours, theirs = (shape_text(o.get("shape", ())) or "no where and no select" for o in (mine, wanted))
        yield f"before it there is {ours}, in this program {theirs}"
    if "shapes" in changed:
        ours, theirs = (shapes_text(o.get("shapes", ())) or "no where and no select" for o in (mine, wanted))
        yield f"before its inputs are one there is {ours}, in this program {theirs}"
    if "columns" in changed:
        ours, theirs = (_sides(o.get("columns", ())) for o in (mine, wanted))
        if ours == theirs:  # but for what is inside of nested types
            ours, theirs = str(mine["columns"]), str(wanted["columns"])
        yield f"it joins {ours}, this program {theirs}"
    if "output" in changed:
        ours, theirs = (_columns(o.get("output", ())) for o in (mine, wanted))
        if ours == theirs:  # but for what is inside of nested types
            ours, theirs = str(mine["output"]), str(wanted["output"])
        yield f"its output is {ours}, this program says {theirs}"
    if changed & {"class", "arguments"}:
        yield f"it is {call_text(mine)}, in this program {call_text(wanted)}"
    for name in ("function", "on_expire"):
        if name in changed:
            yield _changed_line(name, str(mine.get(name, "")), str(wanted.get(name, "")))
    told = {
        "window",
        "windows",
        "aggregates",
        "shape",
        "shapes",
        "columns",
        "output",
        *_PROGRAMS[1:],
        "class",
        "arguments",
    }
    if "function" in changed:
        told.add("reads")  # follows from it
    if len(changed) > 1:
        told.add("footprints")  # what they hold follows from all the others
    for name in sorted(changed - told):
        yield f"its {name} is {mine.get(name, 'none')}, this program says {wanted.get(name, 'none')}"


def _is_same_program(before: str | None, now: str | None) -> bool:
    """Returns whether two texts of functions say the same: another version of Python spells some trees otherwise.

    >>> _is_same_program("a == f(1); f: def f(x):\\n    return 'b'", 'a == (f(1)); f: def f(x):\\n  return "b"')
    True
    """
    try:
        trees = [ast.dump(ast.parse(_HELPER.sub(r"\ndef \1(", text or ""))) for text in (before, now)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # known by its code, or of a later Python
        return False
    return trees[0] == trees[1]


def _sides(columns: Sequence[Sequence[Sequence[Any]]]) -> str:
    """Returns the text of the columns of both sides of a join, without the key.

    >>> _sides([[["at", "timestamp"], ["amount", "double"]], [["tags", {"type": "array", "elementType": "long"}]]])
    'left (at timestamp, amount double) and right (tags array)'
    """
    texts = map(_columns, columns)
    return " and ".join(f"{side} ({text})" for side, text in zip(("left", "right"), texts, strict=False))


def _columns(columns: Sequence[Sequence[Any]]) -> str:
    """Returns the text of columns, names and types.

    >>> _columns([["at", "timestamp"], ["tags", {"type": "array", "elementType": "long"}]])
    'at timestamp, tags array'
    """
    return ", ".join(f"{name} {kind['type'] if isinstance(kind, Mapping) else kind}" for name, kind in columns)


def _changed_line(name: str, before: str, now: str) -> str:
    """Returns the first line in which two functions differ."""
    lines = zip_longest(before.splitlines(), now.splitlines(), fillvalue="")
    old, new = next(((a.strip(), b.strip()) for a, b in lines if a != b), ("", ""))
    return f"its {name} has {old or 'nothing'!r} where this program has {new or 'nothing'!r}"


def _listed(aggregates: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={text}" for name, text in aggregate_texts(aggregates).items())


def schema_difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Returns how a DataFrame's columns, by name and type, differ from those of a stream."""
    found: list[str] = []
    found += [f"{name!r} is missing" for name in ours if name not in theirs]
    found += [f"{name!r} is not in the stream" for name in theirs if name not in ours]
    found += [
        f"{name!r} is {theirs[name]}, in the stream {ours[name]}"
        for name in ours
        if name in theirs and ours[name] != theirs[name]
    ]
    return "; ".join(found) or f"the order is {', '.join(theirs)}, in the stream {', '.join(ours)}"
