"""The sensors of `strandline demo availability`, one of which can fall silent, and the operator over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import strandline as sl

SENSORS = ("north", "south", "west")
SILENT = "south"
AVERAGES, UNDISTURBED = "averages", "averages-undisturbed"
BOUND = "2 s"
ROWS_PER_SECOND = 100
ROOMS = 10


def start_sensor(spark: Any, folder: Path, name: str) -> sl.Query:
    """Persists what a sensor measures; one that starts again has all that it has measured meanwhile."""
    ticks = spark.readStream.format("rate").options(rowsPerSecond=ROWS_PER_SECOND, numPartitions=1).load()
    readings = ticks.selectExpr(
        f"value % {ROOMS} AS room", "timestamp AS at", f"20 + {SENSORS.index(name)} + value % 7 / 7 AS celsius"
    )
    entry = sl.persist(readings, str(folder / name), key="room", time="at", partitions=2, lateness="0 s")
    return entry.start(spark, trigger="250 ms")


def start_averages(spark: Any, folder: Path) -> sl.Query:
    """Starts the average of every second and room, with a bound for missing sensors."""
    return _averages(folder).availability(bound=BOUND).start(spark, str(folder / AVERAGES), trigger="200 ms")


def average_again(spark: Any, folder: Path) -> None:
    """Computes the same averages again, of complete streams."""
    query = _averages(folder).start(spark, str(folder / UNDISTURBED), trigger="available-now")
    query.await_termination()


def _averages(folder: Path) -> sl.Aggregation:
    together = sl.union(*(sl.stream(str(folder / name)) for name in SENSORS))
    return together.window(sl.time_window("1 s")).aggregate(average=sl.avg("celsius"), n=sl.count_all())
