"""Operators in a row, in one program: what each adds to the time until a result is readable, and to the work.

Each operator is a user's function with a state a key: it adds 1 to the price, and counts the tuples of the item. So a
chain has as many results as tuples, and numpy can say what they are.

small batches   Spark's `rate-micro-batch` source makes a batch at each trigger, and a batch has gone through the whole
                chain before the next one begins. From the beginning of the batch, as Spark reports it, to the moment in
                which the commit with the last of its results got its name (the manifest's change time): from then on
                readers find them. Waiting for the trigger is not in it
large batches   files that are all there; from the beginning of the first batch to the last result
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import strandline as sl
from benchmarks.harness import CORES, Input, generate, say, workspace
from strandline.clock import SYSTEM_CLOCK
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import commit_key
from strandline.running.state.state_folders import FOLDER_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEYS = 100
_SETTLE = 5
"""The first batches of each pipeline are not measured: they load kernels, and the JVM compiles its loops."""
_LOOK_S = 0.05


@dataclass(frozen=True)
class _Size:
    lengths: tuple[int, ...]
    batch: int
    """Tuples of a small batch."""
    batches: int
    """Small batches that are measured."""
    trigger: str
    large: tuple[int, int]
    """Tuples of a large batch, and how many of them."""
    tuple_bytes: int = 256


SIZES = {
    "tiny": _Size((1, 2), 100, 3, "1 s", (2_000, 2)),
    "small": _Size((1, 2, 4, 8), 1_000, 25, "600 ms", (100_000, 5)),
    "large": _Size((1, 2, 3, 4, 5, 6, 7, 8), 1_000, 200, "600 ms", (100_000, 20)),
}


@sl.keyed(state="n long", output="item_price double, seen long")
def passed_on(state: Any, row: Any, out: Any) -> int:
    """Passes each tuple on: the price and 1, and how many tuples of its item there were."""
    state.n += 1
    out.item_price = row.item_price + 1.0
    out.seen = state.n
    return sl.EMIT


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Measures chains of each length with small batches, then with large ones, of which the best of `repeat` counts."""
    sizes = SIZES[size]
    with workspace() as folder:
        # Before Spark starts, because its Python workers inherit it.
        os.environ.setdefault(FOLDER_VARIABLE, str(folder / "state"))
        spark = sl.session(f"local[{CORES}]")
        data = generate(folder / "in", sizes.tuple_bytes, *sizes.large, keys=_KEYS)
        _large(spark, data, max(sizes.lengths), folder)  # compiles the function, and the loops of the JVM
        small = {length: _small(spark, sizes, length, folder) for length in sizes.lengths}
        large = {length: [_large(spark, data, length, folder) for _ in range(repeat)] for length in sizes.lengths}
    longest = max(sizes.lengths)
    rates = {length: round(max(one["tuples_per_s"] for one in found)) for length, found in large.items()}
    parts = [*small.values(), *(one for found in large.values() for one in found)]
    first, last = rates[min(rates)], rates[longest]
    say(f"chain: {first:,} tuples/s through {min(rates)} operator, {last:,} through {longest}")
    return {
        "benchmark": "chain",
        "size": size,
        "cores": CORES,
        "repeat": repeat,
        "batch_tuples": sizes.batch,
        "batches": sizes.batches,
        "trigger": sizes.trigger,
        "added_ms_per_operator": small[longest]["added_ms"],
        "added_ms_by_operator": small[longest]["added_ms_by_operator"],
        "p50_ms": {"0": small[longest]["entry_p50_ms"], **{str(k): one["p50_ms"] for k, one in small.items()}},
        "p99_ms": {"0": small[longest]["entry_p99_ms"], **{str(k): one["p99_ms"] for k, one in small.items()}},
        "large_batch_tuples": data.rows_per_batch,
        "tuples_per_s": {str(k): rate for k, rate in rates.items()},
        "mb_per_s": {str(k): round(rate * data.tuple_bytes / 1e6, 1) for k, rate in rates.items()},
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "results_match": all(one["results_match"] for one in parts),
    }


# ---------------------------------------------------------------------- small batches


def _small(spark: SparkSession, sizes: _Size, length: int, folder: Path) -> dict[str, Any]:
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", sizes.batch).load()
    items = rate.selectExpr(
        f"value % {_KEYS} AS item_id", "CAST(value AS double) AS item_price", "timestamp AS item_time"
    )
    paths, flow = _chain(items, length, folder / "streams")
    with flow.start(spark, trigger=sizes.trigger) as going:
        source = going[paths[0]]
        while source.progress.get("batch", -1) < _SETTLE + sizes.batches:
            SYSTEM_CLOCK.sleep(_LOOK_S)
            going.await_termination(0)  # raises what has failed
        source.stop()
        for path in paths[1:]:
            going[path].process_all_available()
        begun = {p["batchId"]: _us(p["timestamp"]) for p in source.recentProgress}
    batches = slice(_SETTLE, _SETTLE + sizes.batches)
    readable_us = np.array([_readable_us(path, sizes.batch)[batches] for path in paths])
    taken_ms = (readable_us - [begun[batch] for batch in range(batches.start, batches.stop)]) / 1e3
    added_ms = np.diff(taken_ms, axis=0)
    matches = _matches(spark, paths)
    shutil.rmtree(folder / "streams")
    found = {
        "p50_ms": _percentile(taken_ms[-1], 50),
        "p99_ms": _percentile(taken_ms[-1], 99),
        "entry_p50_ms": _percentile(taken_ms[0], 50),
        "entry_p99_ms": _percentile(taken_ms[0], 99),
        "added_ms_by_operator": [_percentile(one, 50) for one in added_ms],
        "added_ms": _percentile(added_ms[1:].mean(axis=0), 50) if length > 1 else None,
        "results_match": matches,
    }
    say(f"chain of {length}: a batch of {sizes.batch:,} is readable after {found['p50_ms']} ms, p99 {found['p99_ms']}")
    return found


def _readable_us(path: str, batch: int) -> list[int]:
    """Returns when each batch of a stream was readable to its last tuple, by the number of the batch."""
    log = Log.open(LocalStorage(path))
    found: list[int] = []
    results = 0
    for seq in range(log.state.seq + 1):
        if isinstance(commit := log.commit(seq), AppendCommit):
            results += sum(block.results for block in commit.blocks)
            changed_us = Path(path, commit_key(seq)).stat().st_ctime_ns // 1_000
            found += [changed_us] * (results // batch - len(found))
    return found


def _us(timestamp: str) -> int:
    return round(datetime.fromisoformat(timestamp).timestamp() * 1e6)


def _percentile(values: Any, percent: int) -> float:
    return round(float(np.percentile(values, percent)), 1)


# ---------------------------------------------------------------------- large batches


def _large(spark: SparkSession, data: Input, length: int, folder: Path) -> dict[str, Any]:
    paths, flow = _chain(data.stream(spark), length, folder / "streams")
    tuples = data.rows_per_batch * data.batches
    with flow.start(spark) as going:
        going.process_all_available()
        begun_us = _us(going[paths[0]].recentProgress[0]["timestamp"])
    ended_us = _readable_us(paths[-1], tuples)[0]
    found = {"tuples_per_s": tuples / (ended_us - begun_us) * 1e6, "results_match": _matches(spark, paths)}
    shutil.rmtree(folder / "streams")
    return found


# ---------------------------------------------------------------------- both


def _chain(items: DataFrame, length: int, folder: Path) -> tuple[list[str], sl.Pipeline]:
    """Returns the streams of a chain, the source's first, and the pipeline that writes them."""
    paths = [str(folder / name) for name in ("items", *(f"operator-{k}" for k in range(1, length + 1)))]
    last: Any = sl.source(items, paths[0], key="item_id", time="item_time", partitions=CORES, lateness="1 s")
    for path in paths[1:]:
        last = last.apply(passed_on).into(path)
    return paths, sl.pipeline(last)


def _matches(spark: SparkSession, paths: Sequence[str]) -> bool:
    """Returns whether the last stream has each tuple of the first, with its price, and each count of an item once."""
    first, last = (sl.stream(path).to_pandas() for path in (paths[0], paths[-1]))
    expected = first["item_price"].to_numpy()
    for _ in paths[1:]:
        expected = expected + 1.0
    return _sorted(first["item_id"], expected) == _sorted(last["item_id"], last["item_price"]) and _sorted(
        first["item_id"], first.groupby("item_id").cumcount() + 1
    ) == _sorted(last["item_id"], last["seen"])


def _sorted(keys: Any, values: Any) -> bytes:
    """Returns both columns in their order, as bytes."""
    keys, values = np.asarray(keys), np.asarray(values)
    order = np.lexsort((values, keys))
    return bytes(keys[order].tobytes() + values[order].tobytes())
