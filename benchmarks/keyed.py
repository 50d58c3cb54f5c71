"""A user's function over every key, compiled, beside the average that is built in and beside Spark's way for Python.

All three compute the average of every ten prices of an item; the function keeps a count and a sum.

kernel          what a `KeyedOperator` does in a step (begin, the loop over tuples, footprints), results as Arrow, input
                as the loop takes it; no log, no Spark, one core
keyed           `sl.source(df).apply(f)`, `sl.cec(extent="2x", replay=500_000)`: persists the input, calls the function,
                persists results and footprints, publishes both; checksums, fsync
average         the same with `window(sl.count_window(10)).aggregate(sl.avg(…))`
transform       `transformWithStateInPandas` doing the same, to `noop`, on a small input: per tuple

What footprints cost is measured without Spark, as a share of a step (`checkpoint_cost_pct`). `results_match`: the
function's averages are, to the bit and in their order, those of plain Python over the persisted items.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

import strandline as sl
from benchmarks import aggregate, transform_with_state
from benchmarks.averages import COLUMNS, Averages, Items
from benchmarks.checkpoint_cost import POLICY
from benchmarks.harness import CORES, KEYS, Input, batch_seconds, generate, rounds, say, spread, workspace
from strandline.operators.keyed.definition import KeyedDefinition
from strandline.operators.keyed.keyed_operator import TuplePass
from strandline.operators.one_table import GivenInput
from strandline.running.state.state_folders import FOLDER_VARIABLE
from strandline.testing import MemoryStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW = aggregate.WINDOW


@dataclass(frozen=True)
class _Size:
    keys: int
    kernel: tuple[int, int]
    """Tuples, and tuples a batch."""
    batches: tuple[int, int]
    """Tuples a batch with Spark, batches."""
    transform: tuple[int, int, int]
    """The same, and keys, for `transformWithStateInPandas`."""
    cost: tuple[int, int, int]
    """Tuples a batch, batches, batches not measured, for the cost of checkpoints."""


SIZES = {
    "tiny": _Size(200, (40_000, 10_000), (2_000, 3), (500, 2, 50), (5_000, 4, 2)),
    "small": _Size(KEYS, (4_000_000, 250_000), (500_000, 5), (5_000, 2, 1_000), (250_000, 10, 4)),
    "large": _Size(KEYS, (16_000_000, 250_000), (500_000, 9), (10_000, 5, 2_000), (250_000, 40, 16)),
}


@sl.keyed(state="n long, total double", output="average double")
def averages(state: Any, row: Any, out: Any) -> int:
    """The average of every ten prices."""
    state.n += 1
    state.total += row.item_price
    if state.n < WINDOW:
        return 0
    out.average = state.total / state.n
    state.n, state.total = 0, 0.0
    return sl.EMIT


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Measures without Spark, then with it, and returns the result."""
    sizes = SIZES[size]
    kernel_s = [_kernel(sizes.keys, *sizes.kernel) for _ in range(repeat)]
    kernel = round(sizes.kernel[0] / 2 / min(kernel_s))
    say(f"keyed: the loop takes in {kernel:,} tuples/s a core")
    with workspace() as folder:
        cost = _checkpoint_cost(sizes.keys // CORES, sizes.cost, repeat, folder)
        os.environ.setdefault(FOLDER_VARIABLE, str(folder / "state"))  # Spark's Python workers inherit it
        spark = sl.session(f"local[{CORES}]", **aggregate.ROCKSDB)
        data = generate(folder / "in", aggregate.TUPLE_BYTES, *sizes.batches, keys=sizes.keys)
        contenders = _contenders(spark, data, folder)
        for contender in contenders.values():
            contender()  # a JVM that has compiled its loops, workers that have compiled the function
        seconds = rounds(contenders, repeat)
        matches, content = _check(folder / "keyed-items", folder / "keyed")
        transform = _transform(spark, folder, sizes.transform, repeat)
    best = {name: min(taken) for name, taken in seconds.items()}
    rate = data.rows_per_batch / best["keyed"]
    ratio = round(best["average"] / best["keyed"], 3)
    say(f"keyed {data.rows_per_batch:,} a batch: {rate:,.0f} tuples/s, {ratio:.2f} of the average")
    return {
        "benchmark": "keyed",
        "size": size,
        "cores": CORES,
        "repeat": repeat,
        "keys": sizes.keys,
        "batch_tuples": data.rows_per_batch,
        "tuples_per_s": round(rate),
        "kernel_tuples_per_s": kernel,
        "ratio_to_average": ratio,
        "ratio_to_transform_with_state": transform and round(rate / transform["tuples_per_s"], 1),
        "checkpoint_cost_pct": cost,
        "results_match": matches,
        "result_hash": content,
        "spread": {"kernel": spread(kernel_s), **{name: spread(taken) for name, taken in seconds.items()}},
        "transform_with_state": transform,
    }


def definition() -> KeyedDefinition:
    """The function over items without Spark."""
    return KeyedDefinition.of(averages, GivenInput(COLUMNS, ("item_id",), "item_time", 0))


def _kernel(keys: int, tuples: int, batch: int) -> float:
    """Seconds for the second half of the tuples; the first one warms up."""
    rng = np.random.default_rng(1)
    operator, position, taken = definition().fresh(), 0, 0.0
    for first in range(0, tuples, batch):
        columns = {"item_id": rng.integers(0, keys, batch), "item_price": rng.random(batch)}
        offsets = np.arange(first, first + batch)
        table = pa.table({**columns, "item_time": offsets, "_offset": offsets})
        ready = [
            TuplePass(operator, table.slice(at, operator.rows_at_once)) for at in range(0, batch, operator.rows_at_once)
        ]
        began = time.perf_counter()
        operator.begin()
        for one in ready:
            position += sum(len(found[0]) for found in one.taken_in())
        operator.input_end = first + batch
        saved = operator.save(position, POLICY.limits(operator.open_windows, 0, None))
        if first >= tuples // 2:
            taken += time.perf_counter() - began
        position += len(saved.opened[0]) + len(saved.checked[0])
    return taken


def _checkpoint_cost(keys: int, size: tuple[int, int, int], repeat: int, folder: Path) -> float:
    """What footprints add to a step, in percent of it, after the first batches."""
    batch, batches, settle = size
    items, rng = Items(MemoryStorage()), np.random.default_rng(5)
    for _ in range(batches):
        items.append(rng.integers(0, keys, batch), rng.random(batch))
    taken: dict[str, list[list[float]]] = {"cec": [], "none": []}
    for turn in range(repeat):
        steps = {
            name: Averages(items, MemoryStorage(), folder / f"cost-{turn}-{name}", definition(), policy)
            for name, policy in (("cec", POLICY), ("none", sl.none()))
        }
        for name, seconds in taken.items():
            seconds.append([steps[name].step(batch).seconds for _ in range(batches)])
    best = {name: sum(min(column) for column in list(zip(*s, strict=True))[settle:]) for name, s in taken.items()}
    cost: float = round(100 * (1 - best["none"] / best["cec"]), 1)
    say(f"keyed, footprints: {cost:.1f} % of a step")
    return cost


# ---------------------------------------------------------------------- with Spark


def _contenders(spark: SparkSession, data: Input, folder: Path) -> dict[str, Callable[[], float]]:
    def started(name: str, build: Callable[[sl.Entry], Any]) -> float:
        for part in (f"{name}-items", name):
            shutil.rmtree(folder / part, ignore_errors=True)
        place = str(folder / f"{name}-items")
        items = sl.source(data.stream(spark), place, key="item_id", time="item_time", partitions=CORES, lateness="1 s")
        query = build(items).checkpoint(POLICY).start(spark, str(folder / name), trigger="available-now")
        query.await_termination()
        return batch_seconds(query.spark_query)

    def average(items: sl.Entry) -> sl.Aggregation:
        return items.window(sl.count_window(WINDOW)).aggregate(average=sl.avg("item_price"))

    return {
        "keyed": lambda: started("keyed", lambda items: items.apply(averages)),
        "average": lambda: started("average", average),
    }


def _check(items: Path, results: Path) -> tuple[bool, str]:
    """Whether the averages are those of plain Python over the persisted items; and a hash of them."""
    matches, h = True, xxhash.xxh3_64()
    for partition in range(CORES):
        read = pa.concat_tables(list(sl.stream(str(items)).tables(partition, control=True)))
        states: dict[int, tuple[int, float]] = {}
        expected = []
        for key, price in zip(read.column("item_id").to_pylist(), read.column("item_price").to_pylist(), strict=True):
            n, total = states.get(key, (0, 0.0))
            n, total = n + 1, total + price
            if n == WINDOW:
                expected.append((key, total / n))
                n, total = 0, 0.0
            states[key] = n, total
        tables = list(sl.stream(str(results)).tables(partition, control=True))
        found = pa.concat_tables([t.filter(pc.equal(t.column("_kind"), 0)) for t in tables])
        rows = list(zip(found.column("item_id").to_pylist(), found.column("average").to_pylist(), strict=True))
        matches = matches and len(rows) > 0 and rows == expected
        h.update(repr(rows).encode())
    return matches, str(h.hexdigest())


def _transform(spark: SparkSession, folder: Path, size: tuple[int, int, int], repeat: int) -> dict[str, Any] | None:
    """`transformWithStateInPandas` on a small input of its own; None if it cannot run here."""
    if (reason := transform_with_state.missing()) is not None:
        say(f"keyed: no figure for transformWithStateInPandas. {reason}")
        return None
    rows, batches, keys = size
    data = generate(folder / "in-transform", aggregate.TUPLE_BYTES, rows, batches, keys=keys)
    own = transform_with_state.session(spark, aggregate.ROCKSDB)
    taken = [transform_with_state.run(own, data, folder) for _ in range(repeat)]
    rate = round(rows / min(taken))
    say(f"keyed: transformWithStateInPandas takes in {rate:,} tuples/s")
    return {"batch_tuples": rows, "keys": keys, "tuples_per_s": rate, "spread": spread(taken)}
