"""Three operators over one input, each with a policy of its own, in a program that is killed half-way.

    python examples/13_policies_side_by_side.py

All of them count and average the same items by the same rule. The program dies by SIGKILL, and what its tasks had left
on the machine is gone, too. Started again, the operator under `cec` gives what it would have given without the kill.
The others do not: under `partial` the windows that were open lack what came since the last save, under `none` they are
lost. Each says by how much. A window of twenty items begins where the one before it ended. So one lost item shifts all
later windows of its key, and more results differ than items were lost. (With a folder as its argument, the example
leaves its streams there.)
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import strandline as sl

ITEMS, KEYS = 400_000, 3_000
POLICIES = {"cec": sl.cec(), "partial": sl.partial(every="2 s"), "none": sl.none()}


def averages(items):
    """What all of them compute: a result for every twenty items of a key."""
    return items.window(sl.count_window(20)).aggregate(average=sl.avg("price"), n=sl.count_all())


def work(folder: str) -> None:
    """What a user's program is: one input, several operators, each annotated with what its state is worth."""
    spark = sl.session("local[2]")
    items = sl.stream(f"{folder}/items")
    queries = [
        averages(items)
        .checkpoint(policy)
        .start(spark, f"{folder}/{name}", trigger="available-now", max_tuples_per_batch=5_000)
        for name, policy in POLICIES.items()
    ]
    for query in queries:
        query.await_termination()
    spark.stop()


def live(folder: str, number: int, *, is_killed: bool) -> None:
    """Runs the program with a state folder of its own, to its end or to its death, when there is something to lose."""
    environment = {**os.environ, "STRANDLINE_STATE_DIR": f"{folder}/state-{number}", "PYTHONWARNINGS": "ignore"}
    child = subprocess.Popen([sys.executable, __file__, "work", folder], env=environment, start_new_session=True)
    while is_killed and child.poll() is None:
        time.sleep(0.02)
        if all(Path(folder, name, "commits", f"{8:020d}.json").exists() for name in POLICIES) and is_at_risk(folder):
            os.killpg(child.pid, signal.SIGKILL)
            break
    if child.wait() not in (0, -signal.SIGKILL):
        sys.exit("the program has failed")


def is_at_risk(folder: str) -> bool:
    """Whether `partial` has saved more than its first batch, and taken in something since."""
    standings = sl.stream(f"{folder}/partial").recovery()
    return all(s["oldest_input"] > 5_000 and s["replay"] for s in standings)


def results(folder: str, name: str) -> list[tuple]:
    """Key, first and last item, average, of every result."""
    table = sl.stream(f"{folder}/{name}").to_arrow()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def main(folder: str) -> None:
    spark = sl.session("local[2]")
    items = spark.range(ITEMS).selectExpr(
        f"id * 7919 % {KEYS} AS item", "timestamp_millis(id) AS at", "id % 97 / 7 AS price"
    )
    items.coalesce(1).write.parquet(f"{folder}/files")
    files = spark.readStream.schema(items.schema).parquet(f"{folder}/files")
    source = sl.source(files, f"{folder}/items", key="item", time="at", partitions=2)
    source.start(spark, trigger="available-now", final=True).await_termination()

    live(folder, number=1, is_killed=True)
    live(folder, number=2, is_killed=False)  # goes on to the end of the input
    reference = averages(sl.stream(f"{folder}/items"))
    reference.start(spark, f"{folder}/undisturbed", trigger="available-now").await_termination()

    expected = set(results(folder, "undisturbed"))
    print(f"{len(expected):,} results without a kill")
    for name in POLICIES:
        found = results(folder, name)
        losses = sl.stream(f"{folder}/{name}").losses().to_pylist()
        tuples, windows = (sum(loss[what] for loss in losses) for what in ("tuples", "windows"))
        others = expected - set(found)
        print(f"{name}: {len(found):,} results, {len(others):,} of those above missing or different")
        print(f"    on record as lost: {tuples:,} tuples, {windows:,} windows")
        if others:
            keys = len({key for key, *_ in others})
            print(f"    which shifts all later windows of their keys: {keys:,} keys, {len(others):,} windows")
        for loss in losses:
            print(f"    partition {loss['partition']}: input {loss['from']} to {loss['until']}, {loss['reason']}")
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2])
    elif len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
