"""`strandline replay`: the tuples again, from any point in time, as fast as they came or faster."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.text import Text

from strandline.cli.arguments import (
    AsJson,
    OnePartition,
    SomeColumns,
    StreamPath,
    chosen_columns,
    chosen_partitions,
    open_log,
)
from strandline.cli.terminal import QUIET, aside, out, print_json, rate, size
from strandline.clock import Clock, stopwatch_s
from strandline.errors import OptionError
from strandline.wording import plural

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.cli.replay_output import Output
    from strandline.log.reading.merge import BlockRun
    from strandline.log.stream.log import Log

_SPEED = re.compile(r"(\d+(?:\.\d+)?)x?")
_NAP_US = 20_000
_ENDS_SHOWN = 4


def replay(
    path: StreamPath,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Begin here.", show_default=False)] = None,
    since_offset: Annotated[
        int | None, typer.Option(metavar="N", help="Begin at this offset of each partition.", show_default=False)
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="End before this.", show_default=False)] = None,
    speed: Annotated[
        str, typer.Option(metavar="1x|10x|max", help="How fast, by the time column, or as fast as possible.")
    ] = "max",
    partition: OnePartition = None,
    columns: SomeColumns = None,
    positions: Annotated[
        bool, typer.Option("--positions", metavar="", help="Add the columns _partition and _offset.")
    ] = False,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="A .parquet or .ndjson file, or - for standard output."),
    ] = "-",
    as_json: AsJson = False,
) -> None:
    """Emit the tuples of a stream again, from any point in time.

    Partitions are merged by time; each keeps the order of its log. The replay ends with the last tuple that was
    published when it began. Times are UTC unless they have a zone ("2026-01-31 12:00+01:00"). With --json it prints
    one object a line; with a file, one object about the file.
    """
    from strandline.cli.replay_output import open_output
    from strandline.times import time_value

    if since is not None and since_offset is not None:
        raise OptionError("--since does not go with --since-offset", where=path, todo="leave out one of them")
    factor = _speed(speed)
    log = open_log(path)
    kind = log.spec.time_kind
    since_time = None if since is None else time_value(since, "--since", kind, dt.UTC)
    until_time = None if until is None else time_value(until, "--until", kind, dt.UTC)
    partitions = chosen_partitions(log, partition)
    names = list(log.spec.columns) if columns is None else chosen_columns(log, columns)
    firsts = None if since_offset is None else dict.fromkeys(partitions, since_offset)
    from strandline.log.reading.merge import merged

    runs = merged(log, partitions, columns=names, firsts=firsts, since=since_time, until=until_time)
    began_s = stopwatch_s()
    shown = [*names, "_partition", "_offset"] if positions else names
    with open_output(output, log.spec, shown, as_json=as_json) as sink, _progress(sink) as bar:
        task = bar.add_task("", total=None)
        for table in paced(runs, factor, log.clock):
            sink.write(table.select(shown))
            so_far = rate(sink.tuples / (stopwatch_s() - began_s))
            bar.update(task, description=f"{plural(sink.tuples, 'tuple')}, {so_far}")
    if not sink.tuples:
        aside().print(_nothing(log, partitions))
    if sink.path is None:
        return
    seconds = stopwatch_s() - began_s
    size_bytes = sink.path.stat().st_size
    if as_json:
        print_json({"file": str(sink.path), "tuples": sink.tuples, "size_bytes": size_bytes, "seconds": seconds})
    else:
        speed_text = rate(sink.tuples / seconds if seconds else None)
        out().print(Text(f"{plural(sink.tuples, 'tuple')} in {sink.path}, {size(size_bytes)}, {speed_text}"))


def _nothing(log: Log, partitions: Sequence[int]) -> Text:
    """Says that there is nothing to replay, and where the stream ends."""
    from strandline.units import time_text

    ends = {p: log.state.ends[p] for p in partitions}
    if not any(ends.values()):
        return Text("Nothing to replay: no tuples were published yet.")
    shown = [f"partition {p} at offset {end:,}" for p, end in list(ends.items())[:_ENDS_SHOWN]]
    more = [f"{len(ends) - _ENDS_SHOWN:,} more elsewhere"] if len(ends) > _ENDS_SHOWN else []
    newest = time_text(log.state.time_max, is_timestamp=log.spec.time_is_timestamp)
    until = "" if log.spec.time_is_offset else f"; the newest tuple is of {newest}"
    return Text(f"Nothing to replay there. The end is: {', '.join([*shown, *more])}{until}.")


def _speed(text: str) -> float | None:
    """Returns the seconds of the stream to replay in one second; None: as fast as possible."""
    if text == "max":
        return None
    match = _SPEED.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise OptionError(f"--speed={text!r} is not a speed", todo="write 1x, 0.5x, 10x or max")
    return float(match[1])


def _progress(sink: Output) -> AbstractContextManager[Progress]:
    # Nothing moves beside tuples that go to the terminal themselves.
    return Progress(
        SpinnerColumn(style=QUIET),
        TextColumn("{task.description}", style=QUIET),
        console=aside(),
        transient=True,
        disable=sink.path is None,
    )


def paced(runs: Iterator[BlockRun], factor: float | None, clock: Clock) -> Iterator[pa.Table]:
    """Yields the tuples of the runs, each at its time: `factor` seconds of the stream a second."""
    begin: tuple[int, int] | None = None
    for run in runs:
        if factor is None:
            yield run.table
            continue
        if begin is None:
            begin = clock.now_us(), int(run.times[0])
        done = 0
        while done < len(run.times):
            due = begin[1] + (clock.now_us() - begin[0]) * factor
            ready = int(run.times.searchsorted(due, side="right"))
            if ready > done:
                yield run.table.slice(done, ready - done)
                done = ready
            else:
                # Not for each tuple: fifty times a second looks like a flow.
                clock.sleep(max((int(run.times[done]) - due) / factor, _NAP_US) / 1e6)
