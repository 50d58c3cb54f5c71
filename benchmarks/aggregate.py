"""Averages over count windows, persisted and recoverable, beside what Spark itself has for keeping state.

strandline            `sl.source(df)`, count windows of 10, `sl.cec(extent="2x", replay=500_000)`: persists the input,
                      computes the windows, persists results and footprints, publishes both; checksums, fsync
strandline_none       the same with `sl.none()`: no footprints (large only)
spark_builtin         `groupBy("item_id").agg(avg("item_price"))`, RocksDB with changelog, to `noop`: a simpler job. No
                      windows, no order, one average a key for ever, partly added up before the shuffle, written nowhere
transform_with_state  `transformWithStateInPandas` doing the same windows, to `noop`, on a small input

All read the same files through the same source, and a contender's time is that of its median batch. What footprints add
to a step, and how many there are, is measured without Spark (`checkpoint_cost.py`) and given as a share of the batch.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash

import strandline as sl
from benchmarks.averages import Windows
from benchmarks.checkpoint_cost import POLICY, checkpoint_cost, records_per_touched_key
from benchmarks.harness import CORES, KEYS, Input, batch_seconds, generate, rounds, say, spread, workspace
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log
from strandline.running.state.state_folders import FOLDER_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOW = 10
WINDOWS = (1, 10, 100, 1000)
TUPLE_BYTES = 32
WARM_UP = (50_000, 8)
ROCKSDB = {
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Snapshots, which a thread in the background takes now and then, do not get into the figures.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1000",
}


@dataclass(frozen=True)
class _Size:
    batches: tuple[tuple[int, int], ...]
    """Tuples a batch, batches (the first of which is not measured); the first line is the headline."""
    transform: tuple[int, int, int]
    """The same, and keys, for `transformWithStateInPandas`."""
    cost: tuple[int, int, int]
    """Tuples a batch, batches, batches not measured, for the cost of checkpoints."""
    logged: int
    """Batches for counting footprints."""
    with_none: bool
    """Whether `sl.none()` runs with Spark, too: a small difference, which takes many batches to see."""


SIZES = {
    "small": _Size(((500_000, 5), (50_000, 8)), (5_000, 2, 1_000), (250_000, 10, 4), 80, with_none=False),
    "large": _Size(
        ((500_000, 9), (50_000, 21), (2_000_000, 6)), (10_000, 5, 2_000), (250_000, 40, 16), 200, with_none=True
    ),
}


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Measures without Spark, then with it, and returns the result."""
    sizes = SIZES[size]
    with workspace() as folder:
        costs = [checkpoint_cost(window, KEYS // CORES, *sizes.cost, repeat, folder) for window in WINDOWS]
        logged = {str(window): records_per_touched_key(window, KEYS // CORES, sizes.logged) for window in WINDOWS}
        say(f"aggregate: footprints for each touched key and batch, by window: {logged}")
        # Before Spark starts, because its Python workers inherit it.
        os.environ.setdefault(FOLDER_VARIABLE, str(folder / "state"))
        spark = sl.session(f"local[{CORES}]", **ROCKSDB)
        table = []
        for number, (rows, batches) in enumerate(sizes.batches):
            data = generate(folder / f"in-{number}", TUPLE_BYTES, rows, batches)
            if number == 0:
                _warm_up(spark, folder)
            table.append(_measure(spark, data, folder, repeat, with_none=sizes.with_none))
            shutil.rmtree(data.folder)
        transform = _transform(spark, folder, sizes.transform, repeat)
    best = table[0]
    per_tuple = transform and transform["tuples_per_s"]["transform_with_state"]
    return {
        "benchmark": "aggregate",
        "size": size,
        "cores": CORES,
        "repeat": repeat,
        "keys": KEYS,
        "window": WINDOW,
        "batch_tuples": best["batch_tuples"],
        "tuples_per_s": best["tuples_per_s"],
        "ratio_to_spark_builtin": best["ratio_to_spark_builtin"],
        "ratio_to_transform_with_state": per_tuple and round(best["tuples_per_s"] / per_tuple, 1),
        "ratio_to_transform_with_state_on_its_small_input": transform and transform["ratio"],
        "checkpoint_cost_pct": {str(row["window"]): _share(row["cost_s"], best) for row in costs},
        "checkpoint_cost_pct_of_step": {str(row["window"]): row["cost_pct_of_step"] for row in costs},
        "checkpoint_cost_pct_with_spark": best.get("checkpoint_cost_pct"),
        "state_records_per_touched_key": logged[str(WINDOW)],
        "state_records_per_touched_key_by_window": logged,
        "log_bytes_per_tuple": best["log_bytes_per_tuple"],
        "input_bytes_per_tuple": best["input_bytes_per_tuple"],
        "spark_changelog_bytes_per_tuple": best["spark_changelog_bytes_per_tuple"],
        "spread": best["spread"],
        "results_match": all(row["results_match"] for row in table),
        "result_hash": best["result_hash"],
        "transform_with_state": transform,
        "checkpoint_cost": {str(row["window"]): row for row in costs},
        "table": table,
    }


def _share(cost_s: float, best: dict[str, Any]) -> float:
    """What footprints add to a partition's step, in percent of the whole batch that the step is part of."""
    batch_ms: float = best["batch_ms"]["strandline"]
    return round(100 * cost_s * 1000 / batch_ms, 2)


def _warm_up(spark: SparkSession, folder: Path) -> None:
    """A JVM that has compiled its loops, Python workers that have loaded their kernels."""
    data = generate(folder / "in-warm", TUPLE_BYTES, *WARM_UP)
    for _ in range(2):
        _strandline(spark, data, folder, POLICY)
        _builtin(spark, data, folder)
    shutil.rmtree(data.folder)


def _measure(spark: SparkSession, data: Input, folder: Path, repeat: int, *, with_none: bool) -> dict[str, Any]:
    contenders: dict[str, Callable[[], float]] = {
        "strandline": lambda: _strandline(spark, data, folder, POLICY),
        "spark_builtin": lambda: _builtin(spark, data, folder),
    }
    if with_none:
        contenders["strandline_none"] = lambda: _strandline(spark, data, folder / "none", sl.none())
    seconds = rounds(contenders, repeat)
    best = {name: min(taken) for name, taken in seconds.items()}
    matches, content = _check(str(folder / "items"), str(folder / "averages"))
    row = {
        "batch_tuples": data.rows_per_batch,
        "batches": data.batches,
        "tuples_per_s": round(data.rows_per_batch / best["strandline"]),
        "tuples_per_s_spark_builtin": round(data.rows_per_batch / best["spark_builtin"]),
        "batch_ms": {name: round(s * 1000, 1) for name, s in best.items()},
        "spread": {name: spread(taken) for name, taken in seconds.items()},
        "ratio_to_spark_builtin": round(best["spark_builtin"] / best["strandline"], 3),
        "log_bytes_per_tuple": _log_bytes(folder / "averages", data),
        "input_bytes_per_tuple": _log_bytes(folder / "items", data),
        "spark_changelog_bytes_per_tuple": _changelog_bytes(folder / "builtin", data),
        "results_match": matches,
        "result_hash": content,
    }
    if "strandline_none" in best:
        row["checkpoint_cost_pct"] = round(100 * (1 - best["strandline_none"] / best["strandline"]), 1)
    for name in ("items", "averages", "builtin", "none"):
        shutil.rmtree(folder / name, ignore_errors=True)
    say(
        f"aggregate {data.rows_per_batch:>9,} a batch: {row['tuples_per_s']:>10,} tuples/s   "
        f"of Spark's groupBy {row['ratio_to_spark_builtin']:.2f}   bytes a tuple: log {row['log_bytes_per_tuple']}, "
        f"Spark's changelog {row['spark_changelog_bytes_per_tuple']}"
    )
    return row


def _log_bytes(path: Path, data: Input) -> float:
    """Bytes of blocks for each input tuple, in the second half of the batches: at first every key opens a window."""
    commits = [m for m in Log.open(LocalStorage(path)).after(-1) if isinstance(m, AppendCommit)]
    size = sum(block.size_bytes for m in commits[data.batches // 2 :] for block in m.blocks)
    return round(size / (data.rows_per_batch * (len(commits) - data.batches // 2)), 2)


def _changelog_bytes(checkpoint: Path, data: Input) -> float:
    """The same of what Spark's state store left: version n is that of the n-th batch."""
    half = data.batches // 2
    files = [path for path in (checkpoint / "state").rglob("*") if path.suffix in (".changelog", ".zip", ".sst")]
    size = sum(path.stat().st_size for path in files if path.suffix == ".sst" or int(path.stem) > half)
    return round(size / (data.rows_per_batch * (data.batches - half)), 2)


def _check(items: str, averages: str) -> tuple[bool, str]:
    """Whether the averages are those of the persisted items, computed another way; and a hash of them."""
    matches, h = True, xxhash.xxh3_64()
    for partition in range(CORES):
        read = pa.concat_tables(
            [t.select(["item_id", "item_price", "_offset"]) for t in sl.stream(items).tables(partition, control=True)]
        )
        ids, prices, offsets = (read.column(name).to_numpy() for name in ("item_id", "item_price", "_offset"))
        found = Windows.found(list(sl.stream(averages).tables(partition, control=True)))
        matches = matches and len(found) > 0 and found.same_as(Windows.expected(ids, prices, offsets, WINDOW))
        h.update(found.hash().encode())
    return matches, str(h.hexdigest())


# ---------------------------------------------------------------------- contenders


def _strandline(spark: SparkSession, data: Input, folder: Path, policy: sl.Policy) -> float:
    for name in ("items", "averages"):
        shutil.rmtree(folder / name, ignore_errors=True)
    items = sl.source(
        data.stream(spark), str(folder / "items"), key="item_id", time="item_time", partitions=CORES, lateness="1 s"
    )
    averages = items.window(sl.count_window(WINDOW)).aggregate(average=sl.avg("item_price")).checkpoint(policy)
    query = averages.start(spark, str(folder / "averages"), trigger="available-now")
    query.await_termination()
    return batch_seconds(query.spark_query)


def _builtin(spark: SparkSession, data: Input, folder: Path) -> float:
    from pyspark.sql import functions as F

    checkpoint = folder / "builtin"
    shutil.rmtree(checkpoint, ignore_errors=True)
    averages = data.stream(spark).groupBy("item_id").agg(F.avg("item_price").alias("average"))
    writer = averages.writeStream.outputMode("update").format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination()
    return batch_seconds(query)


def _transform(spark: SparkSession, folder: Path, size: tuple[int, int, int], repeat: int) -> dict[str, Any] | None:
    """`transformWithStateInPandas` and Strandline on the same small input; None if the first cannot run here."""
    from benchmarks import transform_with_state

    if (reason := transform_with_state.missing()) is not None:
        say(f"aggregate: no figure for transformWithStateInPandas. {reason}")
        return None
    rows, batches, keys = size
    data = generate(folder / "in-transform", TUPLE_BYTES, rows, batches, keys=keys)
    own = transform_with_state.session(spark, ROCKSDB)
    contenders: dict[str, Callable[[], float]] = {
        "transform_with_state": lambda: transform_with_state.run(own, data, folder),
        "strandline": lambda: _strandline(spark, data, folder, POLICY),
    }
    try:
        seconds = rounds(contenders, repeat)
    except Exception as problem:  # a peer that does not run is no reason to have no figures at all
        say(f"aggregate: transformWithStateInPandas failed: {str(problem).splitlines()[0]}")
        return None
    best = {name: min(taken) for name, taken in seconds.items()}
    ratio = round(best["transform_with_state"] / best["strandline"], 2)
    say(f"aggregate {rows:>9,} a batch, {keys:,} keys: {ratio:.1f} times as fast as transformWithStateInPandas")
    return {
        "batch_tuples": rows,
        "keys": keys,
        "tuples_per_s": {name: round(rows / s) for name, s in best.items()},
        "batch_ms": {name: round(s * 1000, 1) for name, s in best.items()},
        "spread": {name: spread(taken) for name, taken in seconds.items()},
        "ratio": ratio,
    }
