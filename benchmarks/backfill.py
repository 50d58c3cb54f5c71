"""A month of history in one go: hourly windows every five minutes, and sessions, over a stream that is already there.

Beside them, Spark's own batch `groupBy(window(…))` and `groupBy(session_window(…))` over the same files. Then ten times
as many tuples of ten times as many keys, so that there are ten times as many windows: a tuple should cost the same.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import strandline as sl
from benchmarks.harness import CORES, rounds, say, spread, stopwatch, workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZES = {"tiny": (2_000, 20_000), "small": (432_000, 4_320_000), "large": (1_000_000, 10_000_000)}
KEYS = {"tiny": 2, "small": 100, "large": 230}
DAYS_US = 30 * 86_400_000_000
BEGIN_US = 1_790_000_000_000_000
_ROWS_PER_FILE = 1 << 20


@dataclass(frozen=True)
class History:
    """A persisted stream of so many tuples, all published, finished."""

    path: str
    tuples: int
    keys: int

    @property
    def gap_us(self) -> int:
        """Of sessions: three times what lies between two tuples of a key on average, so that there are many."""
        return 3 * DAYS_US * self.keys // self.tuples

    def windows(self) -> sl.Aggregation:
        """The operator with hourly windows."""
        return self._aggregated(sl.time_window("1 hour", advance="5 min"))

    def sessions(self) -> sl.Aggregation:
        """The operator with sessions."""
        return self._aggregated(sl.session_window(f"{self.gap_us} us"))

    def _aggregated(self, window: sl.Window) -> sl.Aggregation:
        return sl.stream(self.path).window(window).aggregate(n=sl.count_all(), total=sl.sum("price"))

    def spark_windows(self, spark: SparkSession) -> DataFrame:
        """The same as a batch of Spark's."""
        from pyspark.sql import functions as F

        return self._grouped(spark, F.window("at", "1 hour", "5 minutes"))

    def spark_sessions(self, spark: SparkSession) -> DataFrame:
        """The same as a batch of Spark's."""
        from pyspark.sql import functions as F

        return self._grouped(spark, F.session_window("at", f"{self.gap_us} microseconds"))

    def _grouped(self, spark: SparkSession, window: Any) -> DataFrame:
        from pyspark.sql import functions as F

        files = [str(f) for f in sorted(Path(self.path).glob("blocks/*/*.parquet"))]
        rows = spark.read.parquet(*files).groupBy("k", window.alias("w"))
        return rows.agg(F.count("*").alias("n"), F.sum("price").alias("total"))


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Writes both histories, then lets Strandline and Spark compute over each in turns."""
    spark = sl.session(f"local[{CORES}]")
    with workspace() as folder:
        _warm_up(spark, folder)
        few = _persisted(spark, folder, SIZES[size][0], KEYS[size])
        many = _persisted(spark, folder, SIZES[size][1], KEYS[size] * SIZES[size][1] // SIZES[size][0])
        seconds = {
            few.tuples: rounds(_contenders(spark, folder, few), repeat),
            many.tuples: _large_rounds(_contenders(spark, folder, many), max(1, repeat - 1)),
        }
        matches = _same(spark, folder, few) and _adds_up(spark, folder, many)
        peak = _worker_peak_mb()
    best = {tuples: {name: min(taken) for name, taken in found.items()} for tuples, found in seconds.items()}
    for tuples, found in best.items():
        for name, taken in found.items():
            say(f"backfill {tuples:>10,} {name:>15}: {taken:6.2f} s   spread {spread(seconds[tuples][name]):.0%}")
    small, large = best[few.tuples], best[many.tuples]
    per_tuple = many.tuples / few.tuples
    return {
        "benchmark": "backfill",
        "size": size,
        "cores": CORES,
        "repeat": repeat,
        "tuples": few.tuples,
        "tuples_large": many.tuples,
        "seconds": {k: round(v, 3) for k, v in small.items()},
        "seconds_large": {k: round(v, 3) for k, v in large.items()},
        "ratio_to_spark_batch": round(small["spark_windows"] / small["windows"], 3),
        "ratio_sessions_to_spark_batch": round(small["spark_sessions"] / small["sessions"], 3),
        "ratio_large_to_spark_batch": round(large["spark_windows"] / large["windows"], 3),
        "ratio_sessions_large_to_spark_batch": round(large["spark_sessions"] / large["sessions"], 3),
        "per_tuple_growth": round(large["windows"] / small["windows"] / per_tuple, 3),
        "per_tuple_growth_sessions": round(large["sessions"] / small["sessions"] / per_tuple, 3),
        "worker_peak_mb": peak,
        "spread": {name: spread(taken) for name, taken in seconds[few.tuples].items()},
        "spread_large": {name: spread(taken) for name, taken in seconds[many.tuples].items()},
        "results_match": matches,
    }


def _large_rounds(contenders: dict[str, Callable[[], float]], repeat: int) -> dict[str, list[float]]:
    """The rounds over the large history: of Spark's batches only the first, which take up to half a minute."""
    found = rounds(contenders, 1)
    if repeat > 1:
        ours = {name: run for name, run in contenders.items() if not name.startswith("spark")}
        for name, taken in rounds(ours, repeat - 1).items():
            found[name] += taken
    return found


def _contenders(spark: SparkSession, folder: Path, history: History) -> dict[str, Callable[[], float]]:
    out = folder / f"out-{history.tuples}"
    return {
        "windows": lambda: stopwatch(lambda: _ours(spark, out / "windows", history.windows())),
        "spark_windows": lambda: stopwatch(lambda: _spark(out / "spark_windows", history.spark_windows(spark))),
        "sessions": lambda: stopwatch(lambda: _ours(spark, out / "sessions", history.sessions())),
        "spark_sessions": lambda: stopwatch(lambda: _spark(out / "spark_sessions", history.spark_sessions(spark))),
    }


def _ours(spark: SparkSession, path: Path, operator: sl.Aggregation) -> None:
    shutil.rmtree(path, ignore_errors=True)
    operator.start(spark, str(path), trigger="available-now").await_termination()


def _spark(path: Path, results: DataFrame) -> None:
    shutil.rmtree(path, ignore_errors=True)
    results.write.parquet(str(path))


def _warm_up(spark: SparkSession, folder: Path) -> None:
    """JVM, workers and kernels, on both sides: who backfills a month waits for none of it twice."""
    say("backfill: warming up")
    history = _persisted(spark, folder, 30_000, 100)
    for contender in _contenders(spark, folder, history).values():
        contender()


def _persisted(spark: SparkSession, folder: Path, tuples: int, keys: int) -> History:
    say(f"backfill: writing {tuples:,} tuples of {keys:,} keys over 30 days")
    source = folder / f"source-{tuples}"
    source.mkdir()
    rng = np.random.default_rng(1)
    times = BEGIN_US + np.sort(rng.integers(0, DAYS_US, tuples))
    for number, first in enumerate(range(0, tuples, _ROWS_PER_FILE)):
        rows = slice(first, first + _ROWS_PER_FILE)
        count = len(times[rows])
        table = pa.table(
            {
                "k": rng.integers(0, keys, count),
                "price": rng.integers(0, 1000, count).astype(np.float64),  # whole, so that any order gives one sum
                "at": pa.array(times[rows], pa.timestamp("us", tz="UTC")),
            }
        )
        pq.write_table(table, source / f"{number:05d}.parquet")
        os.utime(source / f"{number:05d}.parquet", (1_000_000 + number, 1_000_000 + number))
    frame = spark.readStream.schema(spark.read.parquet(str(source)).schema).parquet(str(source))
    path = str(folder / f"history-{tuples}")
    entry = sl.persist(frame, path, key="k", time="at", partitions=CORES, lateness="1 min")
    entry.start(spark, trigger="available-now", final=True).await_termination()
    return History(path, tuples, keys)


def _same(spark: SparkSession, folder: Path, history: History) -> bool:
    """Whether both have left the same results in the last round, to the bit."""
    out = folder / f"out-{history.tuples}"
    for name in ("windows", "sessions"):
        found = _sorted(sl.stream(str(out / name)).read(spark).toArrow())
        theirs = spark.read.parquet(str(out / f"spark_{name}"))
        wanted = _sorted(
            theirs.selectExpr("k", "w.start AS window_start", "w.end AS window_end", "n", "total").toArrow()
        )
        if not found.num_rows or not found.equals(wanted):
            return False
    return True


def _adds_up(spark: SparkSession, folder: Path, history: History) -> bool:
    """Whether every tuple is in twelve windows and in one session."""
    out = folder / f"out-{history.tuples}"
    found = [sl.stream(str(out / n)).read(spark).agg({"n": "sum"}).toArrow() for n in ("windows", "sessions")]
    return [table.column(0)[0].as_py() for table in found] == [12 * history.tuples, history.tuples]


def _sorted(table: pa.Table) -> pa.Table:
    table = table.cast(pa.schema([pa.field(f.name, f.type) for f in table.schema])).combine_chunks()
    return table.take(pc.sort_indices(table, [("k", "ascending"), ("window_start", "ascending")])).combine_chunks()


def _worker_peak_mb() -> float | None:
    """The most memory that any Python worker of this program ever held; None where there is no /proc to tell."""
    peaks, parents = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError, KeyError, ValueError):
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            pid = int(fields["Pid"])
            parents[pid] = int(fields["PPid"])
            if b"pyspark.daemon" in (status.parent / "cmdline").read_bytes():
                peaks[pid] = int(fields["VmHWM"].split()[0]) / 1024
    ours = [peak for pid, peak in peaks.items() if os.getpid() in _ancestors(pid, parents)]
    return round(max(ours), 1) if ours else None


def _ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    found: set[int] = set()
    while pid in parents and pid not in found:
        found.add(pid)
        pid = parents[pid]
    return found
