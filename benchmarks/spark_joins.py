"""Two sources joined within two seconds with Spark: by Strandline, by Spark itself, and not at all.

strandline    `sl.source(…).join(sl.source(…), within="2 s")`: persists both sides, puts them in order, joins, persists
              and publishes the results; checksums, fsync
entry         `sl.persist` of both sides, and nothing else
spark         Spark's stream-stream join with the same band and watermarks, RocksDB with changelog, to `noop`:
              inputs and results are written nowhere
spark_memory  the same with Spark's in-memory state store

Every contender is started over the files of one batch. When it has nothing to do any more, the others are put beside
them, and the clock runs until all that can be known of them is published (Spark: while its batches with tuples run).
Spark's joins get the same keys, tuples a second and tuples a batch, but fewer batches, and one round: they are slow.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl
from benchmarks.harness import CORES, Input, rounds, say, spread
from benchmarks.orders import BAND_US, Ids, Matches, apart_us, orders
from strandline.inputs.next_bounds import reachable
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATENESS = "1 second"
SPARK_ROUNDS = 1
NAMES = ("orders", "payments")
_SETTINGS = {
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Snapshots, which a thread in the background takes now and then, do not get into the figures.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1000",
}
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STORES = {
    "spark": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark_memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True)
class JoinSize:
    """How much to join."""

    keys: int
    batch: int
    """Tuples a batch and side."""
    batches: int
    """The first is not measured."""
    spark_batches: int
    """The same of Spark's own join."""


@dataclass(frozen=True)
class _Sides:
    """Files of both sides, two a batch, and the ids in them."""

    folder: Path
    batch: int
    ids: tuple[Ids, Ids]

    @classmethod
    def generate(cls, folder: Path, keys: int, batch: int, batches: int, seed: int) -> _Sides:
        """Tuples so far apart that within the band a tuple meets one."""
        rng = np.random.default_rng(seed)
        half, ids = batch // 2, []
        for name, value in zip(NAMES, ("amount", "paid"), strict=True):
            (folder / name).mkdir(parents=True)
            ids.append(rng.integers(0, keys, 2 * half * batches))
            for part in range(2 * batches):
                first = part * half
                table = orders(rng, first, ids[-1][first : first + half], value, apart_us(keys))
                file = folder / name / f"{part:05d}.parquet"
                pq.write_table(table, file, compression="lz4")
                os.utime(file, (1_000_000 + part, 1_000_000 + part))  # Spark's file source orders by modification time
        return cls(folder, 2 * half, (ids[0], ids[1]))

    def begin(self, spark: SparkSession, place: Path) -> list[Any]:
        """Both sides as streaming DataFrames over a folder that has the first batch."""
        found = []
        for name in NAMES:
            (place / name).mkdir(parents=True)
            for file in self._files(name)[:2]:
                os.link(file, place / name / file.name)
            found.append(Input(place / name, 24, self.batch, 1).stream(spark))
        return found

    def go_on(self, place: Path) -> float:
        """Puts the other batches there, too; the time at which that began."""
        began = time.time()
        for files in zip(*(self._files(name)[2:] for name in NAMES), strict=True):
            for name, file in zip(NAMES, files, strict=True):
                os.link(file, place / name / file.name)
        return began

    def _files(self, name: str) -> list[Path]:
        return sorted((self.folder / name).iterdir())


def joins(spark: SparkSession, size: JoinSize, repeat: int, folder: Path) -> dict[str, Any]:
    """All contenders in turns: tuples a second, and whether Strandline's results are those of numpy."""
    sides = _Sides.generate(folder / "in", size.keys, size.batch, size.batches, 1)
    fewer = _Sides.generate(folder / "in-spark", size.keys, size.batch, size.spark_batches, 2)
    contenders: dict[str, Callable[[_Sides], float]] = {
        "strandline": partial(_strandline, spark, folder / "streams"),
        "entry": partial(_entry, spark, folder / "entry"),
        **{name: partial(_spark, spark, folder / "spark", name) for name in _STORES},
    }
    warm = _Sides.generate(folder / "in-warm", size.keys, max(100, size.batch // 10), 2, 3)
    for name in ("strandline", *_STORES):  # a JVM that has compiled its loops, workers that have loaded their kernels
        contenders[name](warm)
    ours = {name: partial(run, sides) for name, run in contenders.items() if name not in _STORES}
    theirs = {name: partial(contenders[name], fewer) for name in _STORES}
    seconds = rounds(ours, repeat) | rounds(theirs, SPARK_ROUNDS)
    best = {name: 1 / min(taken) for name, taken in seconds.items()}
    found, is_sound = _found(folder / "streams", size.keys)
    reach = BAND_US // apart_us(size.keys)
    row = {
        "tuples_per_s": round(best["strandline"]),
        "ratio_to_spark_join": round(best["strandline"] / best["spark"], 1),
        "ratio_to_spark_join_memory": round(best["strandline"] / best["spark_memory"], 1),
        "ratio_to_entry": round(best["strandline"] / best["entry"], 3),
        "contenders_tuples_per_s": {name: round(rate) for name, rate in best.items()},
        "spark_rounds": SPARK_ROUNDS,
        "spread": {name: spread(taken) for name, taken in seconds.items()},
        "results_match": is_sound and found.same_as(Matches.expected(*sides.ids, -reach, reach)),
        "result_hash": found.hash(),
    }
    say(
        f"join: {row['tuples_per_s']:,} tuples/s, {row['ratio_to_spark_join']:.0f} times Spark's own with RocksDB, "
        f"{row['ratio_to_spark_join_memory']:.0f} times the one in memory, {row['ratio_to_entry']:.2f} of entry points"
    )
    for name in ("in", "in-spark", "in-warm", "streams", "entry", "spark"):
        shutil.rmtree(folder / name, ignore_errors=True)
    return row


# ---------------------------------------------------------------------- contenders, each in seconds a tuple


def _strandline(spark: SparkSession, folder: Path, sides: _Sides) -> float:
    left, right = _sources(spark, folder, sides)
    query = left.join(right, within="2 s").start(spark, str(folder / "joined"))
    query.process_all_available()
    before = _appends(folder / "joined")[-1]
    began = sides.go_on(folder / "files")
    _await_all(query, folder, len(sides.ids[0]))
    last = _appends(folder / "joined")[-1]
    query.finish()  # for the last second of tuples, which waits for that
    taken = [sum(s.input for s in m.standings) for m in (before, last)]
    return (last.published_us / 1e6 - began) / (taken[1] - taken[0])


def _entry(spark: SparkSession, folder: Path, sides: _Sides) -> float:
    queries = [source.start(spark) for source in _sources(spark, folder, sides)]
    for query in queries:
        query.process_all_available()
    began = sides.go_on(folder / "files")
    for query in queries:
        query.process_all_available()
    for query in queries:
        query.stop()
    last = [_appends(folder / name)[-1] for name in NAMES]
    return (max(m.published_us for m in last) / 1e6 - began) / (2 * (len(sides.ids[0]) - sides.batch))


def _sources(spark: SparkSession, folder: Path, sides: _Sides) -> list[sl.Entry]:
    shutil.rmtree(folder, ignore_errors=True)
    files = sides.begin(spark, folder / "files")
    return [
        sl.source(df, str(folder / name), key="id", time="at", partitions=CORES, lateness=LATENESS)
        for name, df in zip(NAMES, files, strict=True)
    ]


def _await_all(query: sl.Query, folder: Path, tuples: int) -> None:
    """Returns when both sides have so many tuples and the join has taken in all that it can; raises if it fails."""
    left, right, joined = (Log.open(LocalStorage(folder / name)) for name in (*NAMES, "joined"))
    while True:
        for log in (left, right, joined):
            log.refresh()
        if all(sum(log.state.ends[:CORES]) == tuples for log in (left, right)):
            reach = [reachable((left, right), p) for p in range(CORES)]
            if all(s.stands.bound == b for s, b in zip(joined.state.standings, reach, strict=True)):
                return
        if (problem := query.exception()) is not None:
            raise problem
        time.sleep(_LOOK_EVERY_S)


def _appends(folder: Path) -> list[AppendCommit]:
    return [m for m in Log.open(LocalStorage(folder)).after(-1) if isinstance(m, AppendCommit)]


def _spark(spark: SparkSession, folder: Path, store: str, sides: _Sides) -> float:
    from pyspark.sql import functions as F

    shutil.rmtree(folder, ignore_errors=True)
    left, right = (df.withWatermark("at", LATENESS) for df in sides.begin(spark, folder / "files"))
    other = right.select(F.col("id").alias("right_id"), F.col("at").alias("right_at"), "paid")
    band = F.expr("right_at BETWEEN at - INTERVAL 2 SECONDS AND at + INTERVAL 2 SECONDS")
    writer = left.join(other, (F.col("id") == F.col("right_id")) & band).writeStream.outputMode("append").format("noop")
    with _set(spark, {**_SETTINGS, _PROVIDER: _STORES[store]}):
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        query.processAllAvailable()
    begun = query.lastProgress["batchId"]
    sides.go_on(folder / "files")
    query.processAllAvailable()
    query.stop()
    batches: list[Mapping[str, Any]] = [p for p in query.recentProgress if p["batchId"] > begun and p["numInputRows"]]
    spent_ms = sum(float(p["durationMs"]["triggerExecution"]) for p in batches)
    return spent_ms / 1000 / sum(int(p["numInputRows"]) for p in batches)


@contextmanager
def _set(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings for a query that is started meanwhile; those of the session are as before afterwards."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _found(folder: Path, keys: int) -> tuple[Matches, bool]:
    """The pairs in Strandline's results, and whether all that stands beside them is right."""
    every_us = apart_us(keys)
    table = _table(folder / "joined")
    left, right = (table.column(name).cast(pa.int64()).to_numpy() // every_us for name in ("left_at", "right_at"))
    times = table.column("time").cast(pa.int64()).to_numpy()
    is_sound = np.array_equal(times, np.maximum(left, right) * every_us)
    for name, numbers, value in ((NAMES[0], left, "amount"), (NAMES[1], right, "paid")):
        kept = _table(folder / name).sort_by("at")
        for column in ("id", value):
            same = np.array_equal(kept.column(column).to_numpy()[numbers], table.column(column).to_numpy())
            is_sound = is_sound and same
    return Matches(left, right), is_sound


def _table(folder: Path) -> pa.Table:
    return pa.concat_tables([t for p in range(CORES) for t in sl.stream(str(folder)).tables(p)])
