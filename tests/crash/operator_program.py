"""A program that runs an operator to the end of its input. The tests kill it.

`over` works on a stream that exists, a commit of it a batch. `fused` persists a folder of Parquet files, a file a
batch, and runs the operator on the same rows. Without `--dies`, an operator that nothing happens to runs over the same
input at the end: what it computes is what must be there.
"""

import argparse
import os
import shutil

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
arguments.add_argument("how", choices=["over", "fused"])
arguments.add_argument("folder")
arguments.add_argument("items")
arguments.add_argument("output")
arguments.add_argument("--window", default="count", choices=[*WINDOWS])
arguments.add_argument("--policy", default="cec")
arguments.add_argument("--master", default="local[2]")
arguments.add_argument("--tasks-die", nargs="*", default=[], help="failpoints; a query each that a task's death ends")
arguments.add_argument("--dies", action="store_true", help="it is meant to die before it comes to the comparison")

POLICIES = {
    "cec": sl.cec(extent="2x", replay=1_000),
    "tight": sl.cec(extent=60, replay=100),
    "instant": sl.instant("1 hour"),
}


def finish(query):
    query.await_termination()


def let_tasks_die(spark, start, failpoints):
    """Starts the query as often as there are failpoints; each time a worker dies there, and the query with it."""
    for failpoint in failpoints:
        if failpoint == "during-recovery":
            shutil.rmtree(os.environ["STRANDLINE_STATE_DIR"])
        spark.sparkContext.environment["STRANDLINE_FAILPOINT"] = failpoint  # of the workers, not of this process
        try:
            finish(start())
        except Exception as problem:
            print(f"a task died at {failpoint}: {type(problem).__name__}", flush=True)
        else:
            raise SystemExit(f"no task came by {failpoint}")
    spark.sparkContext.environment.pop("STRANDLINE_FAILPOINT", None)


def entry(spark, given):
    schema = "item_id long, item_price double, item_time timestamp"
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(given.folder)
    return sl.source(df, given.items, key="item_id", time="item_time", partitions=2, lateness="1 s")


def operator(input_, given):
    return input_.window(WINDOWS[given.window]).aggregate(**AGGREGATES)


if __name__ == "__main__":
    given = arguments.parse_args()
    spark = sl.session(given.master)
    input_ = sl.stream(given.items) if given.how == "over" else entry(spark, given)
    working = operator(input_, given).checkpoint(POLICIES[given.policy])
    options = {"max_tuples_per_batch": 1} if given.how == "over" else {}

    def start():
        return working.start(spark, given.output, trigger="available-now", **options)

    let_tasks_die(spark, start, given.tasks_die)
    finish(start())
    if not given.dies:
        again = operator(sl.stream(given.items), given)
        finish(again.start(spark, f"{given.output}-expected", trigger="available-now"))
    spark.stop()
