"""SPADE's joins without Spark: a window of the last tuples of left, none of right, and what checkpoints cost there.

Tuples are as in the paper: two integers and 70 bytes of text on the left, an integer and 10 bytes on the right, as many
of one as of the other. With one window over the partition there are as many keys as the window holds tuples, so that a
right tuple meets one tuple whatever the size is. With a window of 1,024 for each of 50 keys, a twelfth of the right
tuples (those with one of the 50 among 600 keys) meet 1,024.

Under the policy here a recovery replays an eighth of the tuples that a join keeps, and so the join writes footprints in
every step. `join_groups.py` varies how many of them it writes at a time. `join_steps.py` says what is in a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import strandline as sl
from benchmarks.harness import rounds, say, spread, stopwatch
from benchmarks.join_steps import Contender, Workload, steps
from benchmarks.orders import PAPER_LEFT, PAPER_RIGHT, Matches, definition
from strandline.checkpoint.policy import Policy
from strandline.operators.join.definition import JoinDefinition
from strandline.operators.join.join_windows import JoinWindows

GROUP_KEYS, GROUP_KEYS_RIGHT = 50, 600
REPLAYED = 8


@dataclass(frozen=True)
class WindowSize:
    """How much to measure."""

    windows: tuple[int, ...]
    batch: int
    """Tuples a batch and side."""
    batches: int
    """Of these, those count in which every window is full from the beginning."""
    group_window: int
    group_batch: int
    group_batches: int


def policies(kept: int) -> dict[str, Policy]:
    """Returns the policies to compare for a join that keeps so many tuples."""
    return {"cec": sl.cec(extent="2x", replay=kept // REPLAYED), "none": sl.none()}


def one_window(window: int, settle: int, batch: int, batches: int) -> Workload:
    """Returns the tuples of a join with one window: as many keys as it holds tuples."""
    rng = np.random.default_rng(7)
    left, right = (rng.integers(0, window, batch * (settle + batches)) for _ in range(2))
    return Workload(left, right, batch, settle)


def windows_by_key(window: int, batch: int, batches: int) -> Workload:
    """Returns the tuples of a join with a window of each of 50 keys, of which most right tuples have none."""
    settle = -(-2 * window * GROUP_KEYS // batch)
    rng = np.random.default_rng(9)
    tuples = batch * (settle + batches)
    left, right = rng.integers(0, GROUP_KEYS, tuples), rng.integers(0, GROUP_KEYS_RIGHT, tuples)
    # Until windows are full no right tuple meets any: results would only fill the memory.
    right[: settle * batch] = GROUP_KEYS
    return Workload(left, right, batch, settle)


def single_window(size: WindowSize, repeat: int, folder: Path) -> dict[str, Any]:
    """Measures windows of all sizes over a partition and what checkpoints cost; checks the results."""
    settle = -(-max(size.windows) // size.batch)
    contenders, kernels = {}, {}
    for window in size.windows:
        join = definition(JoinWindows("partition", sizes=(window, 0)), PAPER_LEFT, PAPER_RIGHT)
        workload = one_window(window, settle, size.batch, size.batches)
        kernels[window] = partial(_kernel, workload, join)
        for name, policy in policies(window).items():
            contenders[f"{window} {name}"] = Contender(workload, join, policy)
    taken = steps(contenders, repeat, folder / "windows")
    kernel = rounds({str(window): work for window, work in kernels.items()}, repeat)
    table = []
    for window in size.windows:
        cec, none, workload = taken[f"{window} cec"], taken[f"{window} none"], contenders[f"{window} cec"].workload
        # A right tuple meets the left ones of its key among the last: left comes first where times are the same.
        expected = Matches.expected(workload.left, workload.right, 0, window - 1)
        row: dict[str, Any] = {
            "window": window,
            "tuples_per_s": round(workload.measured / cec.seconds),
            "tuples_per_s_none": round(workload.measured / none.seconds),
            "kernel_tuples_per_s": round(workload.measured / min(kernel[str(window)])),
            "checkpoint_cost_pct": cec.cost_pct(none),
            "footprints": cec.footprints,
            "spread": {"cec": cec.spread, "none": none.spread, "kernel": spread(kernel[str(window)])},
            "results_match": cec.found.same_as(_taken_in(expected, len(workload.left))),
        }
        table.append(row)
        say(
            f"join, window of {window:>7,}: {row['tuples_per_s']:>10,} tuples/s in steps, kernel "
            f"{row['kernel_tuples_per_s']:>10,}, checkpoints {row['checkpoint_cost_pct']:.1f} %"
        )
    whole = [sum(taken[f"{window} {name}"].seconds for window in size.windows) for name in ("cec", "none")]
    return {
        "window_flatness": _flatness([row["tuples_per_s_none"] for row in table]),
        "window_flatness_kernel": _flatness([row["kernel_tuples_per_s"] for row in table]),
        "checkpoint_cost_pct": round(100 * (1 - whole[1] / whole[0]), 2),
        "windows": table,
        "results_match": all(row["results_match"] for row in table),
    }


def per_group(size: WindowSize, repeat: int, folder: Path) -> dict[str, Any]:
    """Measures the same for a window of each of 50 keys, most right tuples having none of them."""
    window = size.group_window
    workload = windows_by_key(window, size.group_batch, size.group_batches)
    join = definition(JoinWindows("key", sizes=(window, 0)), PAPER_LEFT, PAPER_RIGHT)
    contenders = {name: Contender(workload, join, policy) for name, policy in policies(window * GROUP_KEYS).items()}
    taken = steps(contenders, repeat, folder / "groups")
    cec, none = taken["cec"], taken["none"]
    results = int((workload.right[:-1] < GROUP_KEYS).sum()) * window  # the last tuples wait
    row = {
        "keys": GROUP_KEYS,
        "window": window,
        "tuples_per_s": round(workload.measured / cec.seconds),
        "results_per_s": round(results / cec.seconds),
        "checkpoint_cost_pct": cec.cost_pct(none),
        "footprints": cec.footprints,
        "spread": {"cec": cec.spread, "none": none.spread},
        "results_match": len(cec.found) == results,
    }
    say(
        f"join, {GROUP_KEYS} of {window:,}: {row['tuples_per_s']:,} tuples/s, {row['results_per_s']:,} results/s, "
        f"checkpoints {row['checkpoint_cost_pct']:.1f} %"
    )
    return row


def _flatness(rates: list[int]) -> float:
    return round(min(rates) / max(rates), 3)


def _taken_in(matches: Matches, tuples: int) -> Matches:
    """Without those of the last tuple of each side, which waits: nothing says yet that none comes before it."""
    before = (matches.left < tuples - 1) & (matches.right < tuples - 1)
    return Matches(matches.left[before], matches.right[before])


def _kernel(workload: Workload, join: JoinDefinition) -> float:
    """Seconds of the operator alone over the measured batches."""
    operator, seconds = join.fresh(), 0.0
    for number, tables in enumerate(workload.batches()):
        first = number * workload.batch
        placed = [
            table.append_column("_offset", pa.array(np.arange(first, first + table.num_rows) * 2 + side))
            for side, table in enumerate(tables)
        ]

        def work(placed: list[pa.Table] = placed) -> None:
            operator.begin()
            for _ in operator.feed(placed):
                pass
            operator.end()

        taken = stopwatch(work)
        if number >= workload.settle:
            seconds += taken
    return seconds
