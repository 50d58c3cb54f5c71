"""`strandline restore`: make a stream from a backup."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.arguments import AsJson
from strandline.cli.backup import show, shown_in
from strandline.cli.terminal import aside


def restore(
    backup: Annotated[
        str,
        typer.Argument(metavar="BACKUP", help="What `strandline backup` made: a folder or a URL.", show_default=False),
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Where the stream goes: an empty place.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Make a stream from the last finished run of a backup.

    Never touches an existing stream. If it was interrupted, the same command goes on. The backup stays as it is.
    """
    from strandline.log.storage.storage_url import open_storage
    from strandline.log.upkeep.backup import restore as restore_stream

    with aside().status("reading commits") as status:
        done = restore_stream(open_storage(backup), open_storage(target), progress=shown_in(status))
    show(done, "restore", backup, target, as_json=as_json)
