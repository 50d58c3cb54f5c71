"""A program that persists a folder of Parquet files, a file a batch, and ends. The tests kill it."""

import argparse

import strandline as sl

arguments = argparse.ArgumentParser()
arguments.add_argument("folder")
arguments.add_argument("stream")
arguments.add_argument("--master", default="local[2]")
arguments.add_argument("--blocks", default=None)
arguments.add_argument("--compact", action="store_true")
arguments.add_argument("--setting", action="append", default=[])

if __name__ == "__main__":
    given = arguments.parse_args()
    settings = dict(setting.split("=", 1) for setting in given.setting)
    spark = sl.session(given.master, **settings)
    schema = "item_id long, item_price double, item_time timestamp"
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(given.folder)
    entry = sl.persist(df, given.stream, key="item_id", time="item_time", partitions=2, lateness="1 s")
    entry.start(spark, trigger="available-now", blocks=given.blocks).await_termination()
    if given.compact:
        # The smallest run of blocks, so that a few batches are enough.
        from strandline.log.compaction import compact
        from strandline.log.local_storage import LocalStorage
        from strandline.log.log import Log

        compact(Log.open(LocalStorage(given.stream)), blocks_min=2)
    spark.stop()
