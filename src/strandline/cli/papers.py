"""`strandline papers`: measure the figures of the papers again, and compare."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.status import Status

from strandline.cli.arguments import EndsWithJson
from strandline.cli.shipped import shipped
from strandline.cli.terminal import aside, facts_panel, out, print_json, rows_table
from strandline.errors import OptionError

_SIZES = ("small", "full")


def papers(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Papers (cec, thesis, spade, dpc) or figures.")
    ] = None,
    size: Annotated[str, typer.Option(help="small (25 minutes for all of them) or full (hours).")] = "small",
    folder: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the pages go.")] = Path("papers-run"),
    as_json: EndsWithJson = False,
) -> None:
    """Measure the papers' figures and tables again, and compare.

    Says of each whether the paper's claims about it hold. Writes index.html, a page for each paper, the figures as SVG,
    and results.json. A run adds to the folder of an earlier one. Ctrl-C keeps what is done.
    """
    if size not in (*_SIZES, "tiny"):  # tiny: for tests
        raise OptionError(f"there is no size {size!r}", todo=f"choose {' or '.join(_SIZES)}")
    if folder.exists() and not folder.is_dir():
        raise OptionError("the pages need a folder, and this is a file", where=str(folder), todo="give another --out")
    asked = shipped("benchmarks.papers.catalogue").chosen(names or ())
    running = shipped("benchmarks.papers.run")
    console = aside()
    status = Status("", console=console)
    width = max(len(one.name) for one in asked)

    def began(number: int, experiment: Any) -> None:
        text = f"{number + 1}/{len(asked)} {experiment.name}"
        if console.is_terminal:
            status.update(text)
            status.start()
        else:
            console.print(text)

    def ended(experiment: Any, verdicts: list[str], seconds: float, problem: str) -> None:
        status.stop()
        console.print(f"{experiment.name:<{width}} {seconds:5.0f} s  {', '.join(verdicts)}", soft_wrap=True)
        if problem:
            console.print(problem, soft_wrap=True, markup=False)

    try:
        results = running.run_all(asked, size, folder, began, ended)
    except KeyboardInterrupt:
        status.stop()
        console.print(f"Stopped. What is done is in {folder / 'index.html'}", soft_wrap=True)
        raise
    own = {figure.name for one in asked for figure in one.figures}
    found = {name: figure for name, figure in results.figures().items() if name in own}
    counts = Counter(str(figure["verdict"]) for figure in found.values())
    if as_json:
        verdicts = {name: figure["verdict"] for name, figure in found.items()}
        print_json({"size": size, "out": str(folder), "verdicts": verdicts, **counts})
    else:
        table = rows_table("figure", "what it shows", "verdict")
        for name, figure in found.items():
            table.add_row(name, figure["title"], str(figure["verdict"]))
        out().print(table)
        out().print(
            facts_panel("papers", {"pages": str(folder / "index.html"), **{k: f"{v}" for k, v in counts.items()}})
        )
    if counts["failed"]:
        raise typer.Exit(1)
