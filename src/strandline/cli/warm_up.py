"""`strandline warm-up`: compile kernels before an operator needs them, for example while an image is made."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.arguments import AsJson, open_log
from strandline.cli.terminal import aside, facts_panel, out, print_json
from strandline.wording import plural


def warm_up(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="Streams of operators.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile kernels before an operator needs them.

    The compiled kernels are kept on disk, for every later process.

    Without a path it compiles the kernels that all operators share, and those of averages and counts. With paths of
    streams it compiles all kernels of the operators that write them. Kernels that are kept already are not compiled
    again.
    """
    from strandline.clock import stopwatch_s
    from strandline.operators.kernels.kernel_cache import TALLY, kernel_folder
    from strandline.running.kernel_warm_up import COMMON, kernels_of

    began_s = stopwatch_s()
    folder = kernel_folder()
    if folder is None:  # a warning has said why
        raise typer.Exit(1)
    wanted = [kernels_of(open_log(path)) for path in paths] if paths else COMMON
    with aside().status("compiling"):
        for kernels in wanted:
            kernels.compile()
    seconds = round(stopwatch_s() - began_s, 1)
    if as_json:
        print_json({"compiled": TALLY.compiled, "seconds": seconds, "folder": str(folder)})
        return
    compiled = f"{plural(TALLY.compiled, 'kernel')} in {seconds} s" if TALLY.compiled else "nothing new"
    out().print(facts_panel("warm-up", {"compiled": compiled, "kept in": str(folder)}))
