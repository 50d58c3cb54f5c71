"""Persist Spark's `rate` source as a stream, then read it back: all of it, and the last second of it.

Run it again: it goes on where it stopped, and every number is still there once.
"""

import strandline as sl

spark = sl.session()
numbers = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
readings = numbers.selectExpr("value % 10 AS sensor", "value", "timestamp AS at")

query = sl.persist(readings, "streams/readings", key="sensor", time="at").start(trigger="500 ms")
while query.progress.get("batch", 0) < 5:  # a few batches, then enough
    query.await_termination(timeout=1)
query.stop()

stream = sl.stream("streams/readings")
print("each partition ends at", stream.offsets())
everything = stream.read(spark)
everything.selectExpr("count(*) AS tuples", "count(DISTINCT value) AS distinct", "max(value) + 1 AS sent").show()
last_second = stream.read(spark, since=stream.describe().time_max - 999_999)  # microseconds
print(last_second.count(), "tuples in the last second")
spark.stop()
