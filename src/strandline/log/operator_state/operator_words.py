"""What an operator is, in words: for people who inspect its stream, and for programs that want another one there."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from strandline.wording import exact_duration

_PROGRAMS = ("where", "function", "on_expire")
_FUNCTIONS = (*_PROGRAMS, "class", "arguments")
VERSIONED = (*_FUNCTIONS, "reads", "version")
"""Of an operator: what a later version of it may have changed."""
_HELPER = re.compile(r"; (\w+): def \1\(")
"""Where the text of a function goes on with one that it calls."""


def operator_text(operator: Mapping[str, Any], *, is_timestamp: bool) -> str:
    """What it does, from the JSON that stream.json has of it.

    >>> operator_text({"kind": "barrier", "inputs": [{"name": "a"}, {"name": "b"}], "at_most": 9}, is_timestamp=True)
    'barrier of a and b, at most 9 tuples of a key wait'
    """
    if "window" in operator:
        return window_text(operator["window"], is_timestamp=is_timestamp)
    if operator.get("kind") == "join":
        where = f", where {operator['where']}" if "where" in operator else ""
        where += f" (version {operator['version']})" if "version" in operator else ""
        return join_text(operator["windows"], is_timestamp=is_timestamp) + where
    if operator.get("kind") == "keyed":
        return keyed_text(operator, is_timestamp=is_timestamp)
    if operator.get("kind") == "partition_wide":
        return partition_wide_text(operator)
    if operator.get("kind") != "barrier":
        return str(operator.get("kind"))
    bound = "" if operator["at_most"] is None else f", at most {operator['at_most']:,} tuples of a key wait"
    return f"barrier of {' and '.join(one['name'] for one in operator['inputs'])}{bound}"


def keyed_text(operator: Mapping[str, Any], *, is_timestamp: bool) -> str:
    """What a keyed function has and makes, from the JSON that stream.json has of it.

    >>> body = {"state": [["n", "long"]], "output": [["z", "double"]], "expire": 3_600_000_000, "emit": 1}
    >>> keyed_text(body, is_timestamp=True)
    'keyed function: state n long; output z double; keys expire after 1 hour'
    """
    columns = [", ".join(f"{name} {kind}" for name, kind in operator[what]) or "none" for what in ("state", "output")]
    text = f"keyed function: state {columns[0]}; output {columns[1]}"
    if operator["emit"] > 1:
        text += f", up to {operator['emit']:,} a tuple"
    if operator["expire"] is not None:
        span = exact_duration(operator["expire"]) if is_timestamp else f"{operator['expire']:,}"
        text += f"; keys expire after {span}"
    return text + (f" (version {operator['version']})" if "version" in operator else "")


def partition_wide_text(operator: Mapping[str, Any]) -> str:
    """A user's class and what it was called with, from the JSON that stream.json has of it.

    >>> partition_wide_text({"class": "Model", "arguments": {"rate": 0.1}, "output": [["wafer", "long"]]})
    'class Model(rate=0.1): output wafer long'
    """
    columns = ", ".join(f"{name} {kind}" for name, kind in operator["output"])
    version = f" (version {operator['version']})" if "version" in operator else ""
    return f"class {_call_text(operator)}: output {columns}{version}"


def _call_text(operator: Mapping[str, Any]) -> str:
    return f"{operator['class']}({', '.join(f'{name}={value!r}' for name, value in operator['arguments'].items())})"


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
    """How to go on with another function, if that is all that has changed; else nothing.

    >>> version_advice({"kind": "keyed", "function": "a"}, {"kind": "keyed", "function": "b"})
    '; or, if the change is meant, say so: keyed(…, version=2)'
    """
    if any(mine.get(name) != value for name, value in wanted.items() if name not in VERSIONED):
        return ""
    if not any(name in wanted for name in _FUNCTIONS):
        return ""
    version = mine.get("version", 1) + 1
    says = f"{'where' if 'where' in wanted else 'keyed'}(…, version={version})"
    if wanted.get("kind") == "partition_wide":
        says = f"version = {version} in the class"
    return f"; or, if the change is meant, say so: {says}"


def join_text(windows: Mapping[str, Any], *, is_timestamp: bool) -> str:
    """The windows of a join, from the JSON that stream.json has of them.

    >>> join_text({"within": [-5_000_000, 600_000_000], "how": "left"}, is_timestamp=True)
    'left join, right -5 s to 10 min after left'
    >>> join_text({"left": 1024, "right": 0, "per": "partition"}, is_timestamp=True)
    'join of the last 1,024 of left and the last 0 of right, of a partition'
    """
    if "within" not in windows:
        sizes = f"the last {windows['left']:,} of left and the last {windows['right']:,} of right"
        return f"join of {sizes}, of a {windows['per']}"

    def span(value: int) -> str:
        return f"{'-' if value < 0 else ''}{exact_duration(abs(value))}" if is_timestamp else f"{value:,}"

    low, high = map(span, windows["within"])
    return f"{windows['how']} join, right {low} to {high} after left"


def window_text(window: Mapping[str, Any], *, is_timestamp: bool) -> str:
    """Its windows, from the JSON that stream.json has of them.

    >>> window_text({"kind": "time", "size": 3_600_000_000, "advance": 300_000_000}, is_timestamp=True)
    'time windows of 1 hour, a new one every 5 min'
    >>> window_text({"kind": "session", "gap": 1_800_000_000, "includes_gap": True}, is_timestamp=True)
    'sessions with gaps of at most 30 min'
    >>> window_text({"kind": "count", "size": 10, "advance": 10}, is_timestamp=False)
    'count windows of 10'
    """
    kind = window["kind"]
    has_times = is_timestamp and kind != "count"

    def span(value: int) -> str:
        return exact_duration(value) if has_times else f"{value:,}"

    if kind == "session":
        return f"sessions with gaps of {'at most' if window.get('includes_gap') else 'less than'} {span(window['gap'])}"
    size, advance = window["size"], window["advance"]
    return f"{kind} windows of {span(size)}" + ("" if advance == size else f", a new one every {span(advance)}")


def shape_text(shape: Sequence[Mapping[str, Any]]) -> str:
    """What is done to the tuples before the operator takes them in.

    >>> shape_text([{"where": "(price > 0)"}, {"select": {"id": "id", "total": "(a * b)"}}])
    'where (price > 0), select id, total=(a * b)'
    """
    return ", ".join(
        f"where {step['where']}"
        if "where" in step
        else f"select {', '.join(n if n == text else f'{n}={text}' for n, text in step['select'].items())}"
        for step in shape
    )


def shapes_text(shapes: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """The same of several inputs, by their numbers.

    >>> shapes_text([[], [{"where": "(price > 0)"}]])
    'where (price > 0) in input 2'
    """
    return "; ".join(f"{shape_text(shape)} in input {n}" for n, shape in enumerate(shapes, 1) if shape)


def origin_text(upstream: Mapping[str, Any]) -> str:
    """Of which stream `rekey` makes another, and how; nothing is known of one that comes from elsewhere.

    >>> origin_text({"stream": "5f", "path": "streams/items", "shape": [{"where": "(price > 0)"}]})
    'by rekey of streams/items (5f), where (price > 0)'
    >>> origin_text({})
    'without rekey'
    """
    if not upstream:
        return "without rekey"
    shape = shape_text(upstream["shape"])
    return f"by rekey of {upstream['path']} ({upstream['stream']}){', ' if shape else ''}{shape}"


def aggregate_texts(aggregates: Mapping[str, Any]) -> dict[str, str]:
    """Each aggregate by the name of its column, as a program writes it.

    >>> aggregate_texts({"average": ["avg", "price", "double"], "n": ["count_all", None, ""]})
    {'average': 'avg(price)', 'n': 'count_all()'}
    """
    return {name: _aggregate_text(*body) for name, body in aggregates.items()}


def _aggregate_text(
    function: str, column: str | None, _type: str = "", options: Mapping[str, Any] | None = None, *more: Any
) -> str:
    arguments = [*([] if column is None else [column]), *(f"{name}={value}" for name, value in (options or {}).items())]
    return f"{function}({', '.join([*arguments, *map(str, more)])})"


def differences(mine: Mapping[str, Any], wanted: Mapping[str, Any], *, is_timestamp: bool) -> Iterator[str]:
    """In what two operators differ, a sentence each; nothing if they are the same."""
    changed = {name for name in {*mine, *wanted} if mine.get(name) != wanted.get(name)}
    changed -= {name for name in _PROGRAMS if _is_same_program(mine.get(name), wanted.get(name))}
    if "kind" in changed:
        ours, theirs = (operator_text(o, is_timestamp=is_timestamp) for o in (mine, wanted))
        yield f"it is made by {ours}, in this program by {theirs}"
        return
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
    if changed & {"class", "arguments"}:
        yield f"it is {_call_text(mine)}, in this program {_call_text(wanted)}"
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
        "function",
        "on_expire",
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
    """The columns of both sides of a join, without the key.

    >>> _sides([[["at", "timestamp"], ["amount", "double"]], [["tags", {"type": "array", "elementType": "long"}]]])
    'left (at timestamp, amount double) and right (tags array)'
    """
    texts = (", ".join(f"{c} {k['type'] if isinstance(k, Mapping) else k}" for c, k in own) for own in columns)
    return " and ".join(f"{side} ({text})" for side, text in zip(("left", "right"), texts, strict=False))


def _changed_line(name: str, before: str, now: str) -> str:
    """The first line in which two functions differ."""
    lines = zip_longest(before.splitlines(), now.splitlines(), fillvalue="")
    old, new = next(((a.strip(), b.strip()) for a, b in lines if a != b), ("", ""))
    return f"its {name} has {old or 'nothing'!r} where this program has {new or 'nothing'!r}"


def _listed(aggregates: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={text}" for name, text in aggregate_texts(aggregates).items())


def schema_difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """What a DataFrame's columns, by name and type, have otherwise than those of a stream, for people."""
    found: list[str] = []
    found += [f"{name!r} is missing" for name in ours if name not in theirs]
    found += [f"{name!r} is not in the stream" for name in theirs if name not in ours]
    found += [
        f"{name!r} is {theirs[name]}, in the stream {ours[name]}"
        for name in ours
        if name in theirs and ours[name] != theirs[name]
    ]
    return "; ".join(found) or f"the order is {', '.join(theirs)}, in the stream {', '.join(ours)}"
