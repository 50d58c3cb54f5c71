"""`strandline collect`: delete the files that nothing refers to."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.arguments import AsJson, StreamPath, open_log
from strandline.cli.terminal import aside, facts_panel, out, print_json
from strandline.log.upkeep.grace import GRACE
from strandline.wording import exact_duration, plural


def collect(
    path: StreamPath,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="How long readers and slow writers may still use such files.")
    ] = GRACE,
    as_json: AsJson = False,
) -> None:
    """Delete files that nothing refers to, and old commits.

    Files are left by crashed attempts, compaction and truncation. Compacted and truncated blocks, and others that were
    untouched for the grace time, are announced in the log, and deleted by a later call, a grace time after that: safe
    while writers and readers run. Commits are deleted when a milestone has replaced them; those of the last day are
    kept, and the newest 4,096 in any case.
    """
    from strandline.log.stream.commit_kinds import CollectCommit
    from strandline.log.upkeep.dropping import drop_commits
    from strandline.log.upkeep.retention import collect as collect_files
    from strandline.units import duration_us

    grace_us = duration_us(grace, "--grace")
    log = open_log(path)
    with aside().status("looking for files that nothing refers to") as status:

        def progress(_what: str, files: int) -> None:
            status.update(f"{plural(files, 'file')} deleted")

        dropped = drop_commits(log).commits
        deleted = collect_files(log, grace_us=grace_us, progress=progress)
    announced = [
        file for m in log.commits.some(log.state.announced) if isinstance(m, CollectCommit) for file in m.files
    ]
    if as_json:
        print_json({"deleted": deleted, "announced": announced, "dropped_commits": dropped, "grace_us": grace_us})
        return
    grace_text = exact_duration(grace_us)
    facts = {
        "grace": f"{grace_text}: files are deleted that long after they were announced",
        "deleted": plural(len(deleted), "file"),
        "announced": plural(len(announced), "file"),
        "dropped": plural(dropped, "commit"),
        "next": f"collect again {grace_text} after the announcement to delete them" if announced else None,
    }
    out().print(facts_panel("collect", facts))
