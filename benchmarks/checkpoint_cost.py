"""What continuous eventual checkpointing costs an operator, without Spark, which would only hide it.

The step of a task is run over logs in memory: it opens the state that the step before left on disk, reads the input,
runs the kernels, encodes and checksums the block, and leaves its state. With `sl.none()` the same step writes results
only. Both take in the same batches in turns; for every batch the best of all rounds counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import strandline as sl
from benchmarks.averages import Averages, Items, plan_of
from benchmarks.harness import CORES, say, spread
from strandline.testing import MemoryStorage

POLICY = sl.cec(extent="2x", replay=500_000)
LOGGED_TUPLES = 50_000 // CORES
"""One partition's share of a batch of 50,000, for counting footprints."""


def checkpoint_cost(
    window: int, keys: int, batch: int, batches: int, settle: int, repeat: int, folder: Path
) -> dict[str, Any]:
    """What footprints add to a step, in seconds and in percent, after the first `settle` batches."""
    items = Items(MemoryStorage())
    rng = np.random.default_rng(5)
    for _ in range(batches):
        items.append(rng.integers(0, keys, batch), rng.random(batch))
    taken: dict[str, list[list[float]]] = {"cec": [], "none": []}
    for turn in range(repeat):
        contenders = {
            name: Averages(items, MemoryStorage(), folder / f"cost-{window}-{turn}-{name}", window, policy)
            for name, policy in (("cec", POLICY), ("none", sl.none()))
        }
        for seconds in taken.values():
            seconds.append([])
        for number in range(batches):
            names = list(contenders) if number % 2 == 0 else list(reversed(contenders))
            for name in names:
                taken[name][turn].append(contenders[name].step(batch).seconds)
    best = {name: sum(min(column) for column in list(zip(*s, strict=True))[settle:]) for name, s in taken.items()}
    tuples = batch * (batches - settle)
    row = {
        "window": window,
        "tuples_per_s": {name: round(tuples / seconds) for name, seconds in best.items()},
        "cost_pct_of_step": round(100 * (1 - best["none"] / best["cec"]), 1),
        "cost_s": (best["cec"] - best["none"]) / (batches - settle),
        "spread": {name: spread([sum(one[settle:]) for one in s]) for name, s in taken.items()},
    }
    say(f"aggregate, footprints, window {window:>4}: {row['cost_pct_of_step']:.1f} % of a step")
    return row


def records_per_touched_key(window: int, keys: int, batches: int) -> float:
    """Footprints written for every key that a batch has tuples of; logging every key it touched would be 1."""
    plan = plan_of(window)
    operator = plan.fresh()
    rng = np.random.default_rng(6)
    position = footprints = touched = 0
    for number in range(batches):
        ids = rng.integers(0, keys, LOGGED_TUPLES)
        first = number * LOGGED_TUPLES
        offsets = np.arange(first, first + LOGGED_TUPLES)
        table = pa.table({"item_id": ids, "item_price": rng.random(LOGGED_TUPLES), "_offset": offsets})
        operator.begin()
        position += sum(len(columns[0]) for columns in operator.feed([table]))
        saved = operator.save(position, POLICY.limits(operator.state.open_windows, 0, None))
        written = len(saved.opened[0]) + len(saved.checked[0])
        position += written
        if number >= batches // 2:
            footprints += written
            touched += len(np.unique(ids))
    return round(footprints / touched, 4)
