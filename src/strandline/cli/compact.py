"""`strandline compact`: join small blocks of the past into large ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.arguments import AsJson, StreamPath, open_log, size_value
from strandline.cli.terminal import aside, facts_panel, out, print_json, size
from strandline.wording import plural

if TYPE_CHECKING:
    from strandline.log.upkeep.compaction import Compacted


def compact(
    path: StreamPath,
    target_size: Annotated[
        str, typer.Option(metavar="SIZE", help="About how large the new blocks should be.")
    ] = "128MB",
    as_json: AsJson = False,
) -> None:
    """Join small blocks of the past into large ones.

    No offset, order or result changes, and writers and readers go on. The old files stay until `collect` deletes them.
    """
    from dataclasses import asdict

    from strandline.log.upkeep.compaction import compact as compact_log

    target_bytes = size_value(target_size, "--target-size")
    log = open_log(path)
    with aside().status("looking for small blocks") as status:

        def progress(so_far: Compacted) -> None:
            status.update(f"{plural(so_far.blocks_before, 'block')} joined, {size(so_far.bytes_before)}")

        done = compact_log(log, target_bytes=target_bytes, progress=progress)
    if as_json:
        print_json(asdict(done))
        return
    if not done.blocks_before:
        out().print("Nothing to do: there are no 8 small blocks in a row.")
        return
    facts = {
        "blocks": f"{done.blocks_before:,} became {done.blocks_after:,}",
        "tuples": f"{done.tuples:,}, each at its old offset",
        "size": f"{size(done.bytes_before)} became {size(done.bytes_after)}",
        "next": f"`strandline collect` deletes the {plural(done.blocks_before, 'old file')}, an hour from now",
    }
    out().print(facts_panel("compact", facts))
