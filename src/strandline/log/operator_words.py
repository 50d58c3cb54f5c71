"""What an operator is, in words: for people who inspect its stream, and for programs that want another one there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from strandline.wording import exact_duration


def window_text(window: Mapping[str, Any], *, is_timestamp: bool) -> str:
    """Its windows, from the JSON that stream.json has of them.

    >>> window_text({"kind": "time", "size": 3_600_000_000, "advance": 300_000_000}, is_timestamp=True)
    'time windows of 1 hour, a new one every 5 min'
    >>> window_text({"kind": "count", "size": 10, "advance": 10}, is_timestamp=False)
    'count windows of 10'
    """
    kind, size = window["kind"], window["size"]
    has_times = is_timestamp and kind != "count"

    def span(value: int) -> str:
        return exact_duration(value) if has_times else f"{value:,}"

    parts = [f"sessions with a gap of {span(size)}" if kind == "session" else f"{kind} windows of {span(size)}"]
    if window.get("advance", size) != size:
        parts.append(f"a new one every {span(window['advance'])}")
    parts += [f"{name} {value}" for name, value in window.items() if name not in ("kind", "size", "advance")]
    return ", ".join(parts)


def aggregate_texts(aggregates: Mapping[str, Any]) -> dict[str, str]:
    """Each aggregate by the name of its column, as a program writes it.

    >>> aggregate_texts({"average": ["avg", "price", "double"], "n": ["count_all", None, ""]})
    {'average': 'avg(price)', 'n': 'count_all()'}
    """
    return {
        name: f"{function}({', '.join(['' if column is None else str(column), *map(str, more)])})"
        for name, (function, column, _type, *more) in aggregates.items()
    }


def differences(mine: Mapping[str, Any], wanted: Mapping[str, Any], *, is_timestamp: bool) -> Iterator[str]:
    """In what two operators differ, a sentence each; nothing if they are the same."""
    changed = {name for name in {*mine, *wanted} if mine.get(name) != wanted.get(name)}
    if "window" in changed:
        ours, theirs = (window_text(o["window"], is_timestamp=is_timestamp) for o in (mine, wanted))
        if ours == theirs:
            ours, theirs = str(mine["window"]), str(wanted["window"])
        yield f"it has {ours}, this program says {theirs}"
    if "aggregates" in changed:
        ours, theirs = (_listed(o["aggregates"]) for o in (mine, wanted))
        if ours == theirs:  # of the same columns, whose types are others
            ours, theirs = str(mine["aggregates"]), str(wanted["aggregates"])
        yield f"it computes {ours}, this program {theirs}"
    # What footprints hold follows from all of this.
    for name in sorted(changed - {"window", "aggregates"} - ({"footprints"} if len(changed) > 1 else set())):
        yield f"its {name} is {mine.get(name, 'none')}, this program says {wanted.get(name, 'none')}"


def _listed(aggregates: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={text}" for name, text in aggregate_texts(aggregates).items())
