"""Recovery of a partition from its two logs, as a task does it that finds no state on its machine.

What is in: `Log.open` of both logs on disk (`open_s`), reading the extent backwards and loading the newest footprints
(`load_s`), reading the input from the oldest of them and replaying it (`replay_s`), checksums included. What is out:
Spark, which would start the task, and the imports of a new process. The files were just written, so the operating
system has them in memory. Kernels are compiled before; `cold_recovery.py` measures recoveries in new processes, and
`driver_recovery.py` that of a whole program, Spark included.

The state that was recovered is compared, window by window, with the one that the operator had when it stopped. What the
number of open windows adds to a batch is in `batch_cost.py`.
"""

from __future__ import annotations

import shutil
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

import strandline as sl
from benchmarks.averages import Averages, Items, plan_of
from benchmarks.batch_cost import batch_cost, step_cost
from benchmarks.cold_recovery import in_new_processes
from benchmarks.driver_recovery import driver_recovery
from benchmarks.harness import KEYS, rounds, say, spread, workspace
from strandline.inputs.one_stream import OneStream
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.operators.aggregate.aggregate_operator import AggregateOperator
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.open_windows.record import INPUT, KEY, OPENED, ROWS, START, STATE, USED
from strandline.recovery.recover import Recovery, Stand, recover

WINDOW = 10
TIMES = 10
"""Random moments at which a recovery is measured against its target."""
AGE = 10
WITHIN = "1 s"


@dataclass(frozen=True)
class _Size:
    keys: int
    batch: int
    """Tuples a batch."""
    batches: int
    """Of the young stream; the old one has ten times as many."""
    replay: int
    target_batch: int
    target_batches: int
    few: int
    """Open windows."""
    many: int
    step: int
    """Tuples a batch over few and many open windows."""
    steps: int
    spark_batches: int
    """0: without Spark."""


SIZES = {
    "tiny": _Size(1_000, 2_000, 6, 6_000, 2_000, 18, 500, 2_000, 200, 5, 0),
    "small": _Size(KEYS, 100_000, 30, 600_000, 100_000, 60, 10_000, 1_000_000, 10_000, 30, 12),
    "large": _Size(KEYS, 100_000, 100, 600_000, 100_000, 200, 10_000, 4_000_000, 10_000, 100, 40),
}


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Builds the streams, then measures recoveries of them."""
    sizes = SIZES[size]
    with workspace() as folder:
        core = _core(sizes, folder, max(5, repeat))
        target = _within_target(sizes, folder)
        costs = step_cost(sizes.few, sizes.many, sizes.step, sizes.steps, folder)
        if sizes.spark_batches:
            costs |= batch_cost(sizes.few, sizes.many, sizes.step, sizes.spark_batches, repeat, folder)
            costs |= driver_recovery(folder / "driver", repeat)
    return {
        "benchmark": "recovery",
        "size": size,
        "repeat": max(5, repeat),
        **{k: v for k, v in core.items() if k not in ("results_match", "result_hash")},
        **target,
        **costs,
        "results_match": core["results_match"],
        "result_hash": core["result_hash"],
    }


class _Stream:
    """Items and their averages, on disk."""

    def __init__(self, folder: Path, window: int, policy: sl.Policy, seed: int = 1) -> None:
        self.folder = folder
        self._items = Items(LocalStorage(folder / "items", durability="os"))
        storage = LocalStorage(folder / "averages", durability="os")
        self.operator = Averages(self._items, storage, folder / "cache", window, policy)
        self.rng = np.random.default_rng(seed)

    def feed(self, ids: Int64s) -> float:
        """One batch; seconds that the operator's step took, the hand-over of the state included."""
        self._items.append(ids, self.rng.random(len(ids)))
        return self.operator.step(len(ids)).seconds

    def feed_uniform(self, keys: int, batch: int, batches: int) -> None:
        for _ in range(batches):
            self.feed(self.rng.integers(0, keys, batch))

    def windows(self) -> Int64s:
        """What the operator has in its state."""
        return windows_left_by(self.operator)


def windows_left_by(averages: Averages) -> Int64s:
    """Returns the open windows that the last step has left on this machine, as `_windows` does."""
    arrays = averages.cache.open(averages.log.state.standings[0].attempt)
    assert arrays is not None, "the operator has left no state"
    operator = averages.plan.revived(arrays)
    assert isinstance(operator, AggregateOperator)
    found = _windows(operator)
    averages.cache.close()
    return found


@dataclass(frozen=True)
class _Recovered:
    operator: AggregateOperator
    recovery: Recovery
    open_s: float
    predicted_s: float

    @property
    def seconds(self) -> float:
        return self.open_s + self.recovery.load_s + self.recovery.replay_s

    def figures(self) -> dict[str, Any]:
        found = {**asdict(self.recovery), "open_s": self.open_s}
        return {name: round(value, 4) if isinstance(value, float) else value for name, value in found.items()}


def _recover(folder: Path, window: int = WINDOW) -> _Recovered:
    began = time.perf_counter()
    output = Log.open(LocalStorage(folder / "averages"))
    items = Log.open(LocalStorage(folder / "items"))
    open_s = time.perf_counter() - began
    standing = output.state.standings[0]
    operator, done = recover(output, OneStream(plan_of(window), items), plan_of(window), Stand.of(output, 0))
    assert isinstance(operator, AggregateOperator)
    return _Recovered(operator, done, open_s, standing.predicted_s)


def _windows(operator: AggregateOperator) -> Int64s:
    """The open windows, a row each: key, opening, start, tuples, state; in order of key."""
    records = operator.state.arrays.records[: operator.state.arrays.header[USED]]
    records = records[records[:, OPENED] >= 0]
    records = records[np.argsort(records[:, KEY], kind="stable")]
    words = [KEY, OPENED, START, ROWS, *range(STATE, operator.definition.width)]
    return np.ascontiguousarray(records[:, words])


# ---------------------------------------------------------------------- one recovery, and age


def _core(sizes: _Size, folder: Path, repeat: int) -> dict[str, Any]:
    """Recovery of a stream, and of the same stream when it is ten times as long."""
    say(f"recovery: writing {sizes.batch * sizes.batches * AGE:,} tuples")
    stream = _Stream(folder / "old", WINDOW, sl.cec(extent="2x", replay=sizes.replay))
    stream.feed_uniform(sizes.keys, sizes.batch, sizes.batches)
    shutil.copytree(folder / "old", folder / "young")
    before = stream.windows()
    stream.feed_uniform(sizes.keys, sizes.batch, sizes.batches * (AGE - 1))
    found: dict[str, list[_Recovered]] = {"young": [_recover(folder / "young")], "old": [_recover(folder / "old")]}
    matches = np.array_equal(_windows(found["young"][0].operator), before)
    matches = matches and np.array_equal(_windows(found["old"][0].operator), stream.windows())
    matches = matches and found["old"][0].operator.state.arrays.header[INPUT] == sizes.batch * sizes.batches * AGE
    for recovered in found.values():
        recovered.clear()  # those have compiled

    def once(name: str) -> float:
        found[name].append(_recover(folder / name))
        return found[name][-1].recovery.load_s + found[name][-1].recovery.replay_s

    seconds = rounds({name: lambda name=name: once(name) for name in found}, repeat)  # type: ignore[misc]
    best = {name: min(f, key=lambda r: r.recovery.load_s + r.recovery.replay_s) for name, f in found.items()}
    warm_s = min(r.seconds for r in found["young"])
    cold = in_new_processes(
        folder / "young", warm_s, repeat if sizes.spark_batches else 1, compiling=bool(sizes.spark_batches)
    )
    shutil.rmtree(folder / "old")
    shutil.rmtree(folder / "young")
    young, old = best["young"], best["old"]
    say(
        f"recovery of {young.recovery.open_windows:,} windows: extent {young.recovery.extent:,} loaded in "
        f"{young.recovery.load_s:.3f} s, {young.recovery.replayed:,} tuples replayed in "
        f"{young.recovery.replay_s:.3f} s; predicted {young.predicted_s:.3f} s; "
        f"ten times as old: {min(seconds['old']) / min(seconds['young']):.2f}"
    )
    return {
        "keys": sizes.keys,
        "window": WINDOW,
        "tuples": sizes.batch * sizes.batches,
        **young.figures(),
        **cold,
        "predicted_s": round(young.predicted_s, 4),
        "age": round(min(seconds["old"]) / min(seconds["young"]), 3),
        "age_detail": {"young": young.figures(), "old": old.figures()},
        "spread": {name: spread(taken) for name, taken in seconds.items()},
        "results_match": bool(matches),
        "result_hash": xxhash.xxh3_64_hexdigest(_windows(young.operator).tobytes()),
    }


# ---------------------------------------------------------------------- the target


def _within_target(sizes: _Size, folder: Path) -> dict[str, Any]:
    """Recoveries at random moments of a stream whose policy knows only how long they may take."""
    stream = _Stream(folder / "target", WINDOW, sl.cec(recover_within=WITHIN), seed=2)
    rng = np.random.default_rng(3)
    settled = sizes.target_batches // 3
    moments = set(rng.choice(np.arange(settled, sizes.target_batches), TIMES, replace=False).tolist())
    found, matches = [], True
    for batch in range(sizes.target_batches):
        stream.feed_uniform(sizes.keys, sizes.target_batch, 1)
        if batch in moments:
            got = _recover(stream.folder)
            matches = matches and np.array_equal(_windows(got.operator), stream.windows())
            found.append(
                {
                    "batch": batch,
                    "extent": got.recovery.extent,
                    "replayed": got.recovery.replayed,
                    "predicted_s": round(got.predicted_s, 4),
                    "measured_s": round(got.seconds, 4),
                }
            )
            say(f"recovery at batch {batch}: predicted {got.predicted_s:.3f} s, measured {got.seconds:.3f} s")
    shutil.rmtree(stream.folder)
    measured = [f["measured_s"] for f in found]
    return {
        "recover_within": WITHIN,
        "within_target": sum(s <= 1 for s in measured) / len(measured),
        "measured_s_max": max(measured),
        "measured_to_predicted": round(statistics.median(f["measured_s"] / f["predicted_s"] for f in found), 3),
        "target_results_match": bool(matches),
        "table": found,
    }
