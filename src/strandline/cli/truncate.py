"""`strandline truncate`: drop the past of a stream."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.arguments import AsJson, StreamPath, chosen_partitions, open_log
from strandline.cli.terminal import count, out, panel, plural, print_json, rows_table, size
from strandline.errors import OptionError

if TYPE_CHECKING:
    from strandline.log.log import Log


def truncate(
    path: StreamPath,
    before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Drop blocks whose tuples are all older.", show_default=False)
    ] = None,
    before_offset: Annotated[
        int | None, typer.Option(metavar="N", help="Drop blocks that end at or before this offset.", show_default=False)
    ] = None,
    partition: Annotated[int | None, typer.Option(metavar="P", help="Only this partition.", show_default=False)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar="", help="Only show what would be dropped.")] = False,
    as_json: AsJson = False,
) -> None:
    """Drop the tuples before a time or an offset, for good.

    Whole blocks are dropped or none of a block. Refused, with the name, if a registered consumer still needs some of
    them. Times are UTC unless they say otherwise ("2026-01-31 12:00+01:00"). The files go with the next `collect`.
    """
    from strandline.log.retention import truncate as truncate_log
    from strandline.times import time_value

    if (before is None) == (before_offset is None):
        raise OptionError("truncate needs either --before or --before-offset", where=path, todo="give one of them")
    log = open_log(path)
    before_time = None if before is None else time_value(before, "--before", log.spec.time_kind, dt.UTC)
    partitions = chosen_partitions(log, partition)
    if before_time is not None and partition is None:
        partitions.append(log.spec.late)
    drops = [_drop(log, p, before_time, before_offset) for p in partitions]
    if not as_json:
        _show(log, drops, dry_run)
    if not dry_run and any(d.tuples for d in drops):
        if before_time is not None and partition is None:
            truncate_log(log, before_time=before_time)
        else:
            truncate_log(log, before_offset={d.partition: d.end for d in drops})
    if as_json:
        print_json({"dry_run": dry_run, "dropped": [asdict(d) for d in drops], "starts": log.state.starts})
    elif not dry_run and any(d.tuples for d in drops):
        out().print("Dropped. The files go with the next [bold]strandline collect[/].")


@dataclass(frozen=True, slots=True)
class _Drop:
    """What a partition loses."""

    partition: int
    start: int
    end: int
    tuples: int
    blocks: int
    size_bytes: int
    time_min: int | None
    time_max: int | None


def _drop(log: Log, partition: int, before_time: int | None, before_offset: int | None) -> _Drop:
    from strandline.log.retention import first_kept

    start, end = log.state.starts[partition], log.state.ends[partition]
    if before_time is not None:
        keep = first_kept(log, partition, before_time)
    elif before_offset is not None and before_offset < end:
        # The block that holds the offset stays, whole.
        keep = next((b.first for b in log.blocks(partition, first=max(before_offset, start))), start)
    else:
        keep = end
    blocks = [b for b in log.blocks(partition, end=keep) if b.end <= keep]
    return _Drop(
        partition=partition,
        start=start,
        end=max(start, keep),
        tuples=max(0, keep - start),
        blocks=len(blocks),
        size_bytes=sum(b.size_bytes for b in blocks),
        time_min=min((b.time_min for b in blocks), default=None),
        time_max=max((b.time_max for b in blocks), default=None),
    )


def _show(log: Log, drops: list[_Drop], dry_run: bool) -> None:
    from strandline.units import time_text

    tuples = sum(d.tuples for d in drops)
    if not tuples:
        out().print("Nothing to drop: no block lies wholly before that.")
        return
    is_timestamp = log.spec.time_is_timestamp
    numbers = ("tuples", "blocks", "size", "begins at", "will begin at")
    zone = " UTC" if log.spec.time_kind == "timestamp" else ""
    table = rows_table("partition", *numbers, f"oldest{zone}", f"newest{zone}", right=numbers)
    for d in drops:
        table.add_row(
            "late" if d.partition == log.spec.late else str(d.partition),
            count(d.tuples),
            count(d.blocks),
            size(d.size_bytes),
            count(d.start),
            count(d.end),
            time_text(d.time_min, is_timestamp=is_timestamp),
            time_text(d.time_max, is_timestamp=is_timestamp),
        )
    verb = "would drop" if dry_run else "will drop"
    out().print(panel(table, f"truncate {verb} {plural(tuples, 'tuple')}"))
