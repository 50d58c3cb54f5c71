"""A program that runs operators over two inputs to the end of these. The tests kill it.

`sources` makes two streams of two folders of Parquet files, a file a batch, and joins them while they come in. `over`
makes the streams first, if they are not there, then works on them, a few tuples a batch. Without `--dies`, the same
operators run once more at the end, over the same streams and with nothing happening to them: what they make is what
must be there.
"""

import argparse
import math
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import strandline as sl

POLICIES = {
    "cec": sl.cec(extent="2x", replay=1_000),
    "tight": sl.cec(extent=200, replay=40),
    "instant": sl.instant("1 hour"),
    "often": sl.instant("1 s"),
}
SCHEMA = "k long, at timestamp, v double, more struct<name: string, tags: array<int>>"

arguments = argparse.ArgumentParser()
arguments.add_argument("how", choices=["sources", "over"])
arguments.add_argument("root", help="with the folders left-files and right-files")
arguments.add_argument("operators", nargs="+")
arguments.add_argument("--policy", default="cec", choices=[*POLICIES])
arguments.add_argument("--master", default="local[2]")
arguments.add_argument("--tasks-die", nargs="*", default=[], metavar="FAILPOINT:OPERATOR,…", help="before all that")
arguments.add_argument("--dies", action="store_true", help="it is meant to die before it comes to the comparison")


def last_step(state, out):
    out[0].n = -state.n
    out[0].before = state.value
    out[0].name = "gone"
    return sl.EMIT if state.n % 2 else 0


@sl.keyed(
    state="n long, value double",
    output="n long, before double, name string",
    expire="900 ms",
    on_expire=last_step,
    emit=2,
)
def steps(state, row, out):
    """How much a value goes up or down; two results now and then, keys that close by themselves and that expire."""
    state.n += 1
    if row.is_null("v"):
        state.set_null("value")
        return 0
    out[0].n = state.n
    if state.is_null("value"):
        out[0].set_null("before")
    else:
        out[0].before = row.v - state.value
    out[1].n = 1000 * state.n
    out[1].before = math.sqrt(row.v)
    out[1].name = "root"
    state.value = row.v
    if row.v > 0.95:
        return sl.EMIT + sl.CLOSE
    return 2 * sl.EMIT if state.n % 5 == 0 else sl.EMIT


class Smoothed(sl.Operator):
    """A weight for all keys of a partition, in the order of its tuples."""

    output = "k long, at timestamp, weight double, n long"
    time = "at"

    def __init__(self, rate):
        self.rate = rate
        self.weights = np.zeros(7)
        self.n = 0

    def process(self, tuples):
        found = np.empty(tuples.num_rows)
        for i, (k, v) in enumerate(zip(*(tuples.column(c).to_pylist() for c in ("k", "v")), strict=True)):
            self.weights[(k or 0) % 7] += self.rate * ((v or 0.0) - self.weights.sum())
            found[i] = self.weights.sum()
        numbers = np.arange(self.n, self.n + len(found))
        self.n += len(found)
        return pa.table({"k": tuples.column("k"), "at": tuples.column("at"), "weight": found, "n": numbers})

    def get_checkpoint(self):
        return {"weights": self.weights, "n": self.n}

    def restore_checkpoint(self, state):
        self.weights, self.n = state["weights"], state["n"]


def built(name, left, right):
    if name == "smoothed":
        return sl.union(left, right).apply(Smoothed(rate=0.3))
    if name == "full":
        return left.join(right, within=("-300 ms", "1 s"), how="full").where(lambda left, right: left.v <= right.v)
    if name == "counts":
        return left.join(right, left=sl.count_window(4), right=sl.count_window(2))
    if name == "keyed":
        return left.apply(steps)
    if name == "keyed-union":
        return sl.union(left, right).apply(steps)
    if name == "barrier":
        return sl.barrier(a=left, b=right)
    if name == "merged":
        return sl.union(left, right.where(pc.field("v") > 0.2)).select("k", "at", "more", twice=pc.field("v") * 2.0)
    return (
        sl.union(left, right)
        .window(sl.time_window("2 s", advance="500 ms"))
        .aggregate(n=sl.count_all(), mean=sl.avg("v"), first=sl.first("v"))
    )


def source(spark, root, name):
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{root}/{name}-files")
    return sl.source(files, f"{root}/{name}", key="k", time="at", partitions=2, lateness="500 ms")


def run(spark, given, name, output, inputs, **options):
    operator = built(name, *inputs)
    if name != "merged":  # which has no state to save
        operator = operator.checkpoint(POLICIES[given.policy])
    if given.how == "sources" and options:
        with operator.start(spark, output, trigger="500 ms", **options) as query:  # beside its sources
            query.process_all_available()
            query.finish()
    else:
        operator.start(spark, output, trigger="available-now", **options).await_termination()


def streams(root):
    return sl.stream(f"{root}/left"), sl.stream(f"{root}/right")


def let_tasks_die(spark, given):
    """Starts queries that end because one of their tasks dies, all of them, and nothing of them is published."""
    for order in given.tasks_die:
        failpoint, names = order.split(":")
        spark.sparkContext.environment["STRANDLINE_FAILPOINT"] = failpoint  # of the workers, not of this process
        for name in names.split(","):
            if failpoint == "during-recovery":
                shutil.rmtree(os.environ["STRANDLINE_STATE_DIR"], ignore_errors=True)
            try:
                run(spark, given, name, f"{given.root}/{name}", streams(given.root), max_tuples_per_batch=1)
            except Exception as problem:
                if "Python worker exited unexpectedly" not in str(problem):
                    raise
                print(f"{name}: a task died at {failpoint}", flush=True)
            else:
                raise SystemExit(f"{name}: no task came by {failpoint}")
    spark.sparkContext.environment.pop("STRANDLINE_FAILPOINT", None)


if __name__ == "__main__":
    given = arguments.parse_args()
    spark = sl.session(given.master)
    if given.how == "over" and not os.path.exists(f"{given.root}/left"):
        failpoint = os.environ.pop("STRANDLINE_FAILPOINT", "")  # the inputs are to come through this
        for side in ("left", "right"):
            source(spark, given.root, side).start(spark, trigger="available-now", final=True).await_termination()
        os.environ["STRANDLINE_FAILPOINT"] = failpoint
    let_tasks_die(spark, given)
    for name in given.operators:
        inputs = (
            streams(given.root) if given.how == "over" else [source(spark, given.root, s) for s in ("left", "right")]
        )
        run(spark, given, name, f"{given.root}/{name}", inputs, max_tuples_per_batch=1)
    if not given.dies:
        for name in given.operators:
            run(spark, given, name, f"{given.root}/{name}-expected", streams(given.root))
    spark.stop()
