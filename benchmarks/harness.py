"""What every workload needs: input, fair rounds, and a line that says where it is."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
KEYS = 100_000
_FIXED_BYTES = 24  # item_id, item_price, item_time


def say(text: str) -> None:
    """A line of progress; standard output belongs to the result."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def workspace() -> Iterator[Path]:
    """A folder on a real disk that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="strandline-bench-", dir=os.environ.get("STRANDLINE_BENCH_DIR")))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Input:
    """Parquet files, two a batch, of tuples of one size."""

    folder: Path
    tuple_bytes: int
    rows_per_batch: int
    batches: int

    def stream(self, spark: SparkSession) -> DataFrame:
        """The files as a streaming DataFrame, two a batch."""
        schema = spark.read.parquet(str(self.folder)).schema
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(str(self.folder))


def generate(
    folder: Path, tuple_bytes: int, rows_per_batch: int, batches: int, seed: int = 1, keys: int = KEYS
) -> Input:
    """Items with a random payload that fills them up to `tuple_bytes`, in order of time."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    half = rows_per_batch // 2
    for part in range(batches * 2):
        columns: dict[str, Any] = {
            "item_id": rng.integers(0, keys, half),
            "item_price": rng.random(half),
            "item_time": pa.array(np.arange(part * half, (part + 1) * half) * 10, pa.timestamp("us", tz="UTC")),
        }
        width = tuple_bytes - _FIXED_BYTES - 4
        if tuple_bytes > 2 * _FIXED_BYTES:
            letters = rng.integers(97, 123, size=half * width, dtype=np.uint8)
            ends = np.arange(half + 1, dtype=np.int32) * width
            columns["payload"] = pa.StringArray.from_buffers(half, pa.py_buffer(ends), pa.py_buffer(letters))
        pq.write_table(pa.table(columns), folder / f"{part:05d}.parquet", compression="lz4")
        # Spark's file source orders by modification time.
        os.utime(folder / f"{part:05d}.parquet", (1_000_000 + part, 1_000_000 + part))
    return Input(folder, tuple_bytes, rows_per_batch, batches)


def rounds(contenders: Mapping[str, Callable[[], float]], repeat: int) -> dict[str, list[float]]:
    """Seconds of each contender in each round; they take turns, and the order changes, so that noise hits all."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(repeat):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds[name].append(contenders[name]())
    return seconds


def spread(seconds: Sequence[float]) -> float:
    """How far the worst round lies from the best, as a part of the best."""
    return round(max(seconds) / min(seconds) - 1, 3)


def stopwatch(work: Callable[[], object]) -> float:
    """Seconds that the work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cpu_stopwatch(work: Callable[[], object]) -> float:
    """Seconds that the processor works for it, in all threads of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def batch_seconds(query: Any) -> float:
    """Seconds of the median batch as Spark reports them, the first (which compiles) left out."""
    taken = sorted(p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["batchId"] > 0)
    return float(taken[len(taken) // 2]) / 1000
