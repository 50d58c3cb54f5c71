"""What the benchmark of availability has found, as the DPC paper's figures and as a table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.line_plot import Line, line_plot

Row = Mapping[str, Any]
DELAY, TENTATIVE = "longest delay of new tuples (s)", "tentative tuples"
_MODES = ("process", "delay", "suspend")


def plots(result: Mapping[str, Any]) -> dict[str, str]:
    """Every figure as SVG, by the name of its file."""
    bound_s = result["bound_s"]
    found: dict[str, str] = {}
    for name, title, x, field in (
        ("figure9", "a failure, and bounds", "bound (s)", "bound_s"),
        ("figure10", "the six combinations", "duration of the failure (s)", "failure_s"),
        ("slow", "the same, corrections held back", "duration of the failure (s)", "failure_s"),
        ("figure11", "chains", "length of the chain", "depth"),
    ):
        if rows := result[name]:
            limit = bound_s if name in ("figure10", "slow") else None
            delays = line_plot(f"{name}: {title}", x, DELAY, _lines(rows, field, "delay_new_max_s"), limit)
            found[f"{name}-delay.svg"] = delays
            found[f"{name}-tentative.svg"] = line_plot(
                f"{name}: {title}", x, TENTATIVE, _lines(rows, field, "tentative")
            )
    for field, x in (("state", "state (tuples)"), ("tentative", "tentative tuples")):
        rows = result["figure12"]["state" if field == "state" else "failure"]
        lines = {way: [(row[field], row["seconds"][way]) for row in rows] for way in ("redo", "undo")}
        found[f"figure12-{field}.svg"] = line_plot("figure12: correcting guesses", x, "seconds", lines)
    return found


def _lines(rows: Sequence[Row], x: str, y: str) -> dict[str, Line]:
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        found.setdefault(row["combination"], []).append((row[x], row[y]))
    return dict(found)


def tables(result: Mapping[str, Any]) -> list[Table]:
    """The six combinations over durations, and chains: how long new tuples waited, how many results were guesses."""
    found = [
        _table(title, result[name], "failure_s", " s")
        for name, title in (("figure10", "as fast as it is"), ("slow", "corrections held back"))
        if result[name]
    ]
    return [*found, _table("chains", result["figure11"], "depth", " in a row")]


def _table(title: str, rows: Sequence[Row], field: str, unit: str) -> Table:
    columns = sorted({row[field] for row in rows})
    table = Table(title=f"{title}: seconds / tentative", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("failing/stabilizing")
    for column in columns:
        table.add_column(f"{column:g}{unit}", justify="right")
    for name in dict.fromkeys(row["combination"] for row in sorted(rows, key=_order)):
        cells = {row[field]: f"{row['delay_new_max_s']:.1f} / {row['tentative']:,}" for row in rows if _is(row, name)}
        table.add_row(name, *(cells.get(column, "") for column in columns))
    return table


def _is(row: Row, name: str) -> bool:
    return bool(row["combination"] == name)


def _order(row: Row) -> tuple[int, ...]:
    failing, stabilizing = row["combination"].split("/")
    return _MODES.index(stabilizing), _MODES.index(failing)
