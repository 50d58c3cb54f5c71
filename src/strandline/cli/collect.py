"""`strandline collect`: delete the files that nothing refers to."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.arguments import AsJson, StreamPath, open_log
from strandline.cli.terminal import aside, duration, facts_table, out, panel, plural, print_json


def collect(
    path: StreamPath,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="How long readers and slow writers may still use such files.")
    ] = "1 h",
    as_json: AsJson = False,
) -> None:
    """Delete files that nothing refers to.

    They are left by crashed attempts, compaction and truncation. Files untouched for the grace time are announced in
    the log, and deleted by a later call, a grace time after that: safe while writers and readers run.
    """
    from strandline.log.retention import collect as collect_files
    from strandline.units import duration_us

    grace_us = duration_us(grace, "--grace")
    log = open_log(path)
    with aside().status("looking for files that nothing refers to") as status:

        def progress(_what: str, files: int) -> None:
            status.update(f"{files:,} files deleted")

        deleted = collect_files(log, grace_us=grace_us, progress=progress)
    announced = [file for seq in log.state.announced for file in log.commit(seq).files]
    if as_json:
        print_json({"deleted": deleted, "announced": announced, "grace_us": grace_us})
        return
    facts = facts_table()
    facts.add_row("deleted", plural(len(deleted), "file"))
    facts.add_row("announced", plural(len(announced), "file"))
    if announced:
        facts.add_row("next", f"collect again {duration(grace_us)} after the announcement to delete them")
    out().print(panel(facts, "collect"))
