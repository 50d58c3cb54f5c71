"""Three streams as one: the mean of every ten seconds, whichever of the sensors was ahead.

    python examples/08_three_sensors.py

Each sensor's readings are persisted in a stream of their own. `sl.union` takes them in as one sequence, in the order of
time: a reading waits in its stream until nothing before it can come from the others. So the results are the same
however the three got along, and whatever was killed on the way.
"""

import tempfile

import strandline as sl

SENSORS = ("north", "east", "south")
SECONDS = 60

spark = sl.session("local[2]")
with tempfile.TemporaryDirectory() as folder:
    for number, name in enumerate(SENSORS):
        readings = spark.range(SECONDS).selectExpr(
            "id % 2 AS room",
            f"timestamp_seconds(id + {number} / 10) AS at",
            f"20 + {number} + (id % 4) / 4 AS celsius",
        )
        readings.write.parquet(f"{folder}/{name}-readings")
        source = spark.readStream.schema(readings.schema).parquet(f"{folder}/{name}-readings")
        entry = sl.persist(source, f"{folder}/{name}", key="room", time="at", partitions=2, lateness="5 s")
        with entry.start(trigger="available-now", final=True) as query:
            query.await_termination()

    together = sl.union(*(sl.stream(f"{folder}/{name}") for name in SENSORS))
    mean = together.window(sl.time_window("10 s")).aggregate(mean=sl.avg("celsius"), n=sl.count_all())
    with mean.start(spark, f"{folder}/mean", trigger="available-now") as query:
        query.await_termination()

    results = sl.stream(f"{folder}/mean").read(spark)
    results.orderBy("window_start", "room").show(6, truncate=False)
    print(f"{results.count()} results of {results.selectExpr('sum(n)').first()[0]} readings of {len(SENSORS)} sensors")
spark.stop()
