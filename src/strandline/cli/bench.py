"""`strandline bench`: measure Strandline beside its peers on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from strandline.cli.arguments import EndsWithJson
from strandline.cli.shipped import shipped
from strandline.cli.terminal import aside, facts_panel, out
from strandline.errors import OptionError

WORKLOADS = (
    "persist",
    "replay",
    "open",
    "aging",
    "kernel",
    "aggregate",
    "backfill",
    "recovery",
    "policies",
    "join",
    "join_groups",
    "keyed",
    "availability",
    "chain",
)


def bench(
    name: Annotated[str, typer.Argument(help=f"What to measure: {', '.join(WORKLOADS)}.")],
    size: Annotated[str, typer.Option(help="small (a minute or two) or large.")] = "small",
    repeat: Annotated[int, typer.Option(min=1, help="How many rounds; the best one counts.")] = 3,
    as_json: EndsWithJson = False,
    plots: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Draw its figures there, as SVG (availability).")
    ] = None,
) -> None:
    """Measure Strandline beside Spark's own ways, in one run."""
    if name not in WORKLOADS:
        raise OptionError(f"there is no benchmark {name!r}", todo=f"choose one of {', '.join(WORKLOADS)}")
    workload = shipped(f"benchmarks.{name}")
    sizes = getattr(workload, "SIZES", None) or workload.COMMITS
    if size not in sizes:
        raise OptionError(f"there is no size {size!r} of {name}", todo=f"choose one of {', '.join(sizes)}")
    if plots is not None and not hasattr(workload, "plots"):
        raise OptionError(f"the benchmark {name} draws nothing", todo="leave out --plots")
    result = workload.run(size, repeat)
    if plots is not None:
        plots.mkdir(parents=True, exist_ok=True)
        pictures = workload.plots(result)
        for file, picture in pictures.items():
            (plots / file).write_text(picture)
        aside().print(f"{len(pictures)} figures are in {plots}")
    if as_json:
        print(json.dumps(result))
        return
    has_tables = hasattr(workload, "tables")
    for table in workload.tables(result) if has_tables else ():
        out().print(table)
    facts = {
        field: Text(json.dumps(value) if isinstance(value, dict) else f"{value}")
        for field, value in result.items()
        if not isinstance(value, list) and not (has_tables and isinstance(value, dict))
    }
    out().print(facts_panel(f"bench {name} ({size})", facts))
