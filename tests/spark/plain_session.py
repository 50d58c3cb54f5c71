"""A program with a Spark of its own, all settings as Spark has them; prints what it saw as one line of JSON."""

import json
import shutil
import sys
import time
import warnings
from pathlib import Path

from pyspark.sql import SparkSession

import strandline as sl

folder = Path(sys.argv[1])
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.session.timeZone", "America/New_York").getOrCreate()
seen = {"checkpoints": [], "exceptions": []}


def settings():
    level = spark.sparkContext._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel()
    return {**spark.conf.getAll, "log level": level.toString(), "except hook": repr(sys.excepthook)}


before = settings()
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    seen["same"] = sl.session("local[7]", spark_driver_memory="9g") is spark
seen["said"] = [str(w.message) for w in said]
seen["changed"] = sorted(dict(settings().items() - before.items()))
spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
sl.register(spark)


def numbers():
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).option("startTimestamp", 0).load()
    return source.selectExpr("value % 7 as k", "value as v", "timestamp as at")


def run(batches):
    query = sl.persist(numbers(), str(folder / "s"), key="k", time="at", lateness="1 minute").start(trigger="0 s")
    first = None
    while query.is_active and (first is None or query.progress["batch"] < first + batches):
        first = query.progress.get("batch") if first is None else first
        time.sleep(0.05)
    query.stop()
    seen["exceptions"].append(repr(query.exception()))
    seen["checkpoints"].append(query.progress.get("checkpoint"))


def last_done():
    names = (p.name for p in (folder / "s" / "spark_checkpoint" / "commits").iterdir())
    return max(int(name) for name in names if name.isdigit())


run(2)
seen["crc files"] = len(list((folder / "s" / "spark_checkpoint").rglob(".*.crc")))
shutil.rmtree(folder / "s" / "spark_checkpoint")
run(1)
torn = folder / "s" / "spark_checkpoint" / "offsets" / str(last_done())
torn.write_bytes(torn.read_bytes()[:30])
run(1)

stream = sl.stream(str(folder / "s"))
seen["values"] = sorted(row["v"] for row in stream.read(spark).collect())
seen["tuples"] = sum(stream.offsets().values())
seen["first seconds"] = stream.read(spark, since="1969-12-31 19:00", until="1969-12-31 19:00:02").count()
seen["filtered"] = spark.read.format("strandline").load(str(folder / "s")).where("at < '1969-12-31 19:00:02'").count()
seen["forbidden"] = spark.conf.get("spark.sql.python.filterPushdown.enabled")
seen["through python"] = spark.read.format("strandline").load(str(folder / "s")).count()
copied = sl.persist(stream.read_stream(spark, max_tuples_per_batch=50), str(folder / "copy"), key="v", time="at")
copied.start(trigger="available-now", blocks="arrow").await_termination()
copy = sl.stream(str(folder / "copy")).read(spark).selectExpr("v", "unix_millis(at) as ms")
seen["copied"] = sorted(row["v"] for row in copy.collect())
seen["instants"] = sorted({row["ms"] // 1000 - row["v"] // 20 for row in copy.collect()})
spark.stop()
print(json.dumps(seen))
