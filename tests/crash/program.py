"""A program that persists a folder of Parquet files, a file a batch, and ends. The tests kill it.

With `--numbers` it persists the numbers from 0 on, in batches as they come, until so many are there.
"""

import argparse
import time

import strandline as sl
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import compact

arguments = argparse.ArgumentParser()
arguments.add_argument("folder")
arguments.add_argument("stream")
arguments.add_argument("--master", default="local[2]")
arguments.add_argument("--blocks", default=None)
arguments.add_argument("--compact", action="store_true")
arguments.add_argument("--numbers", type=int, default=0)
arguments.add_argument("--final", action="store_true", help="finishes the stream")
arguments.add_argument("--heartbeat", default=None, help="runs on, with a heartbeat, until it is killed")
arguments.add_argument("--setting", action="append", default=[])


def persist_files(spark, given):
    schema = "item_id long, item_price double, item_time timestamp"
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(given.folder)
    options = {"lateness": "1 s", "heartbeat": given.heartbeat}
    entry = sl.persist(df, given.stream, key="item_id", time="item_time", partitions=2, **options)
    trigger = None if given.heartbeat else "available-now"
    entry.start(spark, trigger=trigger, blocks=given.blocks, final=given.final).await_termination()


def persist_numbers(spark, given):
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).option("startTimestamp", 0).load()
    df = source.selectExpr("value % 13 as k", "value as v", "timestamp as at")
    query = sl.persist(df, given.stream, key="k", time="at").start(spark, blocks=given.blocks)
    while query.is_active and sum(query.progress.get("offsets", {}).values()) < given.numbers:
        time.sleep(0.05)
    query.stop()
    query.await_termination()


if __name__ == "__main__":
    given = arguments.parse_args()
    settings = dict(setting.split("=", 1) for setting in given.setting)
    spark = sl.session(given.master, **settings)
    (persist_numbers if given.numbers else persist_files)(spark, given)
    if given.compact:
        # The smallest run of blocks, so that a few batches are enough.
        compact(Log.open(LocalStorage(given.stream)), blocks_min=2)
    spark.stop()
