"""`strandline backup` and `strandline restore`: copy a stream while it is written, make a stream of the copy."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from strandline.cli.arguments import AsJson, StreamPath
from strandline.cli.terminal import aside, count, facts_panel, out, print_json, size
from strandline.wording import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.status import Status

    from strandline.log.upkeep.backup import Copied


def backup(
    path: StreamPath,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="The backup: a folder or a URL. Empty the first time.", show_default=False
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Copy a stream to a backup, or what is new since the last time.

    The backup is consistent while writers work. A run may be interrupted; the next one goes on. When all files are
    copied, it deletes those from the backup that the stream no longer has.
    The exit code is 1 if blocks of the stream are lost or rotten.
    """
    from strandline.log.storage.storage_url import open_storage
    from strandline.log.upkeep.backup import backup as copy_stream

    with aside().status("reading commits") as status:
        done = copy_stream(open_storage(path), open_storage(target), progress=_shown_in(status))
    _show(done, "backup", path, target, as_json=as_json)


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

    It never changes an existing stream, nor the backup. If it was interrupted, the same command goes on.
    """
    from strandline.log.storage.storage_url import open_storage
    from strandline.log.upkeep.backup import restore as restore_stream

    with aside().status("reading commits") as status:
        done = restore_stream(open_storage(backup), open_storage(target), progress=_shown_in(status))
    _show(done, "restore", backup, target, as_json=as_json)


def _shown_in(status: Status) -> Callable[[str, int, int, int], None]:

    def progress(what: str, done: int, total: int, size_bytes: int) -> None:
        status.update(f"{what} {done:,} of {total:,}, {size(size_bytes)} copied")

    return progress


def _show(done: Copied, title: str, source: str, target: str, *, as_json: bool) -> None:
    """Prints what was copied; exits with 1 if blocks of the source are lost or rotten."""
    if as_json:
        print_json({"source": source, "target": target, **asdict(done)})
    else:
        facts: dict[str, RenderableType | None] = {
            "from": Text(source),
            "to": Text(target),
            "copied": f"{plural(done.files, 'file')}, {size(done.size_bytes)}",
            "deleted": f"{plural(done.deleted, 'file')} that the stream no longer has" if done.deleted else None,
            "holds": f"{plural(done.commit + 1, 'commit')}, {plural(done.tuples, 'tuple')}",
        }
        if done.damaged:
            lost = f"{plural(len(done.damaged), 'block')} lost or rotten: {done.damaged[0]}"
            more = f" and {count(len(done.damaged) - 1)} more" if len(done.damaged) > 1 else ""
            facts |= {"missing": Text(lost + more, style="red"), "to do": Text(f"strandline verify {source}")}
        out().print(facts_panel(title, facts))
    if done.damaged:
        raise typer.Exit(1)
