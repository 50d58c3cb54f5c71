"""`strandline tail`: the newest tuples."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.arguments import AsJson, StreamPath, chosen_partitions, open_log
from strandline.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.log.log import Log

_POLL_S = 0.2


def tail(
    path: StreamPath,
    number: Annotated[int, typer.Option("-n", "--number", metavar="N", min=0, help="How many tuples.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", metavar="", help="Go on as tuples are published.")] = False,
    partition: Annotated[int | None, typer.Option(metavar="P", help="Only this partition.", show_default=False)] = None,
    late: Annotated[bool, typer.Option("--late", metavar="", help="The tuples that came too late.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the newest tuples of a stream, merged over its partitions by time.

    Times are UTC. With --json, one object a line, with the tuple's partition and offset.
    """
    from strandline.log.columns import OFFSET
    from strandline.log.merge import PARTITION, merged

    log = open_log(path)
    if late and partition is not None:
        raise OptionError("--late has no partitions", where=log.storage.url, todo="leave out --partition")
    partitions = [log.spec.late] if late else chosen_partitions(log, partition)
    positions = [OFFSET] if late else [PARTITION, OFFSET]
    show = _printer(as_json, [*positions, *_time_first(log)])
    newest: deque[pa.Table] = deque()
    held = 0
    for run in merged(log, partitions, firsts={p: _first_of_last(log, p, number) for p in partitions}):
        newest.append(run.table)
        held += len(run.table)
        # Of what is merged, only the last N tuples are wanted.
        while held - len(newest[0]) >= number:
            held -= len(newest.popleft())
    _show_last(newest, number, show)
    while follow:
        seen = log.state.ends
        if not log.refresh():
            log.clock.sleep(_POLL_S)
            continue
        firsts = {p: max(seen[p], log.state.starts[p]) for p in partitions}
        for run in merged(log, partitions, firsts=firsts):
            show(run.table)


def _first_of_last(log: Log, partition: int, number: int) -> int:
    """A place from which on there are that many results, whatever control tuples stand in between."""
    start, end = log.state.starts[partition], log.state.ends[partition]
    reach = number
    while reach and end - reach > start:
        blocks = list(log.blocks(partition, end - reach))
        if sum(b.rows.get("result", 0) for b in blocks) >= number:
            only_results = all(b.rows.get("result", 0) == b.tuples for b in blocks)
            return end - reach if only_results else blocks[0].first
        reach *= 2
    return start if reach else end


def _time_first(log: Log) -> list[str]:
    return [log.spec.time, *(name for name in log.spec.columns if name != log.spec.time)]


def _show_last(tables: deque[pa.Table], number: int, show: Callable[[pa.Table], None]) -> None:
    import pyarrow as pa

    if tables and number:
        table = pa.concat_tables(tables)
        show(table.slice(max(0, len(table) - number)))


def _printer(as_json: bool, columns: list[str]) -> Callable[[pa.Table], None]:
    import sys

    from strandline.cli.rows import RowPrinter, json_lines
    from strandline.cli.terminal import out

    rows = RowPrinter(out())

    def show(table: pa.Table) -> None:
        if as_json:
            sys.stdout.writelines(line + "\n" for line in json_lines(table.select(columns)))
            sys.stdout.flush()
        else:
            rows.print(table.select(columns))
            rows.flush()

    return show
