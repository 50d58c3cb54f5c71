"""A reader starts in the past of a stream, catches up while the writer goes on, and misses or doubles nothing."""

import shutil
import tempfile

import strandline as sl

folder = tempfile.mkdtemp(prefix="strandline-example-")
spark = sl.session()
numbers = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
writer = sl.persist(numbers, f"{folder}/numbers", key="value", time="timestamp").start(trigger="200 ms")
while writer.progress.get("batch", 0) < 5:  # some past, before anybody reads
    writer.await_termination(timeout=0.5)

stream = sl.stream(f"{folder}/numbers")
reader = (
    stream.read_stream(spark, start="earliest", max_tuples_per_batch=2_000)
    .writeStream.format("parquet")
    .option("path", f"{folder}/copy")
    .option("checkpointLocation", f"{folder}/copy_checkpoint")
    .start()
)
while writer.progress["batch"] < 15:  # both at work
    writer.await_termination(timeout=0.5)
writer.stop()
reader.processAllAvailable()
reader.stop()

published = sum(stream.offsets().values())
copy = spark.read.parquet(f"{folder}/copy").selectExpr("count(*)", "count(DISTINCT value)").first()
print(f"published {published}, read {copy[0]}, distinct {copy[1]}")
spark.stop()
shutil.rmtree(folder)
