"""`strandline demo`: an operator that is killed and recovers, and one whose input falls silent; see `examples/demo`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from strandline.cli.arguments import EndsWithJson
from strandline.cli.shipped import shipped
from strandline.errors import OptionError

_PATHS = {"recovery": "streams/demo", "availability": "streams/demo-availability"}
_TUPLES = 600_000
_SILENCE = "8 s"


def demo(
    what: Annotated[
        str, typer.Argument(metavar="[WHAT]", help="recovery or availability.", show_default=False)
    ] = "recovery",
    path: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="A new folder for the streams; else streams/demo…, emptied first.", show_default=False
        ),
    ] = None,
    tuples: Annotated[
        int, typer.Option(metavar="N", min=100_000, help="recovery: how many items stream in.")
    ] = _TUPLES,
    silence: Annotated[
        str, typer.Option(metavar="TIME", help="availability: for how long a sensor is missing.")
    ] = _SILENCE,
    as_json: EndsWithJson = False,
) -> None:
    """Run a failure and what follows, and draw a picture of it.

    recovery: average a stream of items, kill Spark with SIGKILL half-way, start it again: the results are the same.

    availability: average what three sensors measure while one of them falls silent and comes back. Results go on as
    tentative ones, are undone, and corrected.
    """
    from strandline.units import positive_us

    if what not in _PATHS:
        raise OptionError(f"there is no demo {what!r}", todo=f"choose one of {', '.join(_PATHS)}")
    silence_us = 0 if silence.strip().isdigit() else positive_us(silence, "--silence")
    if not silence_us:
        raise OptionError(f"--silence={silence!r} has no unit", todo=f'write --silence "{silence} s"')
    folder = _free_folder(path, _PATHS[what])
    console = Console(stderr=as_json, highlight=False)
    if what == "recovery":
        result = shipped("examples.demo.recovery_demo").demo_recovery(folder, tuples, console)
    else:
        result = shipped("examples.demo.availability_demo").demo_availability(folder, silence_us / 1e6, console)
    if as_json:
        print(json.dumps(result))
    if not result["identical"]:
        raise typer.Exit(1)


def _free_folder(asked: str | None, default: str) -> Path:
    """Returns a path without a folder; deletes what the last demo has left in its own."""
    if asked is None:
        shutil.rmtree(default, ignore_errors=True)
    elif Path(asked).exists():
        raise OptionError("this path is not free", where=asked, todo="choose a path that is free")
    return Path(asked or default)
