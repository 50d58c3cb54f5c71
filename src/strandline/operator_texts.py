"""Texts of the parts that stream.json has of an operator: its windows, its shapes, its aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.wording import exact_duration


def window_text(window: Mapping[str, Any], *, is_timestamp: bool) -> str:
    """Returns the text of an aggregation's windows, from their JSON in stream.json.

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


def join_text(windows: Mapping[str, Any], *, is_timestamp: bool, is_self: bool = False) -> str:
    """Returns the text of a join's windows, from their JSON in stream.json.

    >>> join_text({"within": [-5_000_000, 600_000_000], "how": "left"}, is_timestamp=True)
    'left join, right -5 s to 10 min after left'
    >>> join_text({"left": 1024, "right": 0, "per": "partition"}, is_timestamp=True)
    'join of the last 1,024 of left and the last 0 of right, of a partition'
    >>> join_text({"within": [0, 5], "how": "inner", "match": "any"}, is_timestamp=False)
    'inner join, right 0 to 5 after left, whatever the keys'
    >>> join_text({"within": [-5, 5], "how": "inner"}, is_timestamp=False, is_self=True)
    'inner self join, right -5 to 5 after left'
    """
    join = "self join" if is_self else "join"
    any_key = ", whatever the keys" if windows.get("match") == "any" else ""
    if "within" not in windows:
        sizes = f"the last {windows['left']:,} of left and the last {windows['right']:,} of right"
        return f"{join} of {sizes}, of a {windows['per']}{any_key}"

    def span(value: int) -> str:
        return f"{'-' if value < 0 else ''}{exact_duration(abs(value))}" if is_timestamp else f"{value:,}"

    low, high = map(span, windows["within"])
    return f"{windows['how']} {join}, right {low} to {high} after left{any_key}"


def version_text(version: int) -> str:
    """Returns the version of a user's function in words; nothing for the first one."""
    return "" if version == 1 else f" (version {version})"


def call_text(operator: Mapping[str, Any]) -> str:
    """Returns the call of a user's class with its arguments.

    >>> call_text({"class": "Model", "arguments": {"rate": 0.1}})
    'Model(rate=0.1)'
    """
    return f"{operator['class']}({', '.join(f'{name}={value!r}' for name, value in operator['arguments'].items())})"


def shape_text(shape: Sequence[Mapping[str, Any]], *, columns_max: int | None = None) -> str:
    """Returns the text of a shape: the work on tuples before the operator takes them in.

    With `columns_max`, a selection of more columns names the first of them and counts the others.

    >>> shape_text([{"where": "(price > 0)"}, {"select": {"id": "id", "total": "(a * b)"}}])
    'where (price > 0), select id, total=(a * b)'
    >>> shape_text([{"select": {"id": "id", "a": "a", "b": "b", "c": "c"}}], columns_max=2)
    'select id, a and 2 more'
    """
    return ", ".join(
        f"where {step['where']}" if "where" in step else f"select {_selected(step['select'], columns_max)}"
        for step in shape
    )


def _selected(columns: Mapping[str, str], columns_max: int | None) -> str:
    texts = [name if name == text else f"{name}={text}" for name, text in columns.items()]
    if columns_max is None or len(texts) <= columns_max:
        return ", ".join(texts)
    return f"{', '.join(texts[:columns_max])} and {len(texts) - columns_max} more"


def shapes_text(shapes: Sequence[Sequence[Mapping[str, Any]]], *, columns_max: int | None = None) -> str:
    """Returns the text of the shapes of several inputs, by the numbers of the inputs.

    >>> shapes_text([[], [{"where": "(price > 0)"}]])
    'where (price > 0) in input 2'
    """
    texts = [shape_text(shape, columns_max=columns_max) for shape in shapes]
    return "; ".join(f"{text} in input {n}" for n, text in enumerate(texts, 1) if text)


def aggregate_texts(aggregates: Mapping[str, Any]) -> dict[str, str]:
    """Returns the text of each aggregate, as a program writes it, by the name of its column.

    >>> aggregate_texts({"average": ["avg", "price", "double"], "n": ["count_all", None, ""]})
    {'average': 'avg(price)', 'n': 'count_all()'}
    """
    return {name: _aggregate_text(*body) for name, body in aggregates.items()}


def _aggregate_text(
    function: str, column: str | None, _type: str = "", options: Mapping[str, Any] | None = None, *more: Any
) -> str:
    arguments = [*([] if column is None else [column]), *(f"{name}={value}" for name, value in (options or {}).items())]
    return f"{function}({', '.join([*arguments, *map(str, more)])})"
