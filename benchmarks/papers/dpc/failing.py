"""Failures of an input, run in real time beside each other, and what the paper's figures say of each contender."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import CORES, say
from benchmarks.input_failures import BEFORE_S, TICK_S, Contender, InputFailure
from benchmarks.links import borealis_nodes

Row = Mapping[str, Any]
MARGIN_S = 2 * TICK_S
"""An operator looks every `TICK_S`: it sees a tuple up to one tick late, and that a bound has run out another one."""
_CALM_S = 0.6
"""A step of an operator takes 0.2 to 0.5 s on a quiet machine."""
AVAILABLE = 2 / 3
"""The part of all tuples that is there while one of three streams is cut off; each has one result."""
SETTING = (
    "a union of two streams that feeds a join with a third (Figure 1 of the paper, with sl.union and join), without "
    "Spark: the tick that the driver runs in Spark, over logs and states on disk, in real time. Each tuple meets the "
    "last one of its sensor on the other side, so each tuple has one result. One of the streams of the union is cut "
    "off. The union has 0.1 of the bound X and the join 0.9 of it, which is the paper's alpha. Operators look at their "
    f"inputs every {TICK_S:g} s, and sources publish as often. Stable results are compared, bit by bit, with those of "
    "operators that find all inputs complete."
)


def failures(
    folder: Path,
    tuples_per_s: int,
    runs: Sequence[tuple[float, Sequence[Contender]]],
    *,
    sensors: int,
    at_once: int,
    before_s: float = BEFORE_S,
) -> list[InputFailure]:
    """Returns a failure of these seconds for each run, or several if it has more than `at_once` contenders."""
    return [
        InputFailure(
            folder / f"{number}-{first}",
            tuples_per_s,
            seconds,
            tuple(contenders[first : first + at_once]),
            links=borealis_nodes,
            sensors=sensors,
            before_s=before_s,
        )
        for number, (seconds, contenders) in enumerate(runs)
        for first in range(0, len(contenders), at_once)
    ]


def rows(todo: Sequence[InputFailure], *, beside: bool) -> list[Row]:
    """Returns what each failure meant for its contenders, in the order of `todo`; raises if stable results differ.

    With `beside` two processes run them, the longest first. Then they repeat those in which an operator looked at its
    inputs too late, because the machine did something else; of both runs the calmer one counts.
    """
    if not beside:
        found = [_run(failure) for failure in todo]
    else:
        found = _beside(todo)
        again = [number for number, one in enumerate(found) if _step_s(one) > _CALM_S]
        for number, one in zip(again, _beside([todo[number] for number in again]), strict=True):
            found[number] = min(found[number], one, key=_step_s)
    flat = [row for one in found for row in one]
    if not all(row["stable_match"] for row in flat):
        raise RuntimeError("stable results differ from those of a run without a failure")
    return flat


def _beside(todo: Sequence[InputFailure]) -> list[list[Row]]:
    found: list[list[Row]] = [[] for _ in todo]
    order = sorted(range(len(todo)), key=lambda number: -todo[number].seconds)
    with ProcessPoolExecutor(CORES, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {number: pool.submit(_run, todo[number]) for number in order}
        for done, number in enumerate(order):
            found[number] = running[number].result()
            say(f"dpc: a failure of {todo[number].seconds:g} s ({done + 1} of {len(todo)})")
    return found


def _step_s(found: Sequence[Row]) -> float:
    """Returns the longest step of an operator: from one look to the next, and its longest tick."""
    return max(map(_of_operator, found))


def _of_operator(row: Row) -> float:
    """Returns the step of an operator on average: the first node has two, each other node one."""
    return float(row["step_s"]) / (int(row["depth"]) + 1)


def steps_table(found: Sequence[Row]) -> list[list[str]]:
    """Returns how long the steps of operators were: if that is seconds, the machine was busy and delays say little."""
    steps = sorted(map(_of_operator, found))
    return [
        ["steps of an operator, from one look to the next and its longest tick", "seconds"],
        ["median of all runs", f"{steps[len(steps) // 2]:.2f}"],
        ["longest", f"{steps[-1]:.2f}"],
    ]


def _run(failure: InputFailure) -> list[Row]:
    try:
        return [*failure.run()]
    finally:
        shutil.rmtree(failure.folder)


def brief(row: Row, **more: Any) -> dict[str, Any]:
    """Returns the fields of a row that figures show."""
    kept = ("combination", "failure_s", "bound_s", "depth", "delay_new_max_s", "tentative", "stable_again_s", "step_s")
    return {**{name: row[name] for name in kept}, **more}


def line(found: Sequence[Row], x: str, y: str, **chosen: Any) -> list[tuple[float, float]]:
    """Returns the points (x, y) of the rows with these values."""
    return sorted((row[x], row[y]) for row in found if all(row[name] == value for name, value in chosen.items()))


def fit(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Returns slope, intercept and R² of the straight line through the points; zeros if they are too few.

    >>> fit([(0, 1), (1, 3), (2, 5)])
    (2.0, 1.0, 1.0)
    """
    if len(points) < 2:
        return 0.0, 0.0, 0.0
    x, y = np.array(points, float).T
    slope, intercept = np.polyfit(x, y, 1)
    residue = float(((y - slope * x - intercept) ** 2).sum())
    spread = float(((y - y.mean()) ** 2).sum())
    return round(float(slope), 9), round(float(intercept), 9), round(1 - residue / spread, 9) if spread else 0.0
