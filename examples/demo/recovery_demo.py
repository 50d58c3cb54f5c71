"""`strandline demo`: an operator is killed with SIGKILL, starts again, and has the results of a run without a crash."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.demo import demo_items
from examples.demo.demo_items import AVERAGE, ITEMS, UNINTERRUPTED
from examples.demo.recovery_picture import draw, history, sketch
from examples.demo.time_to_result import Program, bare_spark_s, results_in, spark_process
from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.errors import StrandlineError, StreamNotFoundError
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.kinds import only_results
from strandline.log.stream.log import Log
from strandline.wording import plural

_POLL_S = 0.02
_HEADING = f"{'item_id':>7}  {'first':>7} … {'last':<7}  {'average':>8}"


def demo_recovery(folder: Path, tuples: int, console: Console) -> dict[str, Any]:
    """Kills Spark half-way, goes on, compares; says what was seen."""
    path = str(folder)
    console.print(
        f"[bold]1[/]  {tuples:,} items (item_id, item_price, item_time) stream in through Spark\n   → {path}/{ITEMS}"
    )
    console.print(f"   The average price of every 10 items of an id comes out\n   → {path}/{AVERAGE}")
    killed_at, _ = _run(folder, tuples, stop_at=tuples // 2, console=console)
    killed_s = stopwatch_s()
    forecast = _standings(folder)
    console.print(
        f"[bold]2[/]  [red]SIGKILL[/] in mid-batch, after {killed_at:,} items. {forecast['open_windows']:,} windows "
        f"were open;\n   their state is in the output stream, in its last {forecast['extent']:,} tuples."
    )
    console.print("[bold]3[/]  Start the same program again, its local state lost, as on another machine:")
    _, first_s = _run(folder, tuples, stop_at=None, console=console)
    recovered = _recovered(folder)
    console.print(
        f"   Recovered {forecast['open_windows']:,} open windows: {recovered['extent']:,} tuples of the output\n"
        f"   read in {recovered['load_s']:.2f} s, {recovered['replayed']:,} items "
        f"replayed in {recovered['replay_s']:.2f} s."
    )
    result = {"path": path, "killed_at": killed_at, **forecast, "recovered": recovered, **_compare(folder, console)}
    result |= {"first_result_s": round(first_s - killed_s, 2), "bare_spark_s": round(bare_spark_s(), 2)}
    console.print(
        f"[bold]5[/]  First new result {result['first_result_s']:.1f} s after the SIGKILL; "
        f"a bare Spark starts in {result['bare_spark_s']:.1f} s."
    )
    moments = history(_log(folder / AVERAGE))
    for line in sketch(moments):
        console.print(line, markup=False, soft_wrap=True)
    picture = draw(moments, folder / "recovery.png", recovered["load_s"] + recovered["replay_s"])
    if picture is not None:
        console.print(f"   Picture: {picture}")
        result["picture"] = str(picture)
    console.print(f"   Now try:  strandline inspect {path}/{AVERAGE}\n             strandline verify {path}/{AVERAGE}")
    return result


# ---------------------------------------------------------------------- the Spark process


def _run(folder: Path, tuples: int, stop_at: int | None, console: Console) -> tuple[int, float]:
    """Runs the Spark process to its end, or kills it at `stop_at`.

    Returns how many items were averaged then, and when the first new result was there.
    """
    with tempfile.TemporaryDirectory(prefix="strandline-demo-") as state:
        command = [demo_items.__file__, str(folder), str(tuples)]
        with spark_process(command, {"STRANDLINE_STATE_DIR": state}) as program:
            averaged, first_s = _follow(program, folder, tuples, stop_at, console)
        if stop_at is None:
            program.require_success()
    return averaged, first_s


def _follow(program: Program, folder: Path, tuples: int, stop_at: int | None, console: Console) -> tuple[int, float]:
    columns = (TextColumn("   {task.description}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn())
    log = _opened(folder / AVERAGE)
    averaged, first_s = 0, 0.0
    before = results_in(log) if log is not None else 0
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting Spark", total=tuples)
        while True:
            ended = program.has_ended
            log = log or _opened(folder / AVERAGE)
            if log is not None:
                log.refresh()
                if not first_s and results_in(log) > before:
                    first_s = stopwatch_s()
                averaged = sum(s.input for s in log.state.standings)
                done = averaged == tuples
                if averaged:
                    text = "once more, uninterrupted" if done and stop_at is None else "items averaged"
                    progress.update(task, completed=averaged, description=text)
            # Die in the middle of a batch, where it hurts.
            in_a_batch = next((folder / ITEMS).glob("staging/**/*.parquet"), None) is not None
            if ended or (stop_at is not None and averaged >= stop_at and in_a_batch):
                return averaged, first_s
            SYSTEM_CLOCK.sleep(_POLL_S)


def _opened(target: Path) -> Log | None:
    try:
        return _log(target)
    except StrandlineError as nothing_yet:
        if isinstance(nothing_yet, StreamNotFoundError) or not (target / "stream.json").exists():
            return None
        raise


def _log(target: Path) -> Log:
    return Log.open(LocalStorage(target))


# ---------------------------------------------------------------------- what came of it


def _standings(folder: Path) -> dict[str, Any]:
    standings = _log(folder / AVERAGE).state.standings
    return {
        "open_windows": sum(s.open for s in standings),
        "extent": sum(s.extent for s in standings),
        "replay": sum(s.replay for s in standings),
    }


def _recovered(folder: Path) -> dict[str, Any]:
    found = [s.recovered for s in _log(folder / AVERAGE).state.standings if s.recovered]
    total = {name: sum(r[name] for r in found) for name in ("extent", "replayed")}
    return {**total, **{name: max((r[name] for r in found), default=0.0) for name in ("load_s", "replay_s")}}


def _compare(folder: Path, console: Console) -> dict[str, Any]:
    """Compares the results with those of a run that nothing interrupted: values and order, bit by bit."""
    ours, theirs = _log(folder / AVERAGE), _log(folder / UNINTERRUPTED)
    results = identical = 0
    sample: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for partition in range(ours.spec.partitions):
        one, other = _results(ours, partition), _results(theirs, partition)
        results += one.num_rows
        identical += one.equals(other)
        sample += zip(one.slice(0, 2).to_pylist(), other.slice(0, 2).to_pylist(), strict=False)
    console.print(f"[bold]4[/]  {'Results with the crash':<{len(_HEADING)}} │ of a run without one")
    console.print(f"   {_HEADING} │ {_HEADING}".rstrip(), style="bright_black")
    for left, right in sample:
        console.print(f"   {_short(left)} │ {_short(right)}".rstrip(), markup=False, soft_wrap=True)
    good = identical == ours.spec.partitions
    console.print(
        f"   … {results:,} results in {plural(ours.spec.partitions, 'partition')}: "
        + ("[green]identical bit by bit, in the same order.[/]" if good else "[red]they differ![/]")
    )
    return {"results": results, "identical": good}


def _short(row: dict[str, Any]) -> str:
    return f"{row['item_id']:>7}  {row['window_start']:>7} … {row['window_end']:<7}  {row['average']:>8.3f}"


def _results(log: Log, partition: int) -> pa.Table:
    tables = [only_results(t).select(list(log.spec.columns)) for t in log.read(partition)]
    return pa.concat_tables(tables).combine_chunks() if tables else log.spec.arrow.empty_table()
