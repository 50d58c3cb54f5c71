"""How the commands speak: quiet tables, one colour for what matters, JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from strandline.errors import StrandlineError

QUIET = "bright_black"
"""Borders, headings and everything that may be overlooked."""
ACCENT = "cyan"


def out() -> Console:
    """The terminal, or whatever standard output is."""
    return Console(highlight=False)


def aside() -> Console:
    """Standard error: progress and complaints, so that output can be piped."""
    return Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """One line of JSON."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_error(error: StrandlineError, *, as_json: bool) -> None:
    """What happened, where, and what to do."""
    if as_json:
        print_json({"error": error.what, "where": error.where, "todo": error.todo, "kind": type(error).__name__})
        return
    facts = facts_table()
    facts.add_row("what", Text(error.what))
    if error.where:
        facts.add_row("where", Text(error.where))
    if error.todo:
        facts.add_row("to do", Text(error.todo, style="bold"))
    aside().print(Panel(facts, title=type(error).__name__, title_align="left", border_style="red", box=box.ROUNDED))


def panel(content: Any, title: str) -> Panel:
    """A calm frame."""
    return Panel(content, title=f"[bold]{title}[/]", title_align="left", border_style=QUIET, box=box.ROUNDED)


def facts_table() -> Table:
    """Names on the left, values on the right, no lines."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style=QUIET, no_wrap=True)
    table.add_column(overflow="fold")
    return table


def rows_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table without frame; `right` names the columns of numbers."""
    table = Table(box=None, header_style=QUIET, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


# ---------------------------------------------------------------------- numbers for people


def count(number: int) -> str:
    """1,234,567"""
    return f"{number:,}"


def size(bytes_: int) -> str:
    """12.3 MB"""
    amount = float(bytes_)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"


def rate(per_second: float | None) -> str:
    """1,234 tuples/s"""
    if per_second is None:
        return "-"
    return f"{per_second:,.0f} tuples/s" if per_second >= 10 else f"{per_second:.2g} tuples/s"


def duration(us: int) -> str:
    """The largest units that matter: 250 ms, 10 s, 2 h 5 min, 7 d."""
    if us < 1_000_000:
        return f"{us / 1000:.3g} ms" if us else "0 s"
    seconds = us // 1_000_000
    if seconds < 60:
        return f"{us / 1_000_000:.3g} s"
    parts = [(seconds // 86_400, "d"), (seconds // 3_600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    first = next(i for i, (amount, _) in enumerate(parts) if amount)
    return " ".join(f"{amount} {unit}" for amount, unit in parts[first : first + 2] if amount)


def moment(us: int | None) -> str:
    """A wall-clock time, in UTC and to the second."""
    from strandline.units import time_text

    return time_text(us, is_timestamp=True).partition(".")[0]


def ago(us: int | None, now_us: int) -> str:
    """How long before now: 3 d ago, just now, never."""
    if us is None:
        return "never"
    seconds = (now_us - us) // 1_000_000
    return f"{duration(seconds * 1_000_000)} ago" if seconds > 0 else "just now"


def plural(number: int, noun: str) -> str:
    """1 block, 2 blocks."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
