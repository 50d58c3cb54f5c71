"""`strandline truncate`: drop the past of a stream."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.cli.arguments import AsJson, OnePartition, StreamPath, chosen_partitions, open_log
from strandline.cli.terminal import count, fitted_table, moment, out, panel, print_error, print_json, size
from strandline.errors import OptionError
from strandline.wording import plural

if TYPE_CHECKING:
    from strandline.log.stream.log import Log
    from strandline.log.upkeep.retention import Truncation


def truncate(
    path: StreamPath,
    before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Drop blocks whose tuples are all older.", show_default=False)
    ] = None,
    before_offset: Annotated[
        int | None, typer.Option(metavar="N", help="Drop blocks that end at or before this offset.", show_default=False)
    ] = None,
    partition: OnePartition = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar="", help="Only show what would be dropped.")] = False,
    as_json: AsJson = False,
) -> None:
    """Drop the tuples before a time or an offset, for good.

    It drops whole blocks only. It refuses, and names the consumer, if a registered consumer still needs some of the
    tuples; a dry run says so, and its exit code is 1 then, too. Times are UTC unless they have a zone
    ("2026-01-31 12:00+01:00"). The next `collect` deletes the files.
    """
    from strandline.log.upkeep.retention import planned
    from strandline.log.upkeep.retention import truncate as truncate_log
    from strandline.times import time_value

    if (before is None) == (before_offset is None):
        raise OptionError("truncate needs either --before or --before-offset", where=path, todo="give one of them")
    log = open_log(path)
    partitions = chosen_partitions(log, partition)
    if before is None:
        bound: dict[str, Any] = {"before_offset": dict.fromkeys(partitions, before_offset)}
    else:
        time = time_value(before, "--before", log.spec.time_kind, dt.UTC)
        # A time for all partitions reaches into the side log, too; a time for one partition does not.
        bound = {"before_time": time if partition is None else dict.fromkeys(partitions, time)}
    plan = planned(log, **bound)
    reaches_late = before is not None and partition is None
    drops = _drops(log, plan, [*partitions, log.spec.late] if reaches_late else partitions)
    is_something = any(d.blocks for d in drops)
    refusal = plan.refusal if is_something else None
    if not as_json:
        _show(log, plan, drops, dry_run)
    if refusal is not None and not dry_run:
        raise refusal
    if refusal is not None and not as_json:
        print_error(refusal, as_json=False)
    if is_something and not dry_run:
        truncate_log(log, **bound)
    if as_json:
        refused = plan.refusal.what if plan.refusal is not None else None
        body = {"dry_run": dry_run, "dropped": [asdict(d) for d in drops], "starts": log.state.starts}
        print_json({**body, "refused": refused} if dry_run else body)
    elif is_something and not dry_run:
        out().print("Dropped. The files go with the next [bold]strandline collect[/].")
    if refusal is not None:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Drop:
    """The tuples that a partition loses."""

    partition: int
    start: int
    end: int
    tuples: int
    """Results: a block of an operator's stream may hold none, and be dropped."""
    unneeded: int
    """Those of them that no consumer needs."""
    blocks: int
    size_bytes: int
    time_min: int | None
    time_max: int | None


def _drops(log: Log, plan: Truncation, partitions: list[int]) -> list[_Drop]:
    found = []
    for p in partitions:
        start, end = log.state.starts[p], plan.starts[p]
        blocks = list(log.blocks(p, start, end)) if end > start else []
        found.append(
            _Drop(
                partition=p,
                start=start,
                end=end,
                tuples=sum(b.results for b in blocks),
                unneeded=sum(b.results for b in blocks if b.end <= plan.free[p]),
                blocks=len(blocks),
                size_bytes=sum(b.size_bytes for b in blocks),
                time_min=min((b.time_min for b in blocks if b.has_results), default=None),
                time_max=max((b.time_max for b in blocks if b.has_results), default=None),
            )
        )
    return found


def _show(log: Log, plan: Truncation, drops: list[_Drop], dry_run: bool) -> None:
    time = partial(moment, is_timestamp=log.spec.time_is_timestamp)
    zone = " UTC" if log.spec.time_kind == "timestamp" else ""
    tuples = sum(d.tuples for d in drops)
    console = out()
    if not any(d.blocks for d in drops):
        console.print("Nothing to drop: no block lies wholly before that.")
        return
    drops = [d for d in drops if d.blocks or d.partition != log.spec.late]
    cells = {
        "": ["late" if d.partition == log.spec.late else str(d.partition) for d in drops],
        "tuples": [count(d.tuples) for d in drops],
        "blocks": [count(d.blocks) for d in drops],
        "size": [size(d.size_bytes) for d in drops],
        "starts at": [count(d.start) for d in drops],
        "then at": [count(d.end) for d in drops],
        f"oldest{zone}": [time(d.time_min) for d in drops],
        f"newest{zone}": [time(d.time_max) for d in drops],
    }
    if plan.refusal is not None:
        cells["unneeded"] = [count(d.unneeded) for d in drops]
    numbers = ("", "tuples", "blocks", "size", "starts at", "then at", "unneeded")
    table = fitted_table(cells, console.width - 4, right=numbers, dispensable=(f"oldest{zone}", "blocks", "size"))
    verbs = ("will drop", "would drop") if plan.refusal is None else ("is refused:", "would be refused:")
    console.print(panel(table, f"truncate {verbs[dry_run]} {plural(tuples, 'tuple')}"))
