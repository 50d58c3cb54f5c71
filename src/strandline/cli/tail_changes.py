"""`strandline tail --tentative`: what happens to the results of an operator with a bound, undone rows struck out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console, Group, RenderableType
from rich.text import Text

from strandline.cli.terminal import QUIET, rows_table
from strandline.cli.tuple_lines import json_lines, text_columns
from strandline.log.column_types import KIND, OFFSET
from strandline.log.merge import PARTITION
from strandline.log.tentative_results import changes

if TYPE_CHECKING:
    from strandline.log.log import Log

VOID = "void"
"""What a tentative row is called that is undone, or corrected."""
_POLL_S = 0.2
_STYLES = {"tentative": "yellow", VOID: f"strike {QUIET}", "undo": "magenta", "rec_done": "green"}


class Chosen(NamedTuple):
    """What is shown of a stream."""

    partitions: Sequence[int]
    columns: Sequence[str]
    number: int
    """Rows of each partition."""


def show_changes(log: Log, chosen: Chosen, console: Console, *, follow: bool, as_json: bool) -> None:
    """Shows the newest rows of each partition; with `follow` goes on: in a terminal the same rows, as they are now.

    In a pipe and as JSON, what comes is added: an undo voids the tentative rows of its partition before it.
    """
    from rich.live import Live

    seen = log.state.ends
    if follow and console.is_terminal and not as_json:
        with Live(_shown(log, chosen), console=console, auto_refresh=False) as live:
            while True:
                log.clock.sleep(_POLL_S)
                if log.refresh():
                    live.update(_shown(log, chosen), refresh=True)
    if not as_json and console.is_terminal:
        console.print(_shown(log, chosen))
        return
    for p in chosen.partitions:
        _write(_newest(log, p, chosen), console, as_json=as_json)
    while follow:
        if not log.refresh():
            log.clock.sleep(_POLL_S)
            continue
        for p in chosen.partitions:
            for table in _all(log, p, max(seen[p], log.state.starts[p]), chosen):
                _write(table, console, as_json=as_json)
        seen = log.state.ends


def _write(table: pa.Table, console: Console, *, as_json: bool) -> None:
    lines = json_lines(table) if as_json else ("  ".join(row) for row in zip(*text_columns(table), strict=True))
    console.file.writelines(line + "\n" for line in lines)
    console.file.flush()


def _shown(log: Log, chosen: Chosen) -> RenderableType:
    """The newest rows, those that are void struck out."""
    found = pa.concat_tables([_newest(log, p, chosen) for p in chosen.partitions])
    table = rows_table(*(name.removeprefix("_") for name in found.column_names))
    for kind, *row in zip(found.column(KIND).to_pylist(), *text_columns(found), strict=True):
        table.add_row(*(Text(text, style=_STYLES.get(kind, "")) for text in row))
    outage = log.state.outage
    return Group(table, Text(f"{outage.state}, {outage.tentative} tentative" if outage else "no bound", style=QUIET))


def _newest(log: Log, partition: int, chosen: Chosen) -> pa.Table:
    """The last rows of a partition, in the order of its log."""
    start, end = log.state.starts[partition], log.state.ends[partition]
    reach = max(1, 2 * chosen.number)
    while True:
        first = max(start, end - reach)
        found = pa.concat_tables([_none(log, chosen), *_all(log, partition, first, chosen)])
        if len(found) >= chosen.number or first == start:
            return found.slice(max(0, len(found) - chosen.number))
        reach *= 2  # footprints stand in between


def _all(log: Log, partition: int, first: int, chosen: Chosen) -> Iterator[pa.Table]:
    """All rows from an offset on, with what became of them."""
    names = list(dict.fromkeys([*chosen.columns, log.spec.time]))
    for table in changes(log, partition, first, columns=names):
        kinds = pc.if_else(pa.array(_is_void(log, partition, table)), VOID, table.column(KIND))
        told = table.set_column(table.column_names.index(KIND), KIND, kinds)
        own = told.append_column(PARTITION, pa.repeat(pa.scalar(partition, pa.int32()), len(told)))
        yield own.select([KIND, PARTITION, OFFSET, *chosen.columns])


def _is_void(log: Log, partition: int, table: pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows are tentative and do not count any more, by what the state of the log says."""
    state = log.state
    forks, boundary = state.outage.forks if state.outage else (), state.boundaries[partition]
    first = forks[partition].first if forks else state.ends[partition]
    void: npt.NDArray[np.bool_] = table.column(OFFSET).to_numpy() < first
    if boundary is not None:
        void |= table.column(log.spec.time).cast(pa.int64()).to_numpy() < boundary
    void &= pc.equal(table.column(KIND), "tentative").to_numpy()
    return void


def _none(log: Log, chosen: Chosen) -> pa.Table:
    positions = [pa.field(KIND, pa.string()), pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64())]
    return pa.schema([*positions, *(log.spec.arrow.field(name) for name in chosen.columns)]).empty_table()
