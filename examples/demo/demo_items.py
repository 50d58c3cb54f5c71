"""The demo's Spark process: items stream in, averages out. `demo` starts it, kills it and starts it again."""

from __future__ import annotations

import sys
from pathlib import Path

import strandline as sl
from strandline.clock import SYSTEM_CLOCK

ITEM_IDS = 10_000
FIRST_TIME_MS = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC
ROWS_PER_BATCH = 20_000
WINDOW = 10
PRICES = 10_000
ITEMS, AVERAGE, UNINTERRUPTED = "items", "average", "average-uninterrupted"


def main(folder: Path, tuples: int) -> None:
    """Averages over ten items each, from items number 0 … tuples-1; then the same once more, without interruption."""
    spark = sl.session("local[2]", app_name="strandline demo")
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS_PER_BATCH, numPartitions=2).load()
    items = rate.where(f"value < {tuples}").selectExpr(
        f"(value * 2654435761 % 4294967296) DIV 65536 % {ITEM_IDS} AS item_id",
        f"value * 7919 % {PRICES} / 100 AS item_price",
        f"timestamp_millis(value + {FIRST_TIME_MS}) AS item_time",
    )
    # Times of a world of its own: no clock says whether they are ahead.
    source = sl.source(
        items,
        str(folder / ITEMS),
        key="item_id",
        time="item_time",
        partitions=2,
        lateness="10 s",
        max_ahead=None,
    )
    query = _averages(source).start(spark, str(folder / AVERAGE))
    while sum(query.progress.get("offsets", {}).values()) < tuples:
        if query.await_termination(timeout=0.1):
            return
        SYSTEM_CLOCK.sleep(0.05)
    query.stop()
    again = _averages(sl.stream(str(folder / ITEMS))).start(spark, str(folder / UNINTERRUPTED), trigger="available-now")
    again.await_termination()


def _averages(stream: sl.Entry | sl.Stream) -> sl.Aggregation:
    windows = stream.window(sl.count_window(WINDOW))
    averages = windows.aggregate(average=sl.avg("item_price"), n=sl.count_all())
    return averages.checkpoint(sl.cec(extent="2x", replay=100_000))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
