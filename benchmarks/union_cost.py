"""Three streams taken in as one, against one stream that holds the same tuples in the same order.

Both are on disk before. An aggregate over windows of ten seconds takes them in with Spark, `available-now`, and
publishes results and footprints. The rate is that from its first commit to its last, so that starting a query does not
count. Results have to be the same, to the bit.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import strandline as sl
from benchmarks.harness import CORES, rounds, say, spread
from benchmarks.orders import EVERY_US, ORDERS, Side
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import quiet
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS = 3
_COMMIT = 250_000 // STREAMS * STREAMS


def union_cost(spark: SparkSession, keys: int, tuples: int, repeat: int, folder: Path) -> dict[str, Any]:
    """Tuples a second over the union and over the one stream, and whether results are the same."""
    commit = min(_COMMIT, tuples // (4 * STREAMS) * STREAMS)
    _write(folder / "in", keys, commit, tuples // commit)
    inputs = {"union": [f"part{n}" for n in range(STREAMS)], "one": ["whole"]}

    def take_in(name: str) -> float:
        shutil.rmtree(folder / name, ignore_errors=True)
        streams = [sl.stream(str(folder / "in" / part)) for part in inputs[name]]
        source = sl.union(*streams) if len(streams) > 1 else streams[0]
        mean = source.window(sl.time_window("10 s")).aggregate(mean=sl.avg("amount"), n=sl.count_all())
        query = mean.start(spark, str(folder / name), trigger="available-now", max_tuples_per_batch=2 * commit)
        query.await_termination()
        return _seconds_per_tuple(Log.open(LocalStorage(folder / name)))

    for name in inputs:
        take_in(name)  # workers that have loaded their kernels
    seconds = rounds({name: partial(take_in, name) for name in inputs}, repeat)
    best = {name: min(taken) for name, taken in seconds.items()}
    row = {
        "ratio_union_to_one": round(best["one"] / best["union"], 3),
        "union": {
            "streams": STREAMS,
            "tuples": commit * (tuples // commit),
            "tuples_per_s": {name: round(1 / s) for name, s in best.items()},
            "spread": {name: spread(taken) for name, taken in seconds.items()},
        },
        "results_match": _results(folder / "union").equals(_results(folder / "one")),
    }
    for name in ("in", *inputs):
        shutil.rmtree(folder / name)
    say(f"join, union of {STREAMS} streams: {row['ratio_union_to_one']:.2f} of one stream with the same tuples")
    return row


def _write(folder: Path, keys: int, commit: int, commits: int) -> None:
    """The tuples dealt out to three streams, and all of them in one; as many commits each, all finished."""

    def side(name: str) -> Side:
        return Side(LocalStorage(folder / name, durability="os"), name, ORDERS, CORES)

    whole, parts = side("whole"), [side(f"part{n}") for n in range(STREAMS)]
    rng = np.random.default_rng(12)
    for number in range(commits):
        # No two tuples of a time: their order would be that of the streams in one case, of offsets in the other.
        times = np.arange(number * commit, (number + 1) * commit) * EVERY_US
        at = pa.array(times, pa.timestamp("us", tz="UTC"))
        table = pa.table({"id": rng.integers(0, keys, commit), "at": at, "amount": rng.random(commit)})
        whole.append(table)
        for n, part in enumerate(parts):
            part.append(table.take(pa.array(np.arange(n, commit, STREAMS))))
    for stream in (whole, *parts):
        quiet.finish(stream.log, "bench")


def _seconds_per_tuple(output: Log) -> float:
    commits = [m for m in output.after(-1) if isinstance(m, AppendCommit)]
    taken = [sum(s.input for s in m.standings) for m in (commits[0], commits[-1])]
    return (commits[-1].published_us - commits[0].published_us) / 1e6 / (taken[1] - taken[0])


def _results(folder: Path) -> pa.Table:
    """Results of all partitions in their order, a partition after the other."""
    names = ["id", "window_start", "mean", "n"]
    tables = [
        table.filter(pa.compute.equal(table.column("_kind"), 0)).select(names)
        for p in range(CORES)
        for table in Log.open(LocalStorage(folder)).read(p, columns=[*names, "_kind"])
    ]
    return pa.concat_tables(tables).combine_chunks()
