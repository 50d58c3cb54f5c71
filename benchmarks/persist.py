"""The entry point beside Spark's `noop` sink (no persistence at all) and Spark's own Parquet file sink.

All three run the same plan: read files, shuffle by key. Strandline then also sorts, numbers, checksums, syncs to disk
and publishes.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import strandline as sl
from benchmarks.harness import CORES, Input, batch_seconds, generate, rounds, say, spread, workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES: dict[str, list[tuple[int, int, int]]] = {  # (bytes a tuple, rows a batch, batches)
    "small": [(32, 500_000, 3), (256, 300_000, 3), (1024, 75_000, 3), (4096, 18_750, 3), (256, 10_000, 5)],
    "large": [
        *[(32, rows, 8) for rows in (10_000, 100_000, 1_000_000, 4_000_000)],
        *[(256, rows, 8) for rows in (10_000, 100_000, 400_000, 1_000_000)],
        *[(1024, rows, 8) for rows in (10_000, 100_000, 250_000)],
        *[(4096, rows, 8) for rows in (2_500, 25_000, 60_000)],
    ],
}
ARROW_ROWS = 10_000
"""Batches of this size are also written by Python tasks, to see which way is faster."""
WARM_UP = (256, 60_000, 6)
HEADLINE_BYTES_MIN = 256
HEADLINE_ROWS_MIN_BYTES = 40 << 20
"""Ratios are reported for batches of at least this size; smaller ones measure the cost of a micro-batch."""


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Measures every size and returns the result."""
    spark = sl.session(f"local[{CORES}]")
    table = []
    with workspace() as folder:
        _warm_up(spark, folder)
        for number, (tuple_bytes, rows, batches) in enumerate(SIZES[size]):
            data = generate(folder / f"in-{number}", tuple_bytes, rows, batches)
            table.append(_measure(spark, data, folder, repeat))
            shutil.rmtree(data.folder)
    headline = [
        r for r in table if r["tuple_bytes"] >= HEADLINE_BYTES_MIN and r["batch_bytes"] >= HEADLINE_ROWS_MIN_BYTES
    ]
    best = headline[0]
    return {
        "benchmark": "persist",
        "size": size,
        "cores": CORES,
        "repeat": repeat,
        "tuples_per_s": best["tuples_per_s"],
        "mb_per_s": best["mb_per_s"],
        "ratio_to_noop": min(r["ratio_to_noop"] for r in headline),
        "ratio_to_parquet": min(r["ratio_to_parquet"] for r in headline),
        "results_match": all(r["results_match"] for r in table),
        "result_hash": f"{sum(r['result_hash'] for r in table) & (1 << 64) - 1:016x}",
        "table": [{k: v for k, v in r.items() if k != "result_hash"} for r in table],
    }


def _warm_up(spark: SparkSession, folder: Path) -> None:
    """Streams run for days: what is measured is a JVM that has compiled its loops, not one that has just begun."""
    data = generate(folder / "in-warm", *WARM_UP)
    for contender in (_noop, _parquet, _strandline):
        for _ in range(2):
            contender(spark, data, folder)
    shutil.rmtree(data.folder)


def _measure(spark: SparkSession, data: Input, folder: Path, repeat: int) -> dict[str, Any]:
    contenders = {
        "noop": lambda: _noop(spark, data, folder),
        "parquet": lambda: _parquet(spark, data, folder),
        "strandline": lambda: _strandline(spark, data, folder, "native"),
    }
    if data.rows_per_batch == ARROW_ROWS:
        contenders["strandline_arrow"] = lambda: _strandline(spark, data, folder, "arrow")
    seconds = rounds(contenders, repeat)
    best = {name: min(taken) for name, taken in seconds.items()}
    written = sl.stream(str(folder / "stream")).read(spark)
    hashes = [_content_hash(df) for df in (written, spark.read.parquet(str(data.folder)))]
    shutil.rmtree(folder / "stream")
    result = {
        "tuple_bytes": data.tuple_bytes,
        "batch_tuples": data.rows_per_batch,
        "batch_bytes": data.rows_per_batch * data.tuple_bytes,
        "tuples_per_s": round(data.rows_per_batch / best["strandline"]),
        "mb_per_s": round(data.rows_per_batch * data.tuple_bytes / best["strandline"] / 1e6, 1),
        "batch_ms": {name: round(s * 1000, 1) for name, s in best.items()},
        "spread": {name: spread(taken) for name, taken in seconds.items()},
        "ratio_to_noop": round(best["noop"] / best["strandline"], 3),
        "ratio_to_parquet": round(best["parquet"] / best["strandline"], 3),
        "results_match": hashes[0] == hashes[1],
        "result_hash": hashes[0][1],
    }
    if "strandline_arrow" in best:
        result["ratio_native_to_arrow"] = round(best["strandline_arrow"] / best["strandline"], 3)
    say(
        f"persist {data.tuple_bytes:>5} B x {data.rows_per_batch:>9,}: {result['tuples_per_s']:>10,} tuples/s "
        f"{result['mb_per_s']:>7} MB/s   of noop {result['ratio_to_noop']:.2f}   "
        f"of parquet {result['ratio_to_parquet']:.2f}"
    )
    return result


def _content_hash(df: Any) -> tuple[int, int]:
    from pyspark.sql import functions as F

    row = df.select(F.count("*"), F.sum(F.xxhash64(*sorted(df.columns)) % 1_000_003)).first()
    return int(row[0]), int(row[1])


def _shuffled(spark: SparkSession, data: Input) -> Any:
    from pyspark.sql import functions as F

    return data.stream(spark).repartitionById(CORES, F.pmod(F.hash("item_id"), F.lit(CORES)))


def _noop(spark: SparkSession, data: Input, folder: Path) -> float:
    writer = _shuffled(spark, data).writeStream.format("noop")
    return _best_batch(writer, folder / "noop")


def _parquet(spark: SparkSession, data: Input, folder: Path) -> float:
    writer = _shuffled(spark, data).writeStream.format("parquet").option("path", str(folder / "parquet" / "out"))
    return _best_batch(writer, folder / "parquet")


def _best_batch(writer: Any, folder: Path) -> float:
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    shutil.rmtree(folder, ignore_errors=True)
    return batch_seconds(query)


def _strandline(spark: SparkSession, data: Input, folder: Path, blocks: str = "native") -> float:
    path = folder / "stream"
    shutil.rmtree(path, ignore_errors=True)
    entry = sl.persist(data.stream(spark), str(path), key="item_id", time="item_time", partitions=CORES, lateness="1 s")
    query = entry.start(spark, trigger="available-now", blocks=blocks)
    query.await_termination()
    return batch_seconds(query.spark_query)
