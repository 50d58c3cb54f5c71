"""SPADE's joins without Spark: a window of the last tuples of left, none of right, and what checkpoints cost there.

Tuples are as in the paper: two integers and 70 bytes of text on the left, an integer and 10 bytes on the right, as many
of one as of the other. With one window over the partition there are as many keys as the window holds tuples, so that a
right tuple meets one tuple whatever the size is. With a window of 1,024 for each of 50 keys, a twelfth of the right
tuples (those with one of the 50 among 600 keys) meet 1,024.

A step is that of a task, over logs in memory: it opens the state that the step before left on disk, reads both inputs
and puts them in order, runs the kernels, encodes and checksums the block, and leaves its state. For every batch the
best of all rounds counts. All contenders take in a batch before any takes in the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import strandline as sl
from benchmarks.harness import rounds, say, spread, stopwatch
from benchmarks.orders import (
    PAPER_LEFT,
    PAPER_RIGHT,
    Ids,
    Joined,
    Matches,
    Side,
    definition,
    paper_tuples,
    results_of,
)
from strandline.operators.join.definition import JoinDefinition
from strandline.operators.join.join_windows import JoinWindows
from strandline.testing import MemoryStorage

POLICIES = {"cec": sl.cec(recover_within="1 s"), "none": sl.none()}
GROUP_KEYS, GROUP_KEYS_RIGHT = 50, 600


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


@dataclass(frozen=True)
class _Workload:
    """Tuples of both sides in batches, and the join over them."""

    join: JoinDefinition
    left: Ids
    right: Ids
    batch: int
    settle: int
    """Batches that are not measured: until then windows are not full."""

    def batches(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        rng = np.random.default_rng(8)
        for first in range(0, len(self.left), self.batch):
            part = slice(first, first + self.batch)
            yield paper_tuples(rng, "left", first, self.left[part]), paper_tuples(rng, "right", first, self.right[part])

    def streams(self) -> tuple[Side, Side]:
        sides = Side(MemoryStorage(), "left", PAPER_LEFT), Side(MemoryStorage(), "right", PAPER_RIGHT)
        for tables in self.batches():
            for side, table in zip(sides, tables, strict=True):
                side.append(table)
        return sides


def single_window(size: WindowSize, repeat: int, folder: Path) -> dict[str, Any]:
    """How fast windows of all sizes are over a partition, what checkpoints cost, and whether results are right."""
    settle = -(-max(size.windows) // size.batch)
    rng = np.random.default_rng(7)
    workloads = {}
    for window in size.windows:
        left, right = (rng.integers(0, window, size.batch * (settle + size.batches)) for _ in range(2))
        join = definition(JoinWindows("partition", sizes=(window, 0)), PAPER_LEFT, PAPER_RIGHT)
        workloads[str(window)] = _Workload(join, left, right, size.batch, settle)
    steps = _steps(workloads, repeat, folder / "windows")
    kernel = rounds({name: partial(_kernel, workload) for name, workload in workloads.items()}, repeat)
    measured = 2 * size.batch * size.batches
    table = []
    for name, workload in workloads.items():
        # A right tuple meets the left ones of its key among the last: left comes first where times are the same.
        expected = Matches.expected(workload.left, workload.right, 0, int(name) - 1)
        rates = {policy: round(measured / s) for policy, s in steps[name].seconds.items()}
        row: dict[str, Any] = {
            "window": int(name),
            "tuples_per_s": rates["cec"],
            "tuples_per_s_none": rates["none"],
            "kernel_tuples_per_s": round(measured / min(kernel[name])),
            "checkpoint_cost_pct": steps[name].cost_pct,
            "footprints": steps[name].footprints,
            "spread": steps[name].spread | {"kernel": spread(kernel[name])},
            "results_match": steps[name].found.same_as(_taken_in(expected, len(workload.left))),
        }
        table.append(row)
        say(
            f"join, window of {row['window']:>7,}: {row['tuples_per_s']:>10,} tuples/s in steps, kernel "
            f"{row['kernel_tuples_per_s']:>10,}, checkpoints {row['checkpoint_cost_pct']:.1f} %"
        )
    whole = {policy: sum(steps[name].seconds[policy] for name in steps) for policy in POLICIES}
    return {
        "window_flatness": _flatness([row["tuples_per_s"] for row in table]),
        "window_flatness_kernel": _flatness([row["kernel_tuples_per_s"] for row in table]),
        "checkpoint_cost_pct": round(100 * (1 - whole["none"] / whole["cec"]), 2),
        "windows": table,
        "results_match": all(row["results_match"] for row in table),
    }


def per_group(size: WindowSize, repeat: int, folder: Path) -> dict[str, Any]:
    """The same for a window of each of 50 keys, most right tuples having none of them."""
    window = size.group_window
    settle = -(-2 * window * GROUP_KEYS // size.group_batch)
    rng = np.random.default_rng(9)
    tuples = size.group_batch * (settle + size.group_batches)
    left, right = rng.integers(0, GROUP_KEYS, tuples), rng.integers(0, GROUP_KEYS_RIGHT, tuples)
    # Until windows are full nobody asks: results would only fill the memory.
    right[: settle * size.group_batch] = GROUP_KEYS
    join = definition(JoinWindows("key", sizes=(window, 0)), PAPER_LEFT, PAPER_RIGHT)
    done = _steps({"group": _Workload(join, left, right, size.group_batch, settle)}, repeat, folder / "groups")["group"]
    measured = 2 * size.group_batch * size.group_batches
    results = int((right[: tuples - 1] < GROUP_KEYS).sum()) * window  # the last tuples wait
    row = {
        "keys": GROUP_KEYS,
        "window": window,
        "tuples_per_s": round(measured / done.seconds["cec"]),
        "results_per_s": round(results / done.seconds["cec"]),
        "checkpoint_cost_pct": done.cost_pct,
        "footprints": done.footprints,
        "spread": done.spread,
        "results_match": len(done.found) == results,
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


# ---------------------------------------------------------------------- contenders


@dataclass(frozen=True)
class _Steps:
    """What the measured steps of a workload took, by policy; what they left."""

    seconds: dict[str, float]
    spread: dict[str, float]
    footprints: int
    found: Matches

    @property
    def cost_pct(self) -> float:
        return round(100 * (1 - self.seconds["none"] / self.seconds["cec"]), 2)


def _steps(workloads: dict[str, _Workload], repeat: int, folder: Path) -> dict[str, _Steps]:
    """Runs every workload with every policy, batch by batch in turns, as often as `repeat` says."""
    names = [(name, policy) for name in workloads for policy in POLICIES]
    taken: dict[tuple[str, str], list[list[float]]] = {contender: [] for contender in names}
    written = dict.fromkeys(workloads, 0)
    found: dict[str, Matches] = {}
    inputs = {name: workload.streams() for name, workload in workloads.items()}
    for turn in range(repeat):
        joins = {
            (name, policy): Joined(
                inputs[name],
                MemoryStorage(),
                folder / f"{turn}-{name}-{policy}",
                workloads[name].join,
                POLICIES[policy],
            )
            for name, policy in names
        }
        for contender in names:
            taken[contender].append([])
        for number in range(max(len(w.left) // w.batch for w in workloads.values())):
            for name, policy in names if (number + turn) % 2 == 0 else reversed(names):
                done = joins[name, policy].step(2 * workloads[name].batch)
                taken[name, policy][turn].append(done.seconds)
                if turn == 0 and policy == "cec":
                    written[name] += done.opened + done.checked
        if turn == 0:
            found = {name: Matches.found(results_of(joins[name, "cec"].log)) for name in workloads}
    best: dict[str, _Steps] = {}
    for name, workload in workloads.items():
        mine = {policy: [one[workload.settle :] for one in taken[name, policy]] for policy in POLICIES}
        seconds = {policy: sum(map(min, zip(*s, strict=True))) for policy, s in mine.items()}
        spreads = {policy: spread([sum(one) for one in s]) for policy, s in mine.items()}
        best[name] = _Steps(seconds, spreads, written[name], found[name])
    return best


def _kernel(workload: _Workload) -> float:
    """Seconds of the operator alone over the measured batches."""
    operator, seconds = workload.join.fresh(), 0.0
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
