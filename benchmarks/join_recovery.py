"""Recovery of a join from the logs alone, without Spark: 131,072 tuples of the left side in one window.

Twice. `replayed`: under `sl.cec(recover_within="1 s")` nothing was ever saved, and all tuples are read from the inputs
again. `loaded`: under `sl.cec(extent="2x", replay=…)` with a replay that is small beside the window, nearly all come
from footprints in the output. Each once more from streams that are ten times as old. What is recovered is compared,
tuple by tuple, with what the operator had when it stopped. In: reading, checksums, putting tuples in order, kernels.
Out: Spark, opening the logs (`open_s`), compiling. The files have just been written.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import strandline as sl
from benchmarks.harness import rounds, say, spread
from benchmarks.orders import PAPER_LEFT, PAPER_RIGHT, Joined, Side, definition, kept_by, paper_tuples
from strandline.inputs.input_of import input_of
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.operators.join.definition import JoinDefinition
from strandline.operators.join.join_operator import JoinOperator
from strandline.operators.join.join_windows import JoinWindows
from strandline.recovery.recover import Recovery, Stand, recover

AGE = 10
Figures = dict[str, Any]


@dataclass(frozen=True)
class RecoverySize:
    """How much to recover."""

    window: int
    batch: int
    """Tuples a batch and side."""
    batches: int
    """Of the young streams; the old ones have ten times as many."""


@dataclass(frozen=True)
class _Recovered:
    kept: pa.Table
    done: Recovery
    open_s: float

    @property
    def seconds(self) -> float:
        return self.done.load_s + self.done.replay_s

    def figures(self) -> Figures:
        return {
            "live_tuples": self.done.open_windows,
            "extent": self.done.extent,
            "replayed": self.done.replayed,
            "load_s": round(self.done.load_s, 4),
            "replay_s": round(self.done.replay_s, 4),
            "open_s": round(self.open_s, 4),
        }


def recoveries(size: RecoverySize, repeat: int, folder: Path) -> Figures:
    """Recoveries by replaying and by loading, of young and of old streams; the slower way is the headline."""
    policies = {
        "replayed": sl.cec(recover_within="1 s"),
        "loaded": sl.cec(extent="2x", replay=size.window // 8),
    }
    join = definition(JoinWindows("partition", sizes=(size.window, 0)), PAPER_LEFT, PAPER_RIGHT)
    kept = _write(size, join, policies, folder / "recovery")
    ways = {way: _recovered(way, join, kept[way], repeat, folder / "recovery") for way in policies}
    shutil.rmtree(folder / "recovery")
    slowest = max(ways.values(), key=lambda way: float(way["load_s"]) + float(way["replay_s"]))
    return {
        "live_tuples": slowest["live_tuples"],
        "load_s": slowest["load_s"],
        "replay_s": slowest["replay_s"],
        "age": max(way["age"] for way in ways.values()),
        "recovery": ways,
        "results_match": all(way["results_match"] for way in ways.values()),
    }


def _write(
    size: RecoverySize, join: JoinDefinition, policies: Mapping[str, sl.Policy], folder: Path
) -> dict[str, dict[str, pa.Table]]:
    """Writes old streams, and a copy from when they were young; what the join of each policy kept of both."""
    old = folder / "old"
    sides = [
        Side(LocalStorage(old / name, durability="os"), name, columns)
        for name, columns in (("left", PAPER_LEFT), ("right", PAPER_RIGHT))
    ]
    joins = {
        way: Joined(sides, LocalStorage(old / way, durability="os"), folder / f"cache-{way}", join, policy)
        for way, policy in policies.items()
    }
    rng = np.random.default_rng(10)
    kept: dict[str, dict[str, pa.Table]] = {way: {} for way in joins}
    for number in range(size.batches * AGE):
        for side in sides:
            ids = rng.integers(0, size.window, size.batch)
            side.append(paper_tuples(rng, side.log.spec.id, number * size.batch, ids))
        for way, joined in joins.items():
            joined.step(2 * size.batch)
            if number + 1 in (size.batches, size.batches * AGE):
                kept[way]["young" if number + 1 == size.batches else "old"] = joined.kept()
        if number + 1 == size.batches:
            shutil.copytree(old, folder / "young")
    return kept


def _recovered(way: str, join: JoinDefinition, kept: Mapping[str, pa.Table], repeat: int, folder: Path) -> Figures:
    found: dict[str, list[_Recovered]] = {"young": [], "old": []}

    def once(name: str) -> float:
        found[name].append(_recover(folder / name, way, join))
        return found[name][-1].seconds

    for name in found:
        once(name)
    matches = all(found[name][0].kept.equals(kept[name]) for name in found)
    for recovered in found.values():
        recovered.clear()  # those have compiled
    seconds = rounds({name: partial(once, name) for name in found}, max(5, repeat))
    best = {name: min(f, key=lambda r: r.seconds).figures() for name, f in found.items()}
    age = round(min(seconds["old"]) / min(seconds["young"]), 3)
    mine = best["young"]
    say(
        f"join, recovery of {mine['live_tuples']:,} tuples, {way}: extent {mine['extent']:,} in "
        f"{mine['load_s']:.3f} s, {mine['replayed']:,} replayed in {mine['replay_s']:.3f} s; old: {age:.2f}"
    )
    return {
        **mine,
        "age": age,
        "old": best["old"],
        "spread": {name: spread(taken) for name, taken in seconds.items()},
        "results_match": matches,
    }


def _recover(folder: Path, way: str, join: JoinDefinition) -> _Recovered:
    began = time.perf_counter()
    output, left, right = (Log.open(LocalStorage(folder / name)) for name in (way, "left", "right"))
    open_s = time.perf_counter() - began
    intake = input_of(join, (left, right), output.state.standings)
    operator, done = recover(output, intake, join, Stand.of(output, 0))
    assert isinstance(operator, JoinOperator)
    return _Recovered(kept_by(operator), done, open_s)
