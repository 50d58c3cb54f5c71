"""`strandline verify`: read everything again and name what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer
from rich.console import Group, RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from strandline.cli.arguments import AsJson, StreamPath
from strandline.cli.terminal import QUIET, aside, count, facts_panel, out, print_json, size
from strandline.wording import plural

if TYPE_CHECKING:
    from strandline.log.audit.problem import Problem
    from strandline.log.audit.stream_audit import VerifyReport
    from strandline.recovery.checkpoint_audit import CheckpointAudit


def verify(path: StreamPath, as_json: AsJson = False) -> None:
    """Read a whole stream again, and name all that is wrong.

    It checks checksums, offsets, order, times, the index and the consumers, and that the operator that writes the
    stream could recover. It changes nothing, and it may run while others write.
    The exit code is 1 if there is a problem.
    """
    from strandline.log.audit.stream_audit import verify as verify_log
    from strandline.log.storage.storage_url import open_storage
    from strandline.log.stream.log import Log
    from strandline.recovery import checkpoint_audit

    storage = open_storage(path)
    log = Log.unread(storage)
    bar = Progress(
        TextColumn("{task.description}", style=QUIET),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=aside(),
        transient=True,
        disable=as_json,
    )
    with bar:
        task = bar.add_task("reading manifests", total=None)

        def progress(done: int, total: int, size_bytes: int) -> None:
            if total:
                bar.update(
                    task, description=f"block {done:,} of {total:,}, {size(size_bytes)}", completed=done, total=total
                )

        report = verify_log(log, progress)
        audit = None
        if log.spec.operator is not None and not any(p.part in ("manifest", "milestone") for p in report.problems):
            bar.update(task, description="rebuilding open windows", total=None)
            audit = checkpoint_audit.audit(Log.open(storage))
            report = replace(report, problems=(*report.problems, *audit.problems))
    if as_json:
        rebuilt = {"open_windows": audit.open_windows, "replayed": audit.replayed} if audit else None
        print_json({**report.to_json(), "recovery": rebuilt})
    else:
        out().print(_rendered(report, audit))
    if not report.is_good:
        raise typer.Exit(1)


def _rendered(report: VerifyReport, audit: CheckpointAudit | None) -> RenderableType:
    if report.is_good:
        result = Text("✓ all good: every checksum and every invariant holds", style="bold green")
    else:
        result = Text(f"✗ {plural(len(report.problems), 'problem')}", style="bold red")
    recovery, left = None, "not known while manifests are lost"
    if audit is not None:
        replayed = (
            "its input cannot be read from here" if audit.replayed is None else f"{count(audit.replayed)} replayed"
        )
        recovery = f"{plural(audit.open_windows, 'open window')} rebuilt, {replayed}"
    if (found := report.unreferenced) is not None:
        files = f"{plural(found.files, 'file')} ({size(found.size_bytes)})"
        left = f"{files}, harmless; `strandline collect` deletes them" if found.files else "no file"
    facts: dict[str, RenderableType | None] = {
        "stream": Text(report.url),
        "read": f"{plural(report.commits, 'commit')}, {plural(report.blocks, 'block')} ({size(report.size_bytes)}), "
        f"{plural(report.tuples, 'tuple')}, {count(report.late_tuples)} late, {plural(report.consumers, 'consumer')}",
        "recovery": recovery,
        "took": f"{report.seconds:.1f} s",
        "unreferenced": left,
        "result": result,
    }
    return Group(facts_panel("verify", facts), *(_problem(number, p) for number, p in enumerate(report.problems, 1)))


def _problem(number: int, problem: Problem) -> RenderableType:
    where = []
    if problem.partition is not None:
        where.append(f"partition {problem.partition}")
    if problem.first is not None and problem.end is not None:
        where.append(f"offsets {count(problem.first)} to {count(problem.end - 1)}")
    facts: dict[str, RenderableType | None] = {
        "what": Text(problem.what, style="red"),
        "file": Text(problem.file),
        "where": ", ".join(where) or None,
        "follows": Text("\n".join(problem.follows)) if problem.follows else None,
        "to do": Text(problem.todo),
    }
    return facts_panel(f"{number} · {problem.part}", facts)
