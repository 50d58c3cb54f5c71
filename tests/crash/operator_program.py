"""A program that runs an operator to the end of its input. The tests kill it.

`over` works on a stream that exists, a commit of it a batch. `fused` persists a folder of Parquet files, a file a
batch, and runs the operator on the same rows. Without `--fails`, an operator that nothing happens to runs over the same
input at the end: what it computes is what must be there.
"""

import argparse

import strandline as sl

WINDOWS = {
    "count": sl.count_window(10),
    "sliding count": sl.count_window(12, advance=5),
    "time": sl.time_window("3 s", advance="1 s"),
    "session": sl.session_window(gap="60 ms"),
}
AGGREGATES = {
    "n": sl.count_all(),
    "mean": sl.avg("item_price"),
    "total": sl.sum("item_price"),
    "spread": sl.stddev("item_price"),
    "latest": sl.max("item_time"),
}

arguments = argparse.ArgumentParser()
arguments.add_argument("how", choices=["over", "fused", "persist"])
arguments.add_argument("folder")
arguments.add_argument("items")
arguments.add_argument("output")
arguments.add_argument("--window", default="count", choices=[*WINDOWS])
arguments.add_argument("--policy", default="cec")
arguments.add_argument("--master", default="local[2]")
arguments.add_argument("--fails", action="store_true")

POLICIES = {
    "cec": sl.cec(extent="2x", replay=1_000),
    "tight": sl.cec(extent=60, replay=100),
    "instant": sl.instant("1 hour"),
}


def finish(query):
    query.await_termination()


def entry(spark, given):
    schema = "item_id long, item_price double, item_time timestamp"
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(given.folder)
    return sl.source(df, given.items, key="item_id", time="item_time", partitions=2, lateness="1 s")


def operator(input_, given):
    return input_.window(WINDOWS[given.window]).aggregate(**AGGREGATES)


if __name__ == "__main__":
    given = arguments.parse_args()
    spark = sl.session(given.master)
    if given.how == "persist":
        finish(entry(spark, given).start(spark, trigger="available-now"))
    else:
        input_ = sl.stream(given.items) if given.how == "over" else entry(spark, given)
        working = operator(input_, given).checkpoint(POLICIES[given.policy])
        options = {"max_tuples_per_batch": 1} if given.how == "over" else {}
        finish(working.start(spark, given.output, trigger="available-now", **options))
    if not given.fails:
        again = operator(sl.stream(given.items), given)
        finish(again.start(spark, f"{given.output}-expected", trigger="available-now"))
    spark.stop()
