"""The paper's example: the average price of every ten items of an id, the state of the windows kept in the output."""

import shutil
import tempfile

import strandline as sl

folder = tempfile.mkdtemp(prefix="strandline-example-")
spark = sl.session()
numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20_000).load()
items = numbers.selectExpr("value * 7919 % 1003 AS item_id", "value % 97 AS item_price", "timestamp AS item_time")

average = (
    sl.source(items, f"{folder}/items", key="item_id", time="item_time")
    .window(sl.count_window(10))
    .aggregate(average=sl.avg("item_price"), n=sl.count_all())
    .checkpoint(sl.cec(extent="2x", replay=500_000))
)
query = average.start(spark, f"{folder}/average")
while query.progress.get("batch", 0) < 5:
    query.await_termination(timeout=0.5)
query.stop()

stream = sl.stream(f"{folder}/average")
stream.read(spark).orderBy("window_end", "item_id").show(3)
for partition in stream.recovery():
    print("a recovery now would read", partition["extent"], "tuples and replay", partition["replay"])
print(stream.open_windows().num_rows, "windows are open, for example", stream.open_windows().slice(0, 1).to_pylist()[0])
spark.stop()
shutil.rmtree(folder)
