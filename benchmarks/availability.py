"""Availability as the DPC paper measures it (section 5): how long new tuples wait, and how many results are guesses.

Without Spark, in real time, with the real tick, logs on disk and states as they are: Figures 9, 10 and 11, and changing
over to another replica. With a clock that is moved by hand, the ticks measured in real time: Figure 12, and how fast
guesses are corrected. With Spark: what a bound costs while nothing fails, and a failure.

Runs without Spark go on beside each other in two processes. `slow` are runs whose stable lineage is held back to three
times the rate of the input, as the paper's machine was, so that a correction lasts long; the others correct in one step
or two whatever the failure was. Stable results of every run are compared, to the bit, with those of an operator without
a bound over the same streams, after the failure.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import strandline as sl
from benchmarks import availability_figures
from benchmarks.harness import CORES, say, workspace
from benchmarks.input_failures import COMBINATIONS, KEEPS_BOUND, TICK_S, Contender, InputFailure
from benchmarks.reconciliation import ReconciliationSize, reconciliations
from benchmarks.replica_switch import switches
from strandline.running.state.state_folders import FOLDER_VARIABLE

BOTH = (COMBINATIONS[0], COMBINATIONS[3])
CHAINED = (COMBINATIONS[0], COMBINATIONS[3], COMBINATIONS[4])
AT_ONCE = 6
"""Operators that one process lets tick in turns."""
Row = Mapping[str, Any]

plots = availability_figures.plots
tables = availability_figures.tables


@dataclass(frozen=True)
class _Size:
    bound_s: float
    durations: tuple[float, ...]
    """Of failures, for Figure 10."""
    slow: tuple[float, ...]
    """The same for a stable lineage that is held back."""
    bounds: tuple[float, ...]
    """For Figure 9, with a failure of `failure_s`."""
    failure_s: float
    depth: int
    chain_s: float
    """The length of chains, and of the failure, for Figure 11."""
    rates: tuple[int, int]
    """Tuples a second: for Figure 10, and for the others."""
    switches: int
    reconciliation: ReconciliationSize
    overhead: tuple[int, int]
    """Tuples a batch, batches, in Spark; none without Spark."""
    in_spark: tuple[tuple[int, float], ...]
    """Failures in Spark: the number of the combination, and seconds."""


SIZES = {
    "tiny": _Size(
        0.6, (1.5,), (), (0.6,), 1.5, 2, 1.5, (300, 300), 1, ReconciliationSize(2_000, (100,), (600,), 600), (0, 0), ()
    ),
    "small": _Size(
        3.0,
        (2.0, 5.0, 10.0),
        (5.0, 10.0),
        (0.5, 1.0, 2.0, 3.0, 4.0, 6.0),
        5.0,
        2,
        5.0,
        (4_500, 3_000),
        6,
        ReconciliationSize(100_000, (100, 10_000, 100_000), (5_000, 20_000, 45_000)),
        (240_000, 12),
        ((0, 5.0),),
    ),
    "large": _Size(
        3.0,
        (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 15.0, 30.0, 60.0),
        (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 15.0, 30.0, 60.0),
        (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0),
        5.0,
        4,
        15.0,
        (4_500, 3_000),
        20,
        ReconciliationSize(
            100_000, (100, 1_000, 10_000, 100_000, 1_000_000), (5_000, 10_000, 20_000, 45_000, 200_000, 1_000_000)
        ),
        (240_000, 40),
        ((0, 5.0), (3, 5.0), (0, 15.0), (3, 15.0)),
    ),
}


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Measures all of it; of reconciliations, and of the overhead, the best of `repeat` rounds or more counts."""
    sizes = SIZES[size]
    with workspace() as folder:
        figures = _in_real_time(sizes, folder)
        corrected = reconciliations(sizes.reconciliation, repeat, folder / "reconciliation")
        spark = _with_spark(sizes, repeat, folder) if sizes.overhead[0] else {"spark": [], "stable_match": True}
    switched = figures.pop("switch")
    failures = [row for rows in (*figures.values(), spark["spark"]) for row in rows]
    parts = (corrected.pop("stable_match"), spark.pop("stable_match"), switched.pop("stable_match"))
    keeping = [row for row in failures if row["combination"] in KEEPS_BOUND]
    return {
        "benchmark": "availability",
        "size": size,
        "cores": CORES,
        "repeat": repeat,
        "bound_s": sizes.bound_s,
        "tick_s": TICK_S,
        "delay_new_max_s": _by_duration(figures["figure10"], "delay_new_max_s"),
        "tentative": _by_duration(figures["figure10"], "tentative"),
        "bound_kept": all(row["bound_kept"] for row in keeping),
        "step_max_s": max(row["step_s"] for row in keeping),
        "over_bound_max_s": round(max(_over_bound_s(row) for row in keeping), 3),
        "stable_match": all(parts) and all(row["stable_match"] for row in failures),
        **switched,
        "overhead_ratio": None,
        **corrected,
        "with_spark": ["overhead_ratio", "overhead", "spark"],
        **spark,
        **figures,
    }


def _over_bound_s(row: Row) -> float:
    """By how much the longest delay of a new tuple was beyond the bound, or beyond those of a chain."""
    return float(row["delay_new_max_s"] - row["bound_s"] * row.get("depth", 1))


def _by_duration(rows: Sequence[Row], field: str) -> dict[str, dict[str, Any]]:
    """A field of Figure 10 by combination and by the duration of the failure."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row["combination"], {})[f"{row['failure_s']:g}"] = row[field]
    return found


# ---------------------------------------------------------------------- without Spark, in real time


def _in_real_time(size: _Size, folder: Path) -> dict[str, Any]:
    """What failures and losses meant, by figure; two processes take what is next, the longest first."""
    todo = sorted(_failures(size, folder), key=lambda one: -one[1].seconds)
    found: dict[str, Any] = {"figure9": [], "figure10": [], "slow": [], "figure11": []}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(CORES, mp_context=context) as pool:
        runs: list[tuple[str, InputFailure, Future[list[dict[str, Any]]]]] = [
            (figure, failure, pool.submit(failure.run)) for figure, failure in todo
        ]
        switched = pool.submit(switches, folder / "switch", size.switches)
        for done, (figure, failure, run_) in enumerate(runs):
            found[figure] += run_.result()
            shutil.rmtree(failure.folder)
            say(f"availability, {figure}: a failure of {failure.seconds:g} s ({done + 1} of {len(runs)})")
        found["switch"] = switched.result()
    for rows in found.values():
        if isinstance(rows, list):
            rows.sort(key=lambda row: (row["failure_s"], row["bound_s"], row["depth"]))
    return found


def _failures(size: _Size, folder: Path) -> list[tuple[str, InputFailure]]:
    """All that is to be run, with the name of its figure."""
    fast, usual = size.rates
    found: list[tuple[str, int, float, list[Contender]]] = [
        *(("figure10", fast, s, [Contender(size.bound_s, *modes) for modes in COMBINATIONS]) for s in size.durations),
        *(
            ("slow", fast, s, [Contender(size.bound_s, *modes, pace=3 * fast) for modes in COMBINATIONS])
            for s in size.slow
        ),
        ("figure9", usual, size.failure_s, [Contender(bound_s, *modes) for bound_s in size.bounds for modes in BOTH]),
        ("figure11", usual, size.chain_s, [Contender(size.bound_s, *modes, depth=size.depth) for modes in CHAINED]),
    ]
    return [
        (figure, InputFailure(folder / f"{figure}-{seconds:g}-{n}", rate, seconds, tuple(every[n : n + AT_ONCE])))
        for figure, rate, seconds, every in found
        for n in range(0, len(every), AT_ONCE)
    ]


# ---------------------------------------------------------------------- with Spark


def _with_spark(size: _Size, repeat: int, folder: Path) -> dict[str, Any]:
    from benchmarks.availability_in_spark import failure, overhead, warm_up

    os.environ.setdefault(FOLDER_VARIABLE, str(folder / "state"))  # Spark's Python workers inherit it
    spark = sl.session(f"local[{CORES}]")
    found = overhead(spark, *size.overhead, repeat, folder / "overhead")
    warm_up(spark, folder / "warm")
    rows = [
        failure(spark, Contender(size.bound_s, *COMBINATIONS[number]), seconds, size.rates[1], folder / "in-spark")
        for number, seconds in size.in_spark
    ]
    return {**found, "spark": rows}
