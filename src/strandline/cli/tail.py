"""`strandline tail`: the newest tuples."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from strandline.cli.arguments import (
    AsJson,
    OnePartition,
    SomeColumns,
    StreamPath,
    arrivals,
    chosen_columns,
    chosen_partitions,
    open_log,
)
from strandline.cli.terminal import QUIET, aside, out
from strandline.control_columns import OFFSET, PARTITION
from strandline.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.log.reading.merge import BlockRun
    from strandline.log.stream.log import Log


def tail(
    path: StreamPath,
    number: Annotated[int, typer.Option("-n", "--number", metavar="N", min=0, help="How many tuples.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", metavar="", help="Go on as tuples are published.")] = False,
    partition: OnePartition = None,
    columns: SomeColumns = None,
    late: Annotated[bool, typer.Option("--late", metavar="", help="The tuples that came too late.")] = False,
    tentative: Annotated[
        bool, typer.Option("--tentative", metavar="", help="Also tentative results, and how they were corrected.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the newest tuples of a stream.

    Partitions are merged by time. Tuples of the same time come from each partition in turn, and so do the results of
    count windows, whose times are offsets of their own partition. Columns that the terminal has no room for are left
    out. Times are UTC. With --json it prints one object a line, with the partition and the offset of the tuple.

    With --tentative it shows all changes of the results of an operator with a bound, the newest of each partition, and
    the state of the operator. Tentative rows that are void by now are struck out and marked void. With --follow, rows
    that an undo voids are shown once more, struck out, N of each partition at most.
    """
    from strandline.cli.tuple_lines import RowPrinter, write_json_lines
    from strandline.log.reading.merge import merged

    log = open_log(path)
    if late and partition is not None:
        raise OptionError(
            "--late does not go with --partition: the side log has no partitions",
            where=log.storage.url,
            todo="leave out --partition",
        )
    if tentative:
        from strandline.cli.tail_changes import Chosen, show_changes

        if late:
            raise OptionError(
                "--late does not go with --tentative", where=log.storage.url, todo="leave out one of them"
            )
        own = log.spec.columns if columns is None else chosen_columns(log, columns)
        telling = () if columns is not None else _most_telling_first(log)
        chosen = Chosen(chosen_partitions(log, partition), own, number, telling)
        show_changes(log, chosen, out(), follow=follow, as_json=as_json)
        return
    partitions = [log.spec.late] if late else chosen_partitions(log, partition)
    positions = [OFFSET] if late else [PARTITION, OFFSET]
    if columns is not None:
        shown, telling = chosen_columns(log, columns, positions=positions), []
    else:
        shown, telling = [*positions, *log.spec.columns], [*positions, *_most_telling_first(log)]
    rows = RowPrinter(out(), telling)
    show = partial(write_json_lines, sys.stdout) if as_json else rows.print
    if number and (newest := _newest(log, partitions, number)) is not None:
        show(newest.select(shown))
    elif number and not as_json:
        aside().print(Text("No tuples yet.", style=QUIET))
    if rows.left_out:
        aside().print(Text(f"No room for {', '.join(rows.left_out)}: --columns chooses, --json has all.", style=QUIET))
    for firsts in arrivals(log, partitions) if follow else ():
        for run in merged(log, partitions, firsts=firsts):
            show(run.table.select(shown))


def _newest(log: Log, partitions: Sequence[int], number: int) -> pa.Table | None:
    """Returns the last tuples by time. Of tuples with one time, the last of each partition come last, in turn."""
    import numpy as np
    import pyarrow as pa

    found = [(p, run) for p in partitions if (run := _last_of(log, p, number)) is not None]
    if not found:
        return None
    # Times that are offsets of the partition's own input say nothing of what came first.
    times = [np.zeros_like(run.times) if log.spec.time_is_offset else run.times for _, run in found]
    to_come = [np.searchsorted(t, t, side="right") - np.arange(len(t)) for t in times]
    owners = [np.full(len(t), p) for (p, _), t in zip(found, times, strict=True)]
    order = np.lexsort((np.concatenate(owners), -np.concatenate(to_come), np.concatenate(times)))
    return pa.concat_tables([run.table for _, run in found]).combine_chunks().take(pa.array(order[-number:]))


def _last_of(log: Log, partition: int, number: int) -> BlockRun | None:
    """Returns the last tuples of one partition, in the order of its log."""
    import numpy as np
    import pyarrow as pa

    from strandline.log.reading.merge import BlockRun, merged

    runs: deque[BlockRun] = deque()
    held = 0
    for run in merged(log, [partition], firsts={partition: _first_of_last(log, partition, number)}):
        runs.append(run)
        held += len(run.times)
        while held - len(runs[0].times) >= number:
            held -= len(runs.popleft().times)
    if not runs:
        return None
    table, times = pa.concat_tables([r.table for r in runs]), np.concatenate([r.times for r in runs])
    return BlockRun(table.slice(max(0, held - number)), times[-number:])


def _first_of_last(log: Log, partition: int, number: int) -> int:
    """Returns an offset behind which there are at least that many results, whatever control tuples lie between."""
    start, end = log.state.starts[partition], log.state.ends[partition]
    reach = number
    while reach and end - reach > start:
        blocks = list(log.blocks(partition, end - reach))
        if sum(b.results for b in blocks) >= number:
            only_results = all(b.results == b.tuples for b in blocks)
            return end - reach if only_results else blocks[0].first
        reach *= 2
    return start if reach else end


def _most_telling_first(log: Log) -> list[str]:
    """Returns the order in which columns are shown if there is no room for all of them.

    Of an operator's results that is the key and the aggregates, then the window; of others the time, then the rest.
    """
    if log.spec.operator is None:
        return [log.spec.time, *(name for name in log.spec.columns if name != log.spec.time)]
    window = [name for name in ("window_end", "window_start") if name in log.spec.columns]
    return [*(name for name in log.spec.columns if name not in window), *window]
