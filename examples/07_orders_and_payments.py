"""Orders and the payments that follow them within ten minutes, joined; killed half-way, and the result is the same.

    python examples/07_orders_and_payments.py

The join runs in a process of its own, which dies by SIGKILL as soon as it has published something. Started again, it
goes on from its streams, and what it has made in the end is what SQL makes of the same data in one go.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import strandline as sl

ORDERS, FILES = 4_000, 8


def work(folder: str) -> None:
    """What a user's program is: two sources, a join, a query."""
    spark = sl.session("local[2]")

    def source(name: str, at: str) -> sl.Entry:
        schema = spark.read.parquet(f"{folder}/{name}-files").schema
        files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/{name}-files")
        return sl.source(files, f"{folder}/{name}", key="order_id", time=at, partitions=2, lateness="1 min")

    orders, payments = source("orders", "ordered_at"), source("payments", "paid_at")
    paid = (
        orders.join(payments, within=("0 s", "10 min"))
        .where(lambda left, right: right.paid >= left.amount)
        .checkpoint(sl.cec(replay=1_000))
    )
    query = paid.start(spark, f"{folder}/paid", trigger="available-now", final=True, max_tuples_per_batch=1_000)
    query.await_termination()
    spark.stop()


def kill_half_way(folder: str) -> None:
    """Starts the program and kills it, and all that it has started, when some results are published."""
    child = subprocess.Popen([sys.executable, __file__, folder], start_new_session=True)
    while len(list(Path(folder, "paid", "commits").glob("*.json"))) < 2 and child.poll() is None:
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spark = sl.session("local[2]")
        orders = spark.range(ORDERS).selectExpr(
            "id AS order_id", "timestamp_seconds(id DIV 2) AS ordered_at", "id % 90 + 10 AS amount"
        )
        payments = spark.range(ORDERS).selectExpr(
            "id AS order_id", "timestamp_seconds(id DIV 2 + id * 7 % 900) AS paid_at", "id % 97 + 5 AS paid"
        )
        for name, rows, at in (("orders", orders, "ordered_at"), ("payments", payments, "paid_at")):
            ordered = rows.orderBy(at).collect()
            for first in range(0, ORDERS, ORDERS // FILES):  # one after the other: Spark reads files in this order
                part = spark.createDataFrame(ordered[first : first + ORDERS // FILES], rows.schema)
                part.coalesce(1).write.mode("append").parquet(f"{folder}/{name}-files")

        kill_half_way(folder)
        before = sl.stream(f"{folder}/paid").read(spark).count()
        print(f"killed after {before} results")
        subprocess.run([sys.executable, __file__, folder], check=True)

        found = sl.stream(f"{folder}/paid").read(spark)
        orders.createOrReplaceTempView("orders")
        payments.createOrReplaceTempView("payments")
        expected = spark.sql(
            """SELECT orders.order_id, paid_at AS time, ordered_at, amount, paid_at, paid
               FROM orders JOIN payments ON orders.order_id = payments.order_id AND paid >= amount
               AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 10 MINUTES"""
        )
        found.orderBy("time", "order_id").show(3)
        same = found.exceptAll(expected).isEmpty() and expected.exceptAll(found).isEmpty()
        print(f"{found.count()} orders were paid in time; {'just' if same else 'NOT'} what SQL makes of it")
        spark.stop()


if __name__ == "__main__":
    work(sys.argv[1]) if len(sys.argv) > 1 else main()
