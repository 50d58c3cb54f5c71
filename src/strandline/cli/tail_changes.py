"""`strandline tail --tentative`: what happens to the results of an operator with a bound, undone rows struck out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from strandline.cli.arguments import arrivals
from strandline.cli.terminal import QUIET, moment
from strandline.cli.tuple_lines import RowPrinter, write_json_lines
from strandline.control_columns import KIND, OFFSET, PARTITION
from strandline.log.operator_state.upstream import origins_of
from strandline.log.reading.tentative_results import changes
from strandline.log.upkeep.consumer_registry import folder_name
from strandline.wording import plural

if TYPE_CHECKING:
    from strandline.log.stream.log import Log

VOID = "void"
"""The kind that is shown for a tentative row that is undone, or corrected."""
_STYLES = {"tentative": "yellow", VOID: f"strike {QUIET}", "undo": "magenta", "rec_done": "green"}
_KIND_WIDTH = max(map(len, _STYLES))


class Chosen(NamedTuple):
    """The columns and the filter of what is shown of a stream."""

    partitions: Sequence[int]
    columns: Sequence[str]
    number: int
    """Rows of each partition, at the beginning and of those that an undo voids."""
    telling: Sequence[str] = ()
    """The columns in the order in which they are shown if there is no room for all of them."""


def show_changes(log: Log, chosen: Chosen, console: Console, *, follow: bool, as_json: bool) -> None:
    """Shows the newest rows of each partition, those that are void struck out; with `follow` goes on with what comes.

    Where an undo comes, the rows that it voids are shown once more, struck out. As JSON there is just what comes.
    """
    printer = _Printer(log, chosen, console)
    show = (lambda _, table: write_json_lines(console.file, table)) if as_json else printer.show
    say_state = (lambda _: None) if as_json else printer.say_state
    for p in chosen.partitions:
        show(p, _newest(log, p, chosen))
    say_state(log)
    for firsts in arrivals(log, chosen.partitions) if follow else ():
        if log.state.outage is not None and log.state.outage.state != "STABLE":
            say_state(log)  # a failure begins before the rows that came of it
        for p, first in firsts.items():
            for table in _all(log, p, first, chosen, as_json=as_json):
                show(p, table)
        say_state(log)


class _Printer:
    """Rows below each other, the state where it changes, and what an undo voids."""

    def __init__(self, log: Log, chosen: Chosen, console: Console) -> None:
        self._rows = RowPrinter(console, [KIND, PARTITION, OFFSET, *chosen.telling])
        self._number = chosen.number
        self._is_one = len(chosen.partitions) == 1
        self._guesses = {p: (0, _none(log, chosen)) for p in chosen.partitions}
        """How many rows were shown as tentative that no undo has voided since, and the last of them."""
        self._inputs = [folder_name(origin.path) for origin in origins_of(log.spec.upstream)]
        self._said: tuple[str, tuple[int, ...]] | None = None

    def show(self, partition: int, table: pa.Table) -> None:
        """Shows rows in the order of their partition, run by run of one kind."""
        kinds = table.column(KIND).to_pylist()
        edges = [at for at in range(len(kinds)) if at == 0 or kinds[at] != kinds[at - 1]]
        for first, end in itertools.pairwise([*edges, len(kinds)]):  # none if there are no rows
            self._show_run(partition, kinds[first], table.slice(first, end - first))

    def _show_run(self, partition: int, kind: str, run: pa.Table) -> None:
        where = "" if self._is_one else f"partition {partition}: "
        count, guesses = self._guesses[partition]
        if kind == "undo":
            self._guesses[partition] = (0, guesses.slice(0, 0))
            self._print(VOID, guesses)
            what = f"{plural(count, 'row')}, tentative until now" if count else "what was tentative"
            self._rows.say(f"undo       {where}{what}, {'is' if count < 2 else 'are'} void", _STYLES["undo"])
        elif kind == "rec_done":
            self._rows.say(f"rec_done   {where}what was void is corrected", _STYLES["rec_done"])
        else:
            self._print(kind, run)
            if kind == "tentative":
                known = pa.concat_tables([guesses, run])
                self._guesses[partition] = (count + len(run), known.slice(max(0, len(known) - self._number)))

    def _print(self, kind: str, rows: pa.Table) -> None:
        if len(rows):
            words = pa.repeat(f"{kind:<{_KIND_WIDTH}}", len(rows))
            self._rows.print(rows.set_column(rows.column_names.index(KIND), KIND, words), _STYLES.get(kind, ""))

    def say_state(self, log: Log) -> None:
        """Shows a line if the state has changed; flushes, also through a pipe."""
        outage = log.state.outage
        begins = outage is None and log.spec.operator is not None and not log.state.standings
        now = (outage.state, outage.missing) if outage else ("nothing yet" if begins else "no bound", ())
        if now != self._said:
            self._said = now
            reason = ": the operator has published nothing" if begins else ": nothing is ever tentative"
            since = f" since {moment(outage.since_us)} UTC" if outage else reason
            names = [self._inputs[i] if any(self._inputs[i : i + 1]) else f"input {i}" for i in now[1]]
            self._rows.say(f"{now[0]}{since}{', missing: ' if names else ''}{', '.join(names)}")
        self._rows.flush()


def _newest(log: Log, partition: int, chosen: Chosen) -> pa.Table:
    """Returns the last rows of a partition, in the order of its log."""
    start, end = log.state.starts[partition], log.state.ends[partition]
    reach = max(1, 2 * chosen.number)
    while True:
        first = max(start, end - reach)
        found = pa.concat_tables([_none(log, chosen), *_all(log, partition, first, chosen, as_json=True)])
        if len(found) >= chosen.number or first == start:
            return found.slice(max(0, len(found) - chosen.number))
        reach *= 2  # footprints stand in between


def _all(log: Log, partition: int, first: int, chosen: Chosen, *, as_json: bool) -> Iterator[pa.Table]:
    """Yields all rows from an offset on; with `as_json`, void rows say so."""
    names = list(dict.fromkeys([*chosen.columns, log.spec.time]))
    for table in changes(log, partition, first, columns=names):
        kinds = table.column(KIND)
        if as_json:
            kinds = pc.if_else(pa.array(_is_void(log, partition, table)), VOID, kinds)
        told = table.set_column(table.column_names.index(KIND), KIND, kinds)
        own = told.append_column(PARTITION, pa.repeat(pa.scalar(partition, pa.int32()), len(told)))
        yield own.select([KIND, PARTITION, OFFSET, *chosen.columns])


def _is_void(log: Log, partition: int, table: pa.Table) -> npt.NDArray[np.bool_]:
    """Returns which rows are tentative and void, by the state of the log."""
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
