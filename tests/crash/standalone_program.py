"""A driver on a Standalone cluster: runs an operator, then the same one once more, to which nothing happens."""

import argparse

import strandline as sl

arguments = argparse.ArgumentParser()
arguments.add_argument("master")
arguments.add_argument("items")
arguments.add_argument("output")


def run(spark, items, output, tuples_max=None):
    aggregation = sl.stream(items).window(sl.count_window(12, advance=5)).aggregate(n=sl.count_all(), mean=sl.avg("v"))
    aggregation.start(spark, output, trigger="available-now", max_tuples_per_batch=tuples_max).await_termination()


if __name__ == "__main__":
    given = arguments.parse_args()
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.executor.memory": "512m",
        "spark.memory.offHeap.enabled": "false",
        # No task before both executors are there.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "100s",
    }
    spark = sl.session(given.master, **settings)
    run(spark, given.items, given.output, tuples_max=1)  # a commit of the input a batch
    run(spark, given.items, f"{given.output}-expected")
    spark.stop()
