"""Reading a stream back: with pyarrow alone, through `read(spark)` and through `read_stream`.

Beside them, Spark reads the same rows from plain Parquet files of the same sizes. The same once more for the output of
an operator, in which about every second tuple is a footprint that no reader of results may see.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import strandline as sl
from benchmarks.harness import CORES, generate, rounds, say, spread, stopwatch, workspace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = {"small": (1_000_000, 6), "large": (2_000_000, 20)}  # rows a batch, batches


def run(size: str, repeat: int = 3) -> dict[str, Any]:
    """Writes a stream and a plain copy of it, then reads both in turns."""
    rows, batches = SIZES[size]
    spark = sl.session(f"local[{CORES}]")
    with workspace() as folder:
        say(f"replay: writing {rows * batches:,} tuples in {batches} batches")
        data = generate(folder / "in", 32, rows, batches)
        path = str(folder / "stream")
        entry = sl.persist(data.stream(spark), path, key="item_id", time="item_time", partitions=CORES, lateness="1 s")
        entry.start(spark, trigger="available-now").await_termination()
        plain = _plain_copy(path, folder / "plain")
        say("replay: averaging them, which leaves a stream with control tuples")
        averages, plain_averages = _averages(spark, path, folder)
        seconds = rounds(
            {
                "parquet_read": lambda: stopwatch(lambda: _consume(spark.read.parquet(plain))),
                "read": lambda: stopwatch(lambda: _consume(sl.stream(path).read(spark))),
                "read_stream": lambda: _read_stream(spark, path, folder / "checkpoint"),
                "pyarrow": lambda: stopwatch(lambda: _pyarrow(path)),
                "parquet_read_averages": lambda: stopwatch(lambda: _consume(spark.read.parquet(plain_averages))),
                "read_averages": lambda: stopwatch(lambda: _consume(sl.stream(averages).read(spark))),
            },
            repeat,
        )
        content = _content(sl.stream(path).read(spark))
        matches = content == _content(spark.read.parquet(plain))
        results = sl.stream(averages).read(spark).count()
        matches = matches and results == spark.read.parquet(plain_averages).count()
        control = sum(sl.stream(averages).offsets().values()) - results
    tuples = rows * batches
    read = {name: results if name.endswith("averages") else tuples for name in seconds}
    rates = {name: round(read[name] / min(taken)) for name, taken in seconds.items()}
    for name, rate in rates.items():
        say(f"replay {name:>21}: {rate:>12,} tuples/s   spread {spread(seconds[name]):.0%}")
    return {
        "benchmark": "replay",
        "size": size,
        "cores": CORES,
        "repeat": repeat,
        "tuples": tuples,
        "tuples_per_s": rates["read"],
        "tuples_per_s_read_stream": rates["read_stream"],
        "tuples_per_s_pyarrow": rates["pyarrow"],
        "tuples_per_s_parquet_read": rates["parquet_read"],
        "ratio_to_parquet_read": round(rates["read"] / rates["parquet_read"], 3),
        "control_tuples_per_result": round(control / results, 2),
        "ratio_to_parquet_read_with_control_tuples": round(rates["read_averages"] / rates["parquet_read_averages"], 3),
        "spread": {name: spread(taken) for name, taken in seconds.items()},
        "results_match": matches,
        "result_hash": f"{content[1] & (1 << 64) - 1:016x}",
    }


def _averages(spark: SparkSession, path: str, folder: Path) -> tuple[str, str]:
    """The output of an operator over the stream, and its results as plain files."""
    averages = str(folder / "averages")
    windows = sl.stream(path).window(sl.count_window(10)).aggregate(average=sl.avg("item_price"))
    windows.checkpoint(sl.cec(extent="2x")).start(spark, averages, trigger="available-now").await_termination()
    return averages, _plain_copy(averages, folder / "plain-averages")


def _plain_copy(path: str, folder: Path) -> str:
    """The same results in files of the same number and compression, without the log's own columns."""
    folder.mkdir()
    number = 0
    stream = sl.stream(path)
    for partition in range(stream.partitions):
        for table in stream.tables(partition):
            pq.write_table(table, folder / f"{number:05d}.parquet", compression="lz4", use_dictionary=False)
            number += 1
    return str(folder)


def _consume(df: Any) -> None:
    df.write.format("noop").mode("overwrite").save()


def _content(df: Any) -> tuple[int, int]:
    from pyspark.sql import functions as F

    row = df.select(F.count("*"), F.sum(F.xxhash64("item_id", "item_price", "item_time") % 1_000_003)).first()
    return int(row[0]), int(row[1])


def _read_stream(spark: SparkSession, path: str, checkpoint: Path) -> float:
    df = sl.stream(path).read_stream(spark, max_tuples_per_batch=2_000_000)
    writer = df.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    shutil.rmtree(checkpoint, ignore_errors=True)
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    tuples = sum(p["numInputRows"] for p in progress)
    # The rate of the batches; starting a query is not part of reading. Scaled to the whole stream.
    steady = progress[1:] or progress
    rate = sum(p["numInputRows"] for p in steady) / sum(p["durationMs"]["triggerExecution"] for p in steady) * 1000
    return float(tuples / rate)


def _pyarrow(path: str) -> None:
    stream = sl.stream(path)
    for partition in range(stream.partitions):
        for _ in stream.tables(partition):
            pass
