"""`strandline run`: a program that is started again when it dies, once or in several copies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from strandline.errors import OptionError

_LONGEST_PAUSE = "1 min"
_OFF = "off"


def run(
    program: Annotated[
        Path, typer.Argument(metavar="PROGRAM", help="A file with a Python program.", show_default=False)
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="Its arguments; those that begin with - after a --.", show_default=False),
    ] = None,
    restart: Annotated[
        str, typer.Option(metavar="TIME", help="The longest pause before a restart; off: run it once.")
    ] = _LONGEST_PAUSE,
    replicas: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many copies run side by side, for .replicated().")
    ] = 1,
) -> None:
    """Run a Python program and start it again when it dies.

    A program has died when its exit code is not 0, or when a signal has ended it. The pauses before restarts begin with
    a second and double; after a run of a minute or more they begin anew. Ctrl-C goes to the program, and no restart
    follows; a second Ctrl-C kills it. An error that no restart would mend ends it, too. The exit code is that of the
    last run.

    With --replicas 2 the program runs twice: elements marked .replicated() write to <path>-1 and <path>-2, all others
    run in the first copy alone.
    """
    if not program.is_file():
        raise OptionError("there is no program here", where=str(program), todo="name a file with a Python program")
    from strandline.cli.supervisor import supervise
    from strandline.spark.query.restart import Restart

    pauses = None if restart == _OFF else Restart.of(int(restart) if restart.isdecimal() else restart)
    command = [sys.executable, str(program), *(arguments or [])]
    code = supervise(command, program.name, pauses, replicas, lambda line: print(line, file=sys.stderr, flush=True))
    raise typer.Exit(code)
