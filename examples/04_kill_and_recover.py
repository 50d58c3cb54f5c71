"""Kill the query at random moments, again and again, and compare its results with those of an undisturbed run.

`python examples/04_kill_and_recover.py 20` kills it twenty times; without a number it is three times.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import strandline as sl

ITEMS_A_LIFE = 100_000


def averages(stream):
    """The operator that gets killed."""
    windows = stream.window(sl.count_window(10))
    averages = windows.aggregate(average=sl.avg("item_price"), n=sl.count_all())
    return averages.checkpoint(sl.cec(extent="2x", replay=50_000))


def child(folder, items_in_all):
    """A process that lives until it is killed, or until every item is averaged."""
    spark = sl.session()
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10_000).load()
    items = numbers.where(f"value < {items_in_all}").selectExpr(
        "value * 7919 % 5000 AS item_id", "value % 97 / 7 AS item_price", "timestamp AS item_time"
    )
    query = averages(sl.source(items, f"{folder}/items", key="item_id", time="item_time")).start(
        spark, f"{folder}/average"
    )
    while sum(query.progress.get("offsets", {}).values()) < items_in_all:
        query.await_termination(timeout=0.2)
    query.stop()


def parent(kills):
    """Kills the child at random moments, lets it finish, compares."""
    folder = tempfile.mkdtemp(prefix="strandline-example-")
    moments = random.Random(kills)
    items = ITEMS_A_LIFE * (kills + 1)
    for kill in range(kills + 1):
        # Every life has a state folder of its own, as if it were another machine: only the streams survive.
        environment = {**os.environ, "STRANDLINE_STATE_DIR": f"{folder}/state-{kill}"}
        process = subprocess.Popen(
            [sys.executable, __file__, "child", folder, str(items)],
            env=environment,
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        if kill < kills:
            while not os.path.exists(f"{folder}/state-{kill}") and process.poll() is None:
                time.sleep(0.05)  # until the first batch of this life has left its state
            time.sleep(3 * moments.random())
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        done = sum(p["input"] for p in sl.stream(f"{folder}/average").recovery())
        print(f"{'killed' if process.returncode else 'ended'}: {done:,} of {items:,} items averaged", flush=True)

    spark = sl.session()
    query = averages(sl.stream(f"{folder}/items")).start(spark, f"{folder}/undisturbed", trigger="available-now")
    query.await_termination()
    ours, theirs = sl.stream(f"{folder}/average"), sl.stream(f"{folder}/undisturbed")
    same = all(results(ours, p) == results(theirs, p) for p in range(ours.partitions))
    print(ours.read(spark).count(), "results,", "identical, in the same order" if same else "DIFFERENT")
    spark.stop()
    shutil.rmtree(folder)
    sys.exit(not same)


def results(stream, partition):
    """The results of a partition, in order, without footprints and offsets."""
    rows = (row for row in stream.log(partition=partition) if row["_kind"] == 0)
    return [(row["item_id"], row["window_start"], row["window_end"], row["average"], row["n"]) for row in rows]


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2], int(sys.argv[3]))
    else:
        parent(int(sys.argv[1]) if sys.argv[1:] else 3)
