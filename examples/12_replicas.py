"""Two replicas of one operator, and a reader of whichever is there: the one that is read dies by SIGKILL.

    python examples/12_replicas.py

The same operator runs in two processes, over the same input, each with a stream of its own. Their results are the same
in the same order, so whoever has read n of them from one goes on behind the n-th of the other. The reader is told that
one is dead by nobody: it sees that the other has gone ahead for longer than its patience, and changes over.

Every line of the table is what the reader got at once, and from which replica. In the end its results are compared with
those of a run in which nothing was killed.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pyarrow as pa

import strandline as sl

REPLICAS = ("one", "other")
BEFORE_S, AFTER_S = 4, 4
"""How long the reader reads before one is killed, and after it has changed over."""


def counts(folder: str) -> sl.Aggregation:
    """The operator: how many items of each kind there were in every second, and what they cost."""
    items = sl.stream(f"{folder}/items")
    return items.window(sl.time_window("1 s")).aggregate(n=sl.count_all(), cost=sl.avg("price"))


def replica(folder: str, name: str) -> None:
    """What runs in a process of its own, until it is killed."""
    spark = sl.session("local[1]")
    counts(folder).start(spark, f"{folder}/{name}", trigger="200 ms").await_termination()


class Reader:
    """Follows the replicas, prints what it gets, and knows which of them it is reading."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.names = {sl.stream(f"{folder}/{name}").describe().id: name for name in REPLICAS}
        self.current = ""
        self.tables: list[pa.Table] = []
        self.began_s = self.killed_s = time.monotonic()

    def run(self) -> None:
        """Returns when the input is finished and everything was read."""
        print(f"{'clock':>7}  {'replica':<8} {'results':>7} {'in all':>7}  until")
        for table, place in both(self.folder).follow(every="100 ms"):  # the place: to go on from, for whoever keeps it
            name = self.names[place["stream"]]
            if self.current not in ("", name):
                self.say(f"changed over to {name}, {time.monotonic() - self.killed_s:.1f} s after the kill")
            self.current = name
            self.tables.append(table)
            until = table.column("window_end")[-1].as_py()
            self.say(f"{name:<8} {len(table):>7} {sum(map(len, self.tables)):>7}  {until:%H:%M:%S}")

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self.began_s:5.1f} s  {what}", flush=True)


def fate(reader: Reader, processes: dict[str, subprocess.Popen], items: sl.Query) -> None:
    """Kills the replica that is read; when the reader has another, finishes the input."""
    wait(lambda: reader.current)
    time.sleep(BEFORE_S)
    victim = reader.current
    reader.say(f"SIGKILL to {victim}, which is read")
    reader.killed_s = time.monotonic()
    os.killpg(processes[victim].pid, signal.SIGKILL)
    wait(lambda: reader.current != victim)
    time.sleep(AFTER_S)
    items.finish()  # all windows close, and the reader comes to an end


def wait(condition, seconds: float = 180) -> None:
    """Returns when it is so."""
    give_up_s = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up_s:
            raise TimeoutError("that has taken too long")
        time.sleep(0.1)


def both(folder: str) -> sl.Replicas:
    """The two streams as one."""
    return sl.replicas(*(f"{folder}/{name}" for name in REPLICAS), patience="1 s")


def have_results(folder: str) -> bool:
    """Whether both have begun."""
    try:
        return all(one.results for one in both(folder).describe())
    except sl.StorageError:  # neither is there
        return False


def main(folder: str) -> None:
    spark = sl.session("local[2]")
    ticks = spark.readStream.format("rate").options(rowsPerSecond=100, numPartitions=1).load()
    sold = ticks.selectExpr("value % 5 AS kind", "timestamp AS at", "value % 97 / 7 AS price")
    entry = sl.persist(sold, f"{folder}/items", key="kind", time="at", partitions=1, lateness="0 s")
    items = entry.start(trigger="500 ms")
    wait(lambda: items.progress.get("offsets"))

    command = [sys.executable, __file__, folder]
    processes = {name: subprocess.Popen([*command, name], start_new_session=True) for name in REPLICAS}
    try:
        wait(lambda: have_results(folder))
        reader = Reader(folder)
        killer = threading.Thread(target=fate, args=(reader, processes, items), daemon=True)
        killer.start()
        reader.run()
        killer.join()
    finally:
        for process in processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    counts(folder).start(spark, f"{folder}/undisturbed", trigger="available-now").await_termination()
    right = sl.stream(f"{folder}/undisturbed").to_arrow()
    found = pa.concat_tables(reader.tables).select(right.column_names)
    verdict = "identical to" if found.equals(right) else "DIFFERENT from"
    print(f"\n{len(found)} results, {verdict} those of a run without a kill, in the same order")
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        replica(*sys.argv[1:])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
