"""How many footprints a join writes at a time (`group=`): SPADE's sweep of group sizes, without Spark.

SPADE divides a window into groups and saves each group that has changed as a whole (section 5.2 and figures 8 to 10 of
its paper). It finds that the best size depends on the window, the period and the distribution of keys. Here a join only
saves tuples that have no footprint yet, so the size does not decide how many it saves. It decides how many footprints
are written again at a time, once they lie further back than the extent allows.

The sweep varies windows, groups, the period between two saves (as the part of the kept tuples that is replayed: an
eighth, or half), and the distribution of keys. Of each it tells the cost against `none()`, the footprints a left tuple
and the most output tuples that a recovery reads. `choosing_pays` is True if in any setting the default is slower than
the best size by more than twice the spread of their rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

import strandline as sl
from benchmarks.harness import CORES, say, workspace
from benchmarks.join_steps import Contender, Taken, Workload, steps
from benchmarks.join_windows import GROUP_KEYS, one_window, windows_by_key
from benchmarks.orders import PAPER_LEFT, PAPER_RIGHT, definition
from strandline.operators.join.definition import GROUP, JoinDefinition
from strandline.operators.join.join_windows import JoinWindows

REPLAYED = {"1/8": 8, "1/2": 2}
ZIPF = 1.2


@dataclass(frozen=True)
class _Size:
    windows: tuple[int, ...]
    groups: tuple[int, ...]
    batch: int
    batches: int
    key_window: int
    key_groups: tuple[int, ...]
    key_batch: int
    key_batches: int


SIZES = {
    "tiny": _Size((512,), (64, GROUP), 500, 3, 16, (8, GROUP), 200, 3),
    "small": _Size((8_192, 32_768, 131_072), (512, GROUP, 4_096), 8_192, 6, 1_024, (32, 256, GROUP), 2_500, 3),
    "large": _Size(
        (8_192, 16_384, 32_768, 65_536, 131_072),
        (512, GROUP, 2_048, 4_096),
        8_192,
        32,
        1_024,
        (32, 64, 128, 256, GROUP),
        2_500,
        12,
    ),
}


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Measures all settings and returns the result."""
    sizes = SIZES[size]
    rows: list[dict[str, Any]] = []
    with workspace() as folder:
        for window in sizes.windows:
            workload = one_window(window, -(-window // sizes.batch), sizes.batch, sizes.batches)
            windows = JoinWindows("partition", sizes=(window, 0))
            rows += _sweep("one window", window, workload, windows, sizes.groups, repeat, folder / f"one-{window}")
        by_key = windows_by_key(sizes.key_window, sizes.key_batch, sizes.key_batches)
        for keys, workload in {"50 windows": by_key, "50 windows, Zipf": _zipf(by_key)}.items():
            windows = JoinWindows("key", sizes=(sizes.key_window, 0))
            kept = sizes.key_window * GROUP_KEYS
            rows += _sweep(keys, kept, workload, windows, sizes.key_groups, repeat, folder / keys)
    return {
        "benchmark": "join_groups",
        "size": size,
        "cores": CORES,
        "repeat": repeat,
        "settings": rows,
        "largest_difference_pct": max(row["difference_pct"] for row in rows),
        "default": GROUP,
        "default_slower_pct": max(row["default_slower_pct"] for row in rows),
        "choosing_pays": any(row["default_slower_pct"] > 2 * row["spread_pct"] for row in rows),
        "results_match": all(row["results_match"] for row in rows),
    }


def tables(result: dict[str, Any]) -> list[Table]:
    """Returns the sweep as a table."""
    table = Table(title="cost of checkpoints by group size, % of the rate under none()")
    for name in ("join", "kept", "replayed", "group: cost, footprints a tuple, extent", "apart", "default", "spread"):
        table.add_column(name, overflow="fold")
    for row in result["settings"]:
        groups = "\n".join(
            f"{one['group']:>5,}: {one['cost_pct']:>5.1f} %  {one['footprints_per_tuple']:.2f}  {one['extent']:,}"
            for one in row["groups"]
        )
        apart = (f"{row[name]:.1f} %" for name in ("difference_pct", "default_slower_pct", "spread_pct"))
        table.add_row(row["join"], f"{row['kept']:,}", row["replayed"], groups, *apart)
    return [table]


def _sweep(
    name: str,
    kept: int,
    workload: Workload,
    windows: JoinWindows,
    groups: tuple[int, ...],
    repeat: int,
    folder: Path,
) -> list[dict[str, Any]]:
    """Measures all group sizes of a join for each period; returns a row a period."""
    contenders = {"none": Contender(workload, _join(windows, groups[0]), sl.none())}
    for replayed, part in REPLAYED.items():
        policy = sl.cec(extent="2x", replay=kept // part)
        contenders |= {f"{replayed} {g}": Contender(workload, _join(windows, g), policy) for g in groups}
    taken = steps(contenders, repeat, folder)
    return [_row(name, kept, replayed, groups, taken, workload) for replayed in REPLAYED]


def _row(
    name: str, kept: int, replayed: str, groups: tuple[int, ...], taken: dict[str, Taken], workload: Workload
) -> dict[str, Any]:
    mine = {group: taken[f"{replayed} {group}"] for group in groups}
    fastest, slowest = (choose(one.seconds for one in mine.values()) for choose in (min, max))
    row: dict[str, Any] = {
        "join": name,
        "kept": kept,
        "replayed": replayed,
        "groups": [
            {
                "group": group,
                "cost_pct": one.cost_pct(taken["none"]),
                "footprints_per_tuple": round(2 * one.footprints / workload.measured, 2),
                "extent": one.extent,
            }
            for group, one in mine.items()
        ],
        "difference_pct": round(100 * (slowest / fastest - 1), 2),
        "default_slower_pct": round(100 * (mine[GROUP].seconds / fastest - 1), 2),
        "spread_pct": round(100 * max(one.spread for one in mine.values()), 2),
        "results_match": all(one.found.same_as(taken["none"].found) for one in mine.values()),
    }
    costs = ", ".join(f"{one['group']:,}: {one['cost_pct']:.1f} %" for one in row["groups"])
    say(f"{name} of {kept:,}, {replayed} replayed: {costs}; spread of the rounds {row['spread_pct']:.1f} %")
    return row


def _join(windows: JoinWindows, group: int) -> JoinDefinition:
    return definition(windows, PAPER_LEFT, PAPER_RIGHT, group)


def _zipf(uniform: Workload) -> Workload:
    """Returns the same tuples, but those of left that are measured have keys by Zipf's law."""
    rng = np.random.default_rng(10)
    weights = 1 / np.arange(1, GROUP_KEYS + 1) ** ZIPF
    left = uniform.left.copy()
    first = uniform.settle * uniform.batch
    left[first:] = rng.choice(GROUP_KEYS, len(left) - first, p=weights / weights.sum())
    return Workload(left, uniform.right, uniform.batch, uniform.settle)
