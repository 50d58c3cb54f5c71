"""`strandline bench`: measure Strandline beside its peers on this machine."""

from __future__ import annotations

import importlib
import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from strandline.errors import OptionError

WORKLOADS = ("persist", "replay", "open", "aging", "kernel", "aggregate", "backfill", "recovery")


def bench(
    name: Annotated[str, typer.Argument(help=f"What to measure: {', '.join(WORKLOADS)}.")],
    size: Annotated[str, typer.Option(help="small (a minute or two) or large.")] = "small",
    repeat: Annotated[int, typer.Option(min=1, help="Rounds; the best counts.")] = 3,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="End with the result as one line of JSON.")
    ] = False,
) -> None:
    """Measure, beside Spark's own ways, in one run."""
    if name not in WORKLOADS:
        raise OptionError(f"there is no benchmark {name!r}", todo=f"choose one of {', '.join(WORKLOADS)}")
    workload = importlib.import_module(f"benchmarks.{name}")
    sizes = getattr(workload, "SIZES", None) or workload.COMMITS
    if size not in sizes:
        raise OptionError(f"there is no size {size!r} of {name}", todo=f"choose one of {', '.join(sizes)}")
    result = workload.run(size, repeat)
    if as_json:
        print(json.dumps(result))
        return
    table = Table(title=f"bench {name} ({size})", show_header=False)
    for field, value in result.items():
        if not isinstance(value, list):
            table.add_row(field, json.dumps(value) if isinstance(value, dict) else f"{value}")
    Console().print(table)
