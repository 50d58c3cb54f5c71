"""The two nodes of Figure 3.10 as programs: `python -m benchmarks.papers.thesis.killed_programs NODE FOLDER RATE`.

An entry runs until there is a file `sent` in the folder, a filter until there is `enough`, or until it is killed.
NODE is `entry` or `filter` in Spark, or
`plain-entry` or `plain-filter` without.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from strandline.spark.query.query import Query

TUPLE_BYTES = 4096
FIRST, LAST = "first", "last"
"""The streams that the two nodes write, by their folders."""
FILES = "files"
"""The folder of the files that the entry point in Spark reads."""
SENT, ENOUGH = "sent", "enough"
READY = "ready"
"""How the name of the file begins that a node makes when it has started; its process number follows."""
_LOOK_S = 0.05
_APPEND_S = 0.1


def main(node: str, folder: Path, rate: int) -> None:
    """Runs a node. It ends, with all that it has started, when the experiment does."""
    threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()
    nodes = {"entry": _entry, "filter": _filter, "plain-entry": _plain_entry, "plain-filter": _plain_filter}
    nodes[node](folder, rate)


def _follow(parent: int) -> None:
    """Kills this process and all of its group once the process that started it is gone."""
    while os.getppid() == parent:
        SYSTEM_CLOCK.sleep(_LOOK_S)
    os.killpg(0, signal.SIGKILL)


def _entry(folder: Path, rate: int) -> None:
    """Persists files as they come. Their times are those of Spark's batches."""
    from pyspark.sql import functions as F

    import strandline as sl

    spark = sl.session("local[1]")
    schema = spark.read.parquet(str(folder / FILES)).schema
    items = spark.readStream.schema(schema).parquet(str(folder / FILES)).withColumn("item_time", F.current_timestamp())
    entry = sl.persist(items, str(folder / FIRST), key="item_id", time="item_time", partitions=1)
    _wait(folder / SENT, entry.start(spark, trigger="500 ms"))


def _filter(folder: Path, rate: int) -> None:
    """Takes in the first stream, at most the tuples of ten seconds a batch, and persists what it passes on."""
    import pyarrow.compute as pc

    import strandline as sl

    spark = sl.session("local[1]")
    (folder / f"{READY}-{os.getpid()}").touch()
    passed = sl.stream(str(folder / FIRST)).where(pc.field("item_id") >= 0)
    _wait(folder / ENOUGH, passed.start(spark, str(folder / LAST), trigger="200 ms", max_tuples_per_batch=10 * rate))


def _wait(end: Path, query: Query) -> None:
    while not end.exists():
        query.await_termination(_LOOK_S)
    query.stop()


def _plain_entry(folder: Path, rate: int) -> None:
    """Publishes tuples at this rate."""
    from benchmarks.papers.thesis.filtered import Tuples, created, publish
    from strandline.log.storage.local_storage import LocalStorage

    tuples, log, began = Tuples(TUPLE_BYTES), created(LocalStorage(folder / FIRST)), time.monotonic()
    while not (folder / SENT).exists():
        missing = int((time.monotonic() - began) * rate) - log.state.ends[0]
        if missing > 0:
            publish(log, tuples, missing)
        SYSTEM_CLOCK.sleep(_APPEND_S)


def _plain_filter(folder: Path, rate: int) -> None:
    """Takes in the first stream as it grows, a second's tuples a step at most."""
    from benchmarks.papers.thesis.filtered import Filter
    from strandline.log.storage.local_storage import LocalStorage
    from strandline.log.stream.log import Log

    items = Log.open(LocalStorage(folder / FIRST))
    (folder / f"{READY}-{os.getpid()}").touch()
    operator = Filter(items, LocalStorage(folder / LAST), folder / "cache")
    while not (folder / ENOUGH).exists():
        if not operator.step(rate):
            SYSTEM_CLOCK.sleep(_LOOK_S)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
