"""The demo's Spark process: items stream in until all are there. `demo` starts it, kills it and starts it again."""

from __future__ import annotations

import sys

import strandline as sl
from strandline.clock import SYSTEM_CLOCK

ITEM_IDS = 1_000
FIRST_TIME_MS = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC
ROWS_PER_BATCH = 10_000
PRICE_STEP = 7_919
PRICES = 10_000


def main(path: str, tuples: int) -> None:
    """Persists items number 0 … tuples-1; each has a time of its own, a millisecond after the one before."""
    spark = sl.session("local[2]", app_name="strandline demo")
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS_PER_BATCH, numPartitions=2).load()
    items = rate.where(f"value < {tuples}").selectExpr(
        f"value * 31 % {ITEM_IDS} AS item_id",
        f"value * {PRICE_STEP} % {PRICES} / 100 AS item_price",
        f"timestamp_millis(value + {FIRST_TIME_MS}) AS item_time",
    )
    query = sl.persist(items, path, key="item_id", time="item_time", partitions=2, lateness="10 s").start(spark)
    while sum(query.progress.get("offsets", {}).values()) < tuples:
        if query.await_termination(timeout=0.1):
            return
        SYSTEM_CLOCK.sleep(0.05)
    query.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
