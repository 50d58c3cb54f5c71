"""`strandline demo`: a stream survives SIGKILL, for everybody to see."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from strandline.cli import demo_items
from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.errors import OptionError, StrandlineError, StreamNotFoundError
from strandline.log.local_storage import LocalStorage
from strandline.log.log import Log

_PATH = "streams/demo/items"
_POLL_S = 0.02


def demo(
    path: Annotated[str, typer.Option(help="Where the stream goes. The default is made anew in every demo.")] = _PATH,
    tuples: Annotated[int, typer.Option(min=20_000, help="How many items stream in.")] = 400_000,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="End with the result as one line of JSON.")
    ] = False,
) -> None:
    """Ingest a stream of items, kill Spark with SIGKILL half-way, start it again: every tuple is there once."""
    console = Console(stderr=as_json)
    target = Path(path)
    if path == _PATH:
        shutil.rmtree(target, ignore_errors=True)
    elif target.exists():
        raise OptionError("there is something at this path already", where=path, todo="choose a path that is free")
    console.print(f"[bold]1[/]  {tuples:,} items (item_id, item_price, item_time) stream in through Spark → {path}")
    killed_at = _ingest(target, tuples, stop_at=tuples // 2, console=console)
    left = sum(1 for _ in target.glob("staging/**/*.parquet")) + _unpublished(target)
    console.print(
        f"[bold]2[/]  [red]SIGKILL[/] after {killed_at:,} published tuples. "
        f"{left} files of an unfinished batch are left behind; no manifest names them, so they do not exist."
    )
    console.print("[bold]3[/]  Start the same program again:")
    _ingest(target, tuples, stop_at=None, console=console)
    result = {"path": path, "killed_at": killed_at, **_check(target, tuples)}
    good = result["missing"] == result["doubled"] == result["wrong"] == 0
    result["every_tuple_once"] = good
    console.print(
        f"[bold]4[/]  Published: {result['tuples']:,} tuples in {result['commits']} commits. "
        f"Missing: {result['missing']}. Doubled: {result['doubled']}. Wrong: {result['wrong']}. "
        + ("[green]Every tuple is there once.[/]" if good else "[red]Broken![/]")
    )
    console.print(f"   Now try:  strandline inspect {path}   ·   strandline verify {path}")
    if as_json:
        print(json.dumps(result))
    if not good:
        raise typer.Exit(1)


def _ingest(target: Path, tuples: int, stop_at: int | None, console: Console) -> int:
    """Runs the Spark process to its end, or kills it at `stop_at`; returns how many tuples were published then."""
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", "strandline.cli.demo_items", str(target), str(tuples)],
            stdout=errors,
            stderr=errors,
            start_new_session=True,  # a process group of its own, so that the kill takes the JVM along
        )
        try:
            published = _follow(child, target, tuples, stop_at, console)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        if stop_at is None and child.returncode != 0:
            errors.seek(0)
            text = errors.read().decode(errors="replace").strip()
            raise StrandlineError(
                f"the demo's Spark process failed:\n{text[-2000:]}",
                todo="is there a Java 17 or newer? see docs/start.md",
            )
    return published


def _follow(child: subprocess.Popen[Any], target: Path, tuples: int, stop_at: int | None, console: Console) -> int:
    columns = (TextColumn("   {task.description}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn())
    log: Log | None = None
    published = 0
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting Spark", total=tuples)
        while True:
            ended = child.poll() is not None
            log = log or _opened(target)
            if log is not None:
                log.refresh()
                published = sum(log.state.ends[: log.spec.partitions])
                if published:
                    progress.update(task, completed=published, description="tuples published")
            # Die in the middle of a batch, where it hurts.
            in_a_batch = next(target.glob("staging/**/*.parquet"), None) is not None
            if ended or (stop_at is not None and published >= stop_at and in_a_batch):
                return published
            SYSTEM_CLOCK.sleep(_POLL_S)


def _opened(target: Path) -> Log | None:
    try:
        return Log.open(LocalStorage(target))
    except StrandlineError as nothing_yet:
        if isinstance(nothing_yet, StreamNotFoundError) or not (target / "stream.json").exists():
            return None
        raise


def _unpublished(target: Path) -> int:
    log = Log.open(LocalStorage(target))
    named = {b.file for p in range(log.spec.partitions) for b in log.blocks(p)}
    return sum(1 for listed in log.storage.list("blocks") if listed.key not in named)


def _check(target: Path, tuples: int) -> dict[str, Any]:
    """Counts every item by its time, which tells its number, and recomputes its other columns."""
    began = stopwatch_s()
    log = Log.open(LocalStorage(target))
    seen = np.zeros(tuples, dtype=np.int64)
    wrong = 0
    for partition in range(log.spec.partitions):
        for table in log.read(partition):
            n = table.column("item_time").cast(pa.int64()).to_numpy() // 1_000 - demo_items.FIRST_TIME_MS
            np.add.at(seen, n, 1)
            ids, prices = table.column("item_id").to_numpy(), table.column("item_price").to_numpy()
            right_id = ids == n * 31 % demo_items.ITEM_IDS
            right_price = prices == n * demo_items.PRICE_STEP % demo_items.PRICES / 100
            wrong += int(len(n) - (right_id & right_price).sum())
    return {
        "tuples": int(seen.sum()),
        "commits": log.state.seq + 1,
        "missing": int((seen == 0).sum()),
        "doubled": int((seen > 1).sum()),
        "wrong": wrong,
        "check_s": round(stopwatch_s() - began, 2),
    }
