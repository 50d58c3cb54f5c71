"""How the commands speak: quiet tables, one colour for what matters, bare lines in a pipe, JSON for programs."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from strandline.errors import StrandlineError
from strandline.wording import duration

QUIET = "bright_black"
"""Borders, headings and everything that may be overlooked."""
ACCENT = "cyan"
_PARTS = re.compile(r"[^\s/_.-]*[\s/_.-]*")
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_OFFSETS_SHOWN = 8
_PIPE_COLUMNS = 1_000
"""Lines in a pipe are not folded: programs such as `grep` read them."""


def out() -> Console:
    """Returns the console of standard output."""
    return _console(stderr=False)


def aside() -> Console:
    """Returns the console of standard error, for progress and complaints, so that output can be piped."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not has_width(console):
        console.width = _PIPE_COLUMNS
    return console


def has_width(console: Console) -> bool:
    """Returns whether lines have to fit: on a terminal, and in a pipe if COLUMNS says how wide it is."""
    return console.is_terminal or "COLUMNS" in os.environ


def print_json(value: Any) -> None:
    """Prints a value as one line of JSON."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_error(error: StrandlineError, *, as_json: bool) -> None:
    """Prints what happened, where, and what to do."""
    if as_json:
        print_json({"error": error.what, "where": error.where, "todo": error.todo, "kind": type(error).__name__})
        return
    where, todo = Text(error.where) if error.where else None, Text(error.todo, style="bold") if error.todo else None
    facts = facts_table({"what": Text(error.what), "where": where, "to do": todo})
    aside().print(_Section(facts, type(error).__name__, "red"))


class _Section:
    """Content below a title: in a frame on a terminal, as bare lines elsewhere."""

    def __init__(self, content: RenderableType, title: str, border: str) -> None:
        self._content = content
        self._title = title
        self._border = border

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if console.is_terminal:
            title = Text(self._title, style="bold")
            yield Panel(self._content, title=title, title_align="left", border_style=self._border, box=box.ROUNDED)
            return
        yield Segment(f"{self._title}\n")
        for line in console.render_lines(self._content, options.update(width=options.max_width - 2), pad=False):
            text = "".join(segment.text for segment in line)
            yield Segment(f"  {text}".rstrip() + "\n")


def panel(content: RenderableType, title: str) -> RenderableType:
    """Puts content into a frame with a title."""
    return _Section(content, title, QUIET)


def facts_table(facts: Mapping[str, RenderableType | None]) -> Table:
    """Puts names on the left and values on the right, without lines; leaves out values that are None."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style=QUIET, no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        if value is not None:
            table.add_row(name, value)
    return table


def facts_panel(title: str, facts: Mapping[str, RenderableType | None]) -> RenderableType:
    """Puts names and values into a frame with a title; leaves out values that are None."""
    return panel(facts_table(facts), title)


def rows_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Makes a table without a frame; `right` names the columns of numbers, which are never folded."""
    table = Table(box=None, header_style=QUIET, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        is_number = name in right
        table.add_column(name, justify="right" if is_number else "left", overflow="fold", no_wrap=is_number)
    return table


def fitted_table(
    cells: Mapping[str, Sequence[str]], width: int, *, right: tuple[str, ...] = (), dispensable: Sequence[str] = ()
) -> Table:
    """Makes a table without folded cells: leaves out dispensable columns, the first one first, until it fits."""
    kept = dict(cells)
    for name in dispensable:
        if sum(max(map(len, (heading, *texts))) + 2 for heading, texts in kept.items()) - 2 > width:
            kept.pop(name, None)
    table = rows_table(*kept, right=right)
    for column in table.columns:
        column.no_wrap = True
    for row in zip(*kept.values(), strict=True):
        table.add_row(*(Text(text) for text in row))
    return table


def folded(text: str, width: int) -> str:
    """Returns the text in lines of that width, which end after a space, `/`, `-`, `_` or `.` where there is one.

    Rich folds at spaces only, and cuts a path within a word.
    """
    lines = [""]
    for part in _PARTS.findall(text):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > max(1, width):
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def bars(values: Sequence[int], height: int) -> list[str]:
    """Draws a bar chart: lines, highest first, one character a value.

    A value that is not zero is always seen, however small it is beside the others.

    >>> bars([0, 1, 4, 8], height=2)
    ['   █', ' ▂██']
    """
    highest = max(values, default=0)
    levels = [0 if v <= 0 else max(1, round(v * height * 8 / highest)) for v in values]
    return ["".join(_EIGHTHS[min(8, max(0, level - 8 * row))] for level in levels) for row in range(height - 1, -1, -1)]


# ---------------------------------------------------------------------- numbers for people


def count(number: int) -> str:
    """Returns a number with separators: 1,234,567"""
    return f"{number:,}"


def size(bytes_: int) -> str:
    """Returns a size in a fitting unit: 12.3 MB"""
    amount = float(bytes_)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"


def rate(per_second: float | None) -> str:
    """Returns a rate: 1,234 tuples/s"""
    return (
        "-"
        if per_second is None
        else f"{per_second:,.0f} tuples/s"
        if per_second >= 10
        else f"{per_second:.2g} tuples/s"
    )


def moment(value: int | None, *, is_timestamp: bool = True) -> str:
    """Returns a point in time, in UTC and to the second; of an integer column its number."""
    from strandline.units import time_text

    return time_text(value, is_timestamp=is_timestamp).partition(".")[0]


def needs_text(needs: Sequence[int]) -> str:
    """Returns the first offsets that a consumer needs, by partition: 0:1,200, 1:900, …"""
    shown = [f"{p}:{count(need)}" for p, need in enumerate(needs[:_OFFSETS_SHOWN])]
    return ", ".join([*shown, *(["…"] if len(needs) > _OFFSETS_SHOWN else [])])


def ago(us: int | None, now_us: int) -> str:
    """Returns how long before now a moment was: 3 d ago, just now, never."""
    if us is None:
        return "never"
    seconds = (now_us - us) // 1_000_000
    return f"{duration(seconds * 1_000_000)} ago" if seconds > 0 else "just now"
