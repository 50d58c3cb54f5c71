"""A stream that has run for long in small batches, looked after as it grew, beside one written in a few large batches.

The past is made without Spark: thousands of tiny commits, and after every 64 of them what housekeeping does then.
Beside it the same commits with nobody to look after them. The files of a live stream are counted in simulated time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

import strandline as sl
from benchmarks.files_over_time import files_over_time
from benchmarks.harness import CORES, rounds, say, spread, stopwatch, workspace
from benchmarks.small_batches import PARTITIONS, TYPES, append_batch, new_stream
from strandline.log.index.index import FOLD_EVERY
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.upkeep.levels import Levels

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = {"tiny": (150, 10), "small": (1_640, 4_000), "large": (50_000, 4_000)}  # commits, tuples a commit and partition
MINUTES = {"tiny": 10, "small": 60, "large": 600}
"""Of simulated time in which files are counted."""
_LARGE_BATCHES = 4


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Ages two streams, writes a third one at once, then reads all three in turns."""
    commits, tuples = SIZES[size]
    say(f"aging: one batch a second for {MINUTES[size]} minutes of simulated time")
    files = files_over_time(MINUTES[size])
    for row in files["over_time"]:
        say("aging " + ", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in row.items()))
    with workspace() as folder:
        paths = {name: str(folder / name) for name in ("kept", "untouched", "large_batches")}
        _write(paths["large_batches"], _LARGE_BATCHES, commits * tuples // _LARGE_BATCHES)
        say(f"aging: {commits:,} commits of {tuples:,} tuples in each of {PARTITIONS} partitions, twice")
        _write(paths["untouched"], commits, tuples)
        kept = _Kept(paths["kept"])
        append_s = _write(paths["kept"], commits, tuples, kept.after_commit) - kept.seconds
        blocks = {name: _blocks(path) for name, path in paths.items()}
        contenders: dict[str, Callable[[], float]] = {
            f"pyarrow_{name}": partial(stopwatch, partial(_read, path)) for name, path in paths.items()
        }
        if size != "tiny":  # which runs where there is no Java
            spark = sl.session(f"local[{CORES}]")
            _read_with_spark(spark, paths["large_batches"])  # its first job is slow, whatever it reads
            contenders |= {
                f"spark_{name}": partial(stopwatch, partial(_read_with_spark, spark, path))
                for name, path in paths.items()
            }
        seconds = rounds(contenders, repeat)
        contents = {name: _content(path) for name, path in paths.items()}
    best = {name: min(taken) for name, taken in seconds.items()}
    for name, taken in seconds.items():
        say(f"aging {name:>24}: {best[name]:.3f} s   spread {spread(taken):.0%}")
    written = commits * tuples * PARTITIONS
    return {
        "benchmark": "aging",
        "size": size,
        "repeat": repeat,
        "commits": commits,
        "tuples": written,
        "blocks": blocks,
        "ratio_pyarrow_to_large_batches": _ratio(best, "pyarrow", "kept"),
        "ratio_pyarrow_untouched": _ratio(best, "pyarrow", "untouched"),
        "ratio_spark_to_large_batches": _ratio(best, "spark", "kept"),
        "ratio_spark_untouched": _ratio(best, "spark", "untouched"),
        "write_amplification": round(kept.tuples / written, 2),
        "compactions": kept.pieces,
        "append_ms": round(append_s / commits * 1000, 3),
        "housekeeping_ms_per_commit": round(kept.seconds / commits * 1000, 3),
        "piece_s_max": round(kept.longest_s, 3),
        "files": files,
        "read_s": {name: round(taken, 4) for name, taken in best.items()},
        "spread": {name: spread(taken) for name, taken in seconds.items()},
        "results_match": len(set(contents.values())) == 1,
        "result_hash": f"{contents['kept'] & (1 << 64) - 1:016x}",
    }


class _Kept:
    """What housekeeping does for a stream, with a handle of its own, and what that costs."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._levels: Levels | None = None
        self.tuples = self.pieces = 0
        self.seconds = self.longest_s = 0.0

    def after_commit(self, n: int) -> None:
        """Every 64 commits, as long as there is something to join."""
        if (n + 1) % FOLD_EVERY == 0:
            while self._piece():
                pass

    def _piece(self) -> bool:
        if self._levels is None:
            self._levels = Levels(Log.open(LocalStorage(self._path, durability="os")))
        done = []
        took_s = stopwatch(lambda: done.append(self._levels.step()))  # type: ignore[union-attr]
        self.seconds += took_s
        self.longest_s = max(self.longest_s, took_s)
        self.tuples += done[0].tuples
        self.pieces += done[0].blocks_after > 0
        return done[0].blocks_after > 0


def _write(path: str, commits: int, tuples: int, after: Callable[[int], None] = lambda n: None) -> float:
    """Appends `commits` batches; the seconds that all of it took."""
    log = new_stream(LocalStorage(path, durability="os"))

    def append_all() -> None:
        for n in range(commits):
            append_batch(log, n, tuples)
            after(n)

    return stopwatch(append_all)


def _blocks(path: str) -> int:
    log = Log.open(LocalStorage(path))
    return sum(1 for p in range(PARTITIONS) for _ in log.blocks(p))


def _read(path: str) -> float:
    log = Log.open(LocalStorage(path))
    return float(sum(pc.sum(t.column("item_price")).as_py() for p in range(PARTITIONS) for t in log.read(p)))


def _read_with_spark(spark: SparkSession, path: str) -> None:
    sl.stream(path).read(spark).selectExpr("sum(item_price)", "max(item_time)", "sum(item_id)").collect()


def _content(path: str) -> int:
    """The same for the same tuples in the same order."""
    log = Log.open(LocalStorage(path))
    found = 0
    for p in range(PARTITIONS):
        for table in log.read(p):
            offsets = table.column("_offset").to_numpy().astype(np.uint64) + np.uint64(1)
            for name in TYPES:
                bits = table.column(name).to_numpy().view(np.uint64)
                found += int((bits * (offsets * np.uint64(2 * p + 3) | np.uint64(1))).sum())
    return found % (1 << 64)


def _ratio(best: dict[str, float], reader: str, name: str) -> float | None:
    """Speed of reading it divided by that of reading the one written in large batches."""
    if f"{reader}_{name}" not in best:
        return None
    return round(best[f"{reader}_large_batches"] / best[f"{reader}_{name}"], 3)
