"""What a small batch costs when few windows are open, and when many are: the step alone, and the batch with Spark.

Nothing closes and no footprint is due, so a batch has its tuples to pay for, the state that it takes over from the
batch before, and what it leaves for the next. Keys are chosen uniformly: with many open windows almost every tuple
touches a window of its own, in a page of its own.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl
from benchmarks.averages import Averages, Items
from benchmarks.harness import CORES, Input, batch_seconds, rounds, say, spread
from strandline.log.storage.local_storage import LocalStorage
from strandline.running.state.state_folders import FOLDER_VARIABLE

NEVER = sl.cec(extent=1 << 40, replay=1 << 40)
_WINDOW = 1_000_000
_SETTLE = 3  # the first steps put the whole state in place


def step_cost(few: int, many: int, tuples: int, steps: int, folder: Path) -> dict[str, Any]:
    """The step of one partition without Spark, over few and over many open windows, in turns."""
    operators = {}
    rng = np.random.default_rng(4)
    for name, keys in (("few", few), ("many", many)):
        items = Items(LocalStorage(folder / name / "items", durability="os"))
        averages = LocalStorage(folder / name / "averages", durability="os")
        operator = Averages(items, averages, folder / name / "cache", _WINDOW, NEVER)
        order = rng.permutation(keys)
        for first in range(0, keys, 500_000):
            ids = order[first : first + 500_000]
            items.append(ids, rng.random(len(ids)))
            operator.step(len(ids))
        operators[name] = (items, operator, keys)
    seconds: dict[str, list[float]] = {name: [] for name in operators}
    touched: dict[str, int] = {}
    for turn in range(steps + _SETTLE):
        for name, (items, operator, keys) in operators.items():
            ids = rng.integers(0, keys, tuples)
            touched[name] = len(np.unique(ids))
            items.append(ids, rng.random(tuples))
            taken = operator.step(tuples).seconds
            if turn >= _SETTLE:
                seconds[name].append(taken)
    assert all(operator.log.state.standings[0].open == keys for _, operator, keys in operators.values())
    for name in operators:
        shutil.rmtree(folder / name)
    middle = {name: statistics.median(taken) for name, taken in seconds.items()}
    _say("a step", tuples, few, many, middle)
    return {
        "step_cost_ratio": round(middle["many"] / middle["few"], 3),
        "step_cost": {
            "tuples": tuples,
            "open_windows": {"few": few, "many": many},
            "touched_windows": touched,
            "step_ms": _ms(middle),
            "step_ms_best": _ms({name: min(taken) for name, taken in seconds.items()}),
        },
    }


def batch_cost(few: int, many: int, tuples: int, batches: int, repeat: int, folder: Path) -> dict[str, Any]:
    """A batch of a fused query, from Spark's trigger to its commit."""
    # Before Spark starts, because its Python workers inherit it.
    os.environ.setdefault(FOLDER_VARIABLE, str(folder / "state"))
    spark = sl.session(f"local[{CORES}]")

    def run(data: Input, keys: int) -> float:
        streams = folder / "streams"
        shutil.rmtree(streams, ignore_errors=True)
        items = sl.source(data.stream(spark), str(streams / "items"), key="item_id", time="item_time", lateness="1 s")
        averages = items.window(sl.count_window(_WINDOW)).aggregate(average=sl.avg("item_price")).checkpoint(NEVER)
        query = averages.start(spark, str(streams / "averages"), trigger="available-now")
        query.await_termination()
        assert query.progress["open_windows"] == keys
        return batch_seconds(query.spark_query)

    inputs = {"few": (_input(folder / "in-few", few, tuples, batches), few)}
    inputs["many"] = (_input(folder / "in-many", many, tuples, batches), many)
    run(*inputs["few"])  # a JVM that has compiled its loops, workers that have loaded their kernels
    contenders: dict[str, Callable[[], float]] = {name: partial(run, *what) for name, what in inputs.items()}
    seconds = rounds(contenders, repeat)
    best = {name: min(taken) for name, taken in seconds.items()}
    _say("a whole batch with Spark", tuples, few, many, best)
    return {
        "batch_cost_ratio": round(best["many"] / best["few"], 3),
        "batch_cost": {
            "tuples": tuples,
            "open_windows": {"few": few, "many": many},
            "batch_ms": _ms(best),
            "spread": {name: spread(taken) for name, taken in seconds.items()},
        },
    }


def _input(folder: Path, keys: int, tuples: int, batches: int) -> Input:
    """Files, two a batch: the first batch opens all windows, those after it have the same size whatever the keys."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    time = 0
    for part in range(2 * (batches + 1)):
        ids = np.arange(part, keys, 2) if part < 2 else rng.integers(0, keys, tuples // 2)
        times = pa.array(np.arange(time, time + len(ids)), pa.timestamp("us", tz="UTC"))
        time += len(ids)
        file = folder / f"{part:05d}.parquet"
        pq.write_table(pa.table({"item_id": ids, "item_price": rng.random(len(ids)), "item_time": times}), file)
        os.utime(file, (1_000_000 + part, 1_000_000 + part))  # Spark's file source orders by modification time
    return Input(folder, 24, tuples, batches + 1)


def _ms(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(s * 1000, 2) for name, s in seconds.items()}


def _say(what: str, tuples: int, few: int, many: int, seconds: dict[str, float]) -> None:
    ms = _ms(seconds)
    say(
        f"recovery: {what} of {tuples:,} tuples takes {ms['few']:.1f} ms with {few:,} open windows, "
        f"{ms['many']:.1f} ms with {many:,}"
    )
