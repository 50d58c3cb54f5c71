"""Joins of two streams beside Spark's own: the operator alone, SPADE's windows, a theta join, recovery; and a union.

25,000 tuples a second and side, 100,000 keys: of the 100,000 tuples within two seconds before and after, a tuple meets
one. What needs no Spark is measured without it. Each part is a file: `spark_joins.py`, `join_kernel.py`,
`join_windows.py`, `join_theta.py`, `join_recovery.py`, `union_cost.py`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import strandline as sl
from benchmarks.harness import CORES, KEYS, workspace
from benchmarks.join_kernel import kernel
from benchmarks.join_recovery import RecoverySize, recoveries
from benchmarks.join_theta import theta
from benchmarks.join_windows import WindowSize, per_group, single_window
from benchmarks.spark_joins import JoinSize, joins
from benchmarks.union_cost import union_cost
from strandline.running.state.state_folders import FOLDER_VARIABLE


@dataclass(frozen=True)
class _Size:
    join: JoinSize
    kernel_batches: int
    windows: WindowSize
    recovery: RecoverySize
    union: int
    """Tuples; 0: without Spark, and without all that needs it."""


_SPADE = (8_192, 16_384, 32_768, 65_536, 131_072)
SIZES = {
    "tiny": _Size(
        JoinSize(1_000, 2_500, 2, 2),
        4,
        WindowSize((512, 2_048), 1_000, 2, 32, 400, 2),
        RecoverySize(2_048, 1_000, 3),
        0,
    ),
    "small": _Size(
        JoinSize(KEYS, 250_000, 5, 2),
        6,
        WindowSize(_SPADE[::2], 8_192, 8, 1_024, 2_500, 3),
        RecoverySize(131_072, 25_000, 6),
        2_000_000,
    ),
    "large": _Size(
        JoinSize(KEYS, 250_000, 13, 7),
        16,
        WindowSize(_SPADE, 8_192, 32, 1_024, 2_500, 12),
        RecoverySize(131_072, 25_000, 20),
        12_000_000,
    ),
}


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Measures without Spark, then with it, and returns the result."""
    sizes = SIZES[size]
    with workspace() as folder:
        alone = kernel(sizes.join.keys, sizes.join.batch, sizes.kernel_batches, repeat)
        windows = single_window(sizes.windows, repeat, folder)
        group = per_group(sizes.windows, repeat, folder)
        any_keys = theta(sizes.windows.windows[0], sizes.windows.batch, 4, repeat)
        recovered = recoveries(sizes.recovery, repeat, folder)
        with_spark = _with_spark(sizes, repeat, folder) if sizes.union else {}
    parts = [alone, windows, group, any_keys, recovered, *with_spark.values()]
    joined = with_spark.get("joins", {})
    return {
        "benchmark": "join",
        "size": size,
        "cores": CORES,
        "repeat": repeat,
        "keys": sizes.join.keys,
        "batch_tuples": 2 * sizes.join.batch,
        **_figures(joined),
        "kernel_tuples_per_s": alone["kernel_tuples_per_s"],
        "bytes_per_live_tuple": alone["bytes_per_live_tuple"],
        "results_per_tuple": alone["results_per_tuple"],
        **_figures(windows),
        "per_group": group,
        "theta": any_keys,
        **_figures(recovered),
        **_figures(with_spark.get("union", {})),
        "spread": {**joined.get("spread", {}), "kernel": alone["spread"]},
        "results_match": all(part["results_match"] for part in parts),
        "result_hash": joined.get("result_hash", alone["result_hash"]),
    }


def _with_spark(sizes: _Size, repeat: int, folder: Path) -> dict[str, dict[str, Any]]:
    # Before Spark starts, because its Python workers inherit it.
    os.environ.setdefault(FOLDER_VARIABLE, str(folder / "state"))
    spark = sl.session(f"local[{CORES}]")
    return {
        "joins": joins(spark, sizes.join, repeat, folder),
        "union": union_cost(spark, sizes.join.keys // 10, sizes.union, max(1, repeat - 1), folder),
    }


def _figures(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in ("results_match", "result_hash", "spread")}
