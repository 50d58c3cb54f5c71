"""`strandline inspect`: what a stream is, how much there is of it, and how fast it grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from strandline.cli import terminal
from strandline.cli.arguments import AsJson, StreamPath, open_log
from strandline.cli.terminal import QUIET

if TYPE_CHECKING:
    from strandline.log.stream.log import Log

_PARTITIONS_SHOWN = 16
_CHART_COLUMNS_MAX = 160
_PIPE_CHART_COLUMNS = 76
_LINES_BESIDE_PARTITIONS = 20
"""Of a stream in short and of its operator: what else there must be room for."""


def inspect(
    path: StreamPath,
    watch: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.1, help="Look again every so many seconds.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a stream holds, and the state of its operator.

    It shows schema, partitions, offsets, times, rates, size, late tuples and consumers. It opens no block, so it is
    quick for streams of any length, and it may run while others write. With --watch it shows as much as the terminal
    has room for. Times are UTC, with --json microseconds since 1970 UTC, or the numbers of an integer time column.
    """
    from strandline.inputs.stream_definition import words_of
    from strandline.log.reading.summary import summary

    log = open_log(path)
    console = terminal.out()
    if as_json:
        terminal.print_json(summary(log, words_of=words_of).to_json())
        while watch:
            log.clock.sleep(watch)
            log.refresh()
            terminal.print_json(summary(log, words_of=words_of).to_json())
        return
    if watch is None:
        console.print(_whole(log, console))
        return
    from rich.live import Live

    rendered = _fitting if console.is_terminal else _whole
    with Live(rendered(log, console), console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            log.clock.sleep(watch)
            log.refresh()
            live.update(rendered(log, console), refresh=True)


def _whole(log: Log, console: Console) -> RenderableType:
    """Shows everything, in as many lines as that takes."""
    parts = _parts(log, console, partitions=_PARTITIONS_SHOWN, is_short=False)
    top = _side_by_side(parts.pop("stream"), parts.pop("schema"), console)
    return Group(top, *parts.values())


def _fitting(log: Log, console: Console) -> RenderableType:
    """Shows as much as fits on one screen, the stream and its operator first."""
    room = console.height
    whole = _whole(log, console)
    if len(console.render_lines(whole)) <= room:
        return whole
    partitions = min(_PARTITIONS_SHOWN, max(2, room - _LINES_BESIDE_PARTITIONS))
    parts = _parts(log, console, partitions=partitions, is_short=True)
    shown: list[RenderableType] = []
    room -= 1  # for what is left out
    for name in ("stream", "operator", "tuples over time", "partitions", "consumers", "schema"):
        if name in parts and (lines := len(console.render_lines(parts[name]))) <= room:
            shown.append(parts.pop(name))
            room -= lines
    missing = f"{', '.join(parts)}: on a taller terminal, or without --watch"
    return Group(*shown, Text(missing, style=QUIET, no_wrap=True, overflow="ellipsis"))


def _parts(log: Log, console: Console, *, partitions: int, is_short: bool) -> dict[str, RenderableType]:
    from strandline.cli import inspect_parts as part
    from strandline.inputs.stream_definition import words_of
    from strandline.log.reading.summary import summary

    width = console.width - 4
    columns_max = _CHART_COLUMNS_MAX if console.is_terminal else _PIPE_CHART_COLUMNS
    chart_columns = max(10, min(width, columns_max))
    s = summary(log, buckets=chart_columns, words_of=words_of)
    now_us = log.clock.now_us()
    found = {
        "stream": (part.stream(s, now_us, is_short=is_short), "stream"),
        "schema": (part.schema(s), "schema"),
        "partitions": (part.partitions(s, width, partitions), "partitions"),
    }
    if s.operator is not None:
        found["operator"] = (part.operator(s, s.operator, partitions), "operator")
    if s.histogram is not None and s.time_min != s.time_max:
        found["tuples over time"] = part.chart(s, s.histogram)
    if s.consumers:
        found["consumers"] = (part.consumers(s, now_us, width), "consumers")
    return {name: terminal.panel(*content) for name, content in found.items()}


def _side_by_side(left: RenderableType, right: RenderableType, console: Console) -> RenderableType:
    if console.width < 100 or not console.is_terminal:
        return Group(left, right)
    grid = Table.grid(expand=True, padding=(0, 1, 0, 0))
    grid.add_column(ratio=3)
    grid.add_column(ratio=2)
    grid.add_row(left, right)
    return grid
