"""Call records: the average talk time of each number over one hour, every five minutes, from calls out of order."""

import shutil
import tempfile

import strandline as sl

folder = tempfile.mkdtemp(prefix="strandline-example-")
spark = sl.session()
numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5_000).load()
calls = numbers.selectExpr(
    "concat('+30 210 ', 5000000 + value * 31 % 40) AS caller",  # 40 phones
    "10 + value * 17 % 600 AS talk_seconds",
    # A call a second, some of them up to a minute late.
    "timestamp_seconds(1767225600 + value - value * 13 % 60) AS called_at",
)

talk = (
    # These calls are made up, a second each however fast they come: no clock says whether they are ahead.
    sl.source(calls, f"{folder}/calls", key="caller", time="called_at", lateness="2 min", max_ahead=None)
    .window(sl.time_window("1 hour", advance="5 min"))
    .aggregate(average=sl.avg("talk_seconds"), longest=sl.max("talk_seconds"), calls=sl.count_all())
    .checkpoint(sl.cec(recover_within="2 s"))
)
query = talk.start(spark, f"{folder}/talk")
while query.progress.get("batch", 0) < 4:
    query.await_termination(timeout=0.5)
query.stop()

results = sl.stream(f"{folder}/talk").read(spark)
results.orderBy("window_end", "caller").show(5, truncate=False)
print(
    results.count(),
    "results,",
    query.progress["open_windows"],
    "windows open,",
    query.progress["late_total"],
    "calls too late",
)
spark.stop()
shutil.rmtree(folder)
