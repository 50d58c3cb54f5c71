"""A graph of three sources, a filter, a union, a join, an aggregate and a class; killed half-way, the result is exact.

    python examples/14_pipeline.py

Orders come from the web and from a shop, payments follow them. The pipeline runs in a process of its own, which dies by
SIGKILL as soon as its last element has published some batches. Started again, every element goes on where it stood.
What the last element has made in the end is what SQL makes of the same data in one go.

    web ── filter ─┐
                   ├─ union ── orders ─┐
    shop ──────────┘                   ├─ join ── paid ── aggregate ── turnover ── class ── totals
    payments ──────────────────────────┘
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import strandline as sl

ORDERS, CUSTOMERS, FILES = 6_000, 40, 12

SQL = """
WITH orders AS (SELECT * FROM web WHERE amount > 0 UNION ALL SELECT * FROM shop),
     paid AS (
       SELECT orders.customer, payments.at, paid FROM orders JOIN payments
       ON orders.customer = payments.customer AND number = pays
       AND payments.at BETWEEN orders.at AND orders.at + INTERVAL 10 MINUTES),
     turnover AS (
       SELECT customer, window.end AS window_end, sum(paid) AS sum_paid
       FROM (SELECT customer, paid, window(at, '15 minutes') AS window FROM paid) GROUP BY customer, window)
SELECT customer, window_end, sum(sum_paid) OVER (PARTITION BY customer ORDER BY window_end) AS total FROM turnover
"""


class Totals(sl.Operator):
    """All that each customer has paid so far."""

    output = "customer long, window_end timestamp, total long"
    time = "window_end"

    def __init__(self) -> None:
        self.totals: dict[int, int] = {}

    def process(self, tuples: pa.Table) -> pa.Table:
        found = []
        customers, amounts = tuples.column("customer").to_pylist(), tuples.column("sum_paid").to_pylist()
        for customer, amount in zip(customers, amounts, strict=True):
            self.totals[customer] = self.totals.get(customer, 0) + amount
            found.append(self.totals[customer])
        return tuples.select(["customer", "window_end"]).append_column("total", pa.array(found, pa.int64()))

    def get_checkpoint(self) -> dict:
        return {
            "customers": pa.array(self.totals.keys(), pa.int64()),
            "sums": pa.array(self.totals.values(), pa.int64()),
        }

    def restore_checkpoint(self, state: dict) -> None:
        self.totals = dict(zip(state["customers"].to_pylist(), state["sums"].to_pylist(), strict=True))


def pipeline(spark, folder: str) -> sl.Pipeline:
    """Describes all elements; nothing runs yet."""

    def source(name: str) -> sl.Entry:
        schema = spark.read.parquet(f"{folder}/{name}-files").schema
        files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/{name}-files")
        return sl.source(files, f"{folder}/{name}", key="customer", time="at", lateness="1 min")

    web, shop, payments = source("web"), source("shop"), source("payments")
    orders = sl.union(web.where(pc.field("amount") > 0), shop).into(f"{folder}/orders")
    paid = (
        orders.join(payments, within=("0 s", "10 min"))
        .where(lambda left, right: left.number == right.pays)
        .checkpoint(sl.cec(replay=1_000))
        .into(f"{folder}/paid")
    )
    turnover = paid.window(sl.time_window("15 min")).aggregate(sum_paid=sl.sum("paid")).into(f"{folder}/turnover")
    totals = turnover.apply(Totals()).checkpoint(sl.instant(every="1 s")).into(f"{folder}/totals")
    return sl.pipeline(totals)


def work(folder: str) -> None:
    """The program of a user."""
    spark = sl.session("local[2]")
    with pipeline(spark, folder).start(spark, trigger="100 ms") as run:
        run.process_all_available()
        run.finish()
    spark.stop()


def kill_half_way(folder: str) -> None:
    """Starts the program, and kills it and all that it has started when its last element has published some batches."""
    child = subprocess.Popen([sys.executable, __file__, folder], start_new_session=True)
    while len(list(Path(folder, "totals", "commits").glob("*.json"))) < 3 and child.poll() is None:
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def make_files(spark, folder: str) -> None:
    """Writes orders and payments as files, one after the other: Spark reads files in this order."""
    web = f"id AS number, id * 7 % {CUSTOMERS} AS customer, timestamp_seconds(id) AS at, id % 90 - 5 AS amount"
    shop = f"id + 100000 AS number, id * 11 % {CUSTOMERS} AS customer, timestamp_seconds(id) AS at, id % 50 AS amount"
    pays = f"timestamp_seconds(id + id * 7 % 900) AS at, id % 97 + 5 AS paid, id * 7 % {CUSTOMERS} AS customer"
    rows = {
        "web": spark.range(ORDERS).selectExpr(*web.split(", ")),
        "shop": spark.range(ORDERS).selectExpr(*shop.split(", ")),
        "payments": spark.range(ORDERS).selectExpr("id AS pays", *pays.split(", ")),
    }
    for name, df in rows.items():
        ordered = df.orderBy("at").collect()
        for first in range(0, ORDERS, ORDERS // FILES):
            part = spark.createDataFrame(ordered[first : first + ORDERS // FILES], df.schema)
            part.coalesce(1).write.mode("append").parquet(f"{folder}/{name}-files")
        df.createOrReplaceTempView(name)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spark = sl.session("local[2]")
        make_files(spark, folder)
        print(pipeline(spark, folder).graph())

        kill_half_way(folder)
        before = {name: sl.stream(f"{folder}/{name}").read(spark).count() for name in ("orders", "paid", "totals")}
        print("killed after", ", ".join(f"{many:,} {name}" for name, many in before.items()))
        subprocess.run([sys.executable, __file__, folder], check=True)

        found, expected = sl.stream(f"{folder}/totals").read(spark), spark.sql(SQL)
        found.orderBy("window_end", "customer").show(3)
        same = found.exceptAll(expected).isEmpty() and expected.exceptAll(found).isEmpty()
        print(f"{found.count()} totals; {'just' if same else 'NOT'} what SQL makes of it")
        spark.stop()


if __name__ == "__main__":
    work(sys.argv[1]) if len(sys.argv) > 1 else main()
