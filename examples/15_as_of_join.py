"""Orders with the price that was valid when each was made: an as-of join, killed half-way, and the result is the same.

    python examples/15_as_of_join.py

Prices change now and then; they are a stream, too. The join keeps the last price of each item and no order:
`left=sl.count_window(0), right=sl.count_window(1)`. So an order meets the last price before it, and a new price meets
nothing: it counts for the orders after it. The join runs in a process of its own, which dies by SIGKILL as soon as it
has published something. Started again, it goes on from its streams, and what it has made in the end is what SQL makes
of the same data in one go.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import strandline as sl

ORDERS, PRICES, ITEMS, FILES = 4_000, 400, 50, 8


def work(folder: str) -> None:
    """What a user's program is: two sources, a join, a query."""
    spark = sl.session("local[2]")

    def source(name: str, at: str) -> sl.Entry:
        schema = spark.read.parquet(f"{folder}/{name}-files").schema
        files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/{name}-files")
        # Where prices come live, and seldom, heartbeat="1 s" lets orders go on while there is no new one.
        return sl.source(files, f"{folder}/{name}", key="item", time=at, partitions=2, lateness="1 min")

    orders, prices = source("orders", "ordered_at"), source("prices", "valid_from")
    priced = orders.join(prices, left=sl.count_window(0), right=sl.count_window(1))
    query = priced.start(spark, f"{folder}/priced", trigger="available-now", final=True, max_tuples_per_batch=500)
    query.await_termination()
    spark.stop()


def kill_half_way(folder: str) -> None:
    """Starts the program and kills it, and all that it has started, when some results are published."""
    child = subprocess.Popen([sys.executable, __file__, folder], start_new_session=True)
    while len(list(Path(folder, "priced", "commits").glob("*.json"))) < 2 and child.poll() is None:
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spark = sl.session("local[2]")
        orders = spark.range(ORDERS).selectExpr(
            f"id * 7 % {ITEMS} AS item", "timestamp_seconds(id) AS ordered_at", "id % 9 + 1 AS pieces"
        )
        prices = spark.range(PRICES).selectExpr(
            f"id % {ITEMS} AS item", "timestamp_seconds(id * 10 - 600) AS valid_from", "id * 31 % 97 + 3 AS price"
        )
        for name, rows, at in (("orders", orders, "ordered_at"), ("prices", prices, "valid_from")):
            ordered = rows.orderBy(at).collect()
            for part in range(FILES):  # one after the other: Spark reads files in this order
                some = ordered[len(ordered) * part // FILES : len(ordered) * (part + 1) // FILES]
                file = spark.createDataFrame(some, rows.schema).coalesce(1)
                file.write.mode("append").parquet(f"{folder}/{name}-files")

        kill_half_way(folder)
        before = sl.stream(f"{folder}/priced").read(spark).count()
        print(f"killed after {before} results")
        subprocess.run([sys.executable, __file__, folder], check=True)

        found = sl.stream(f"{folder}/priced").read(spark)
        orders.createOrReplaceTempView("orders")
        prices.createOrReplaceTempView("prices")
        expected = spark.sql(
            """SELECT orders.item, ordered_at AS time, ordered_at, first(pieces) AS pieces,
                      max(valid_from) AS valid_from, max_by(price, valid_from) AS price
               FROM orders JOIN prices ON orders.item = prices.item AND valid_from < ordered_at
               GROUP BY orders.item, ordered_at"""
        )
        shown = found.selectExpr("item", "ordered_at", "pieces", "price", "pieces * price AS total")
        shown.orderBy("ordered_at").show(3)
        same = found.exceptAll(expected).isEmpty() and expected.exceptAll(found).isEmpty()
        print(f"{found.count()} orders have their price; {'just' if same else 'NOT'} what SQL makes of it")
        spark.stop()


if __name__ == "__main__":
    work(sys.argv[1]) if len(sys.argv) > 1 else main()
