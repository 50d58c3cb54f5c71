"""`strandline inspect`: what a stream is, how much there is of it, and how fast it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from strandline.cli import terminal
from strandline.cli.arguments import AsJson, StreamPath, open_log
from strandline.cli.chart import bars
from strandline.cli.terminal import ACCENT, QUIET, ago, count, facts_table, moment, panel, plural, rows_table, size
from strandline.log.reason import LATE

if TYPE_CHECKING:
    from strandline.log.log import Log
    from strandline.log.summary import OperatorSummary, Summary

_PARTITIONS_SHOWN = 16
_CHART_LINES = 5
_CHART_COLUMNS_MAX = 160


def inspect(
    path: StreamPath,
    watch: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.1, help="Look again every so many seconds.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show schema, partitions, offsets, time range, rates, size, late tuples, consumers, and an operator's state.

    Opens no block, so it is quick however long the stream is, and may be used while others write. Times are UTC, with
    --json microseconds since 1970 UTC, or the numbers of an integer time column.
    """
    from strandline.log.summary import summary

    log = open_log(path)
    console = terminal.out()
    if as_json:
        terminal.print_json(summary(log).to_json())
        while watch:
            log.clock.sleep(watch)
            log.refresh()
            terminal.print_json(summary(log).to_json())
        return
    if watch is None:
        console.print(_rendered(log, console))
        return
    from rich.live import Live

    with Live(_rendered(log, console), console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            log.clock.sleep(watch)
            log.refresh()
            live.update(_rendered(log, console), refresh=True)


def _rendered(log: Log, console: Console) -> RenderableType:
    from strandline.log.summary import summary

    chart_columns = max(10, min(console.width - 4, _CHART_COLUMNS_MAX))
    s = summary(log, buckets=chart_columns)
    now_us = log.clock.now_us()
    parts = [
        _side_by_side(panel(_stream(s, now_us), "stream"), panel(_schema(s), "schema"), console.width),
        panel(_partitions(s, console.width - 4), "partitions"),
    ]
    if s.operator is not None:
        parts.append(panel(_operator(s.operator), "operator"))
    if s.histogram is not None:
        parts.append(panel(_chart(s), "tuples over time"))
    if s.consumers:
        parts.append(panel(_consumers(s, now_us), "consumers"))
    return Group(*parts)


def _side_by_side(left: RenderableType, right: RenderableType, width: int) -> RenderableType:
    if width < 100:
        return Group(left, right)
    grid = Table.grid(expand=True, padding=(0, 1, 0, 0))
    grid.add_column(ratio=3)
    grid.add_column(ratio=2)
    grid.add_row(left, right)
    return grid


def _stream(s: Summary, now_us: int) -> RenderableType:
    facts = facts_table()
    facts.add_row("path", Text(s.url, style="bold"))
    facts.add_row("id", Text(s.id))
    facts.add_row("created", f"{_clock(s.created_us)} [{QUIET}]{escape(s.created_by)}[/]" if s.created_us else "-")
    facts.add_row("lateness", "nothing is ever late" if s.lateness is None else _span(s, s.lateness))
    facts.add_row("retention", "everything is kept" if s.retention is None else _span(s, s.retention))
    aside = {LATE: 0, **s.set_aside}
    beside = "".join(f"  [{QUIET}]{escape(reason)}[/] {count(tuples)}" for reason, tuples in aside.items())
    facts.add_row("tuples", f"[bold {ACCENT}]{count(s.tuples)}[/]{beside}")
    facts.add_row("size", f"{size(s.size_bytes)} in {plural(s.blocks, 'block')}, {plural(s.commits, 'commit')}")
    zone = f" [{QUIET}]UTC[/]" if s.columns[s.time] == "timestamp" else ""
    facts.add_row("time", f"{_time(s, s.time_min)} … {_time(s, s.time_max)}{zone}")
    facts.add_row("rate", _rates(s))
    facts.add_row(
        "published",
        f"{moment(s.published_us)}{' UTC' if s.published_us else ''} [{QUIET}]{ago(s.published_us, now_us)}[/]",
    )
    if s.finished:
        facts.add_row("finished", "nothing will be added")
    if s.writer is not None:
        facts.add_row("writer", Text(f"query {s.writer.query}, run {s.writer.run}, batch {s.writer.batch}"))
    return facts


def _rates(s: Summary) -> str:
    if s.rate is None or s.rate_seconds is None:
        return "-"
    window = terminal.duration(round(s.rate_seconds * 1_000_000))
    overall = terminal.rate(s.rate_overall)
    return f"{terminal.rate(s.rate)} [{QUIET}]in the last {window},[/] {overall} [{QUIET}]overall[/]"


def _schema(s: Summary) -> RenderableType:
    table = rows_table("column", "type", "")
    for name, kind in s.columns.items():
        role = ["key"] if name in s.key else []
        role += ["time"] if name == s.time else []
        table.add_row(Text(name, style=ACCENT if role else ""), Text(kind), Text(", ".join(role), style=QUIET))
    return table


def _partitions(s: Summary, width: int) -> RenderableType:
    parts = [*s.partitions[:_PARTITIONS_SHOWN], *([s.late] if s.late.end else [])]
    cells = {
        "": ["late" if p is s.late else str(p.partition) for p in parts],
        "start": [count(p.start) for p in parts],
        "end": [count(p.end) for p in parts],
        "tuples": [count(p.tuples) for p in parts],
        "blocks": [count(p.blocks) for p in parts],
        "size": [size(p.size_bytes) for p in parts],
        "oldest": [_second(s, p.time_min) for p in parts],
        "newest": [_second(s, p.time_max) for p in parts],
        "boundary": ["" if p is s.late else _second(s, p.boundary) for p in parts],
    }
    # What says least goes first if there is no room for everything.
    for name in ("blocks", "oldest", "tuples", "size"):
        if sum(max(map(len, (heading, *texts))) + 2 for heading, texts in cells.items()) > width:
            del cells[name]
    table = rows_table(*cells, right=("", "start", "end", "tuples", "blocks", "size"))
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row, style=QUIET if row[0] == "late" else "")
    if len(s.partitions) <= _PARTITIONS_SHOWN:
        return table
    more = f"… and {count(len(s.partitions) - _PARTITIONS_SHOWN)} more partitions; --json has them all"
    return Group(table, Text(more, style=QUIET))


def _chart(s: Summary) -> RenderableType:
    assert s.histogram is not None
    values = s.histogram.tuples
    lines = [Text(line, style=ACCENT) for line in bars(values, _CHART_LINES)]
    axis = Table.grid(expand=True)
    axis.add_column()
    axis.add_column(justify="center")
    axis.add_column(justify="right")
    bucket = s.histogram.edges[1] - s.histogram.edges[0]
    middle = f"highest {plural(max(values), 'tuple')} in {_span(s, round(bucket))}"
    axis.add_row(_time(s, s.time_min), middle, _time(s, s.time_max), style=QUIET)
    return Group(*lines, axis)


def _operator(o: OperatorSummary) -> RenderableType:
    facts = facts_table()
    window = ", ".join(f"{name} {value}" for name, value in o.window.items() if name != "kind")
    facts.add_row("window", Text(f"{o.window['kind']} ({window})"))
    facts.add_row("aggregates", Text(", ".join(f"{name} = {what}" for name, what in o.aggregates.items())))
    facts.add_row("input", Text(o.input))
    marks = f"{count(o.footprints['g_open'])} G-open, {count(o.footprints['g_check'])} G-check in the last batch"
    facts.add_row("open windows", f"[bold {ACCENT}]{count(o.open_windows)}[/]  [{QUIET}]footprints[/] {marks}")
    facts.add_row("recovery", f"{o.predicted_recovery_s} s predicted [{QUIET}]({o.mode})[/]")
    table = rows_table("", "input", "open", "extent q", "replay u", "predicted", "last recovery", right=_RIGHT)
    for p in o.partitions:
        r = p["last_recovery"]
        last = (
            ""
            if r is None
            else f"{count(r['extent'])} read in {r['load_s']} s, {count(r['replayed'])} replayed in {r['replay_s']} s"
        )
        numbers = (p["partition"], p["input"], p["open_windows"], p["extent"], p["replay"])
        table.add_row(*map(count, numbers), f"{p['predicted_recovery_s']} s", Text(last, style=QUIET))
    return Group(facts, table)


_RIGHT = ("", "input", "open", "extent q", "replay u", "predicted")


def _consumers(s: Summary, now_us: int) -> RenderableType:
    table = rows_table("name", "behind", "needs from", "moved on", right=("behind",))
    for c in s.consumers:
        shown = ", ".join(f"{p}:{count(need)}" for p, need in enumerate(c.needs[:8]))
        more = ", …" if len(c.needs) > 8 else ""
        behind = Text(count(c.lag_tuples), style="" if c.lag_tuples else "green")
        table.add_row(Text(c.name), behind, shown + more, ago(c.updated_us, now_us))
    return table


def _time(s: Summary, value: int | None) -> str:
    from strandline.units import time_text

    return time_text(value, is_timestamp=s.time_is_timestamp)


def _clock(us: int | None) -> str:
    """A time of a machine's clock."""
    return "-" if us is None else f"{moment(us)} UTC"


def _second(s: Summary, value: int | None) -> str:
    return moment(value) if s.time_is_timestamp else _time(s, value)


def _span(s: Summary, value: int) -> str:
    return terminal.duration(value) if s.time_is_timestamp else count(value)
