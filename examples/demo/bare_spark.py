"""A Spark without Strandline: its session and one micro-batch of the demo's items. What a restart cannot do without."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def main(folder: Path) -> None:
    """Starts Spark and counts the first batch of a stream; leaves a file when that is done."""
    spark = SparkSession.builder.master("local[2]").appName("bare Spark").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=20_000, numPartitions=2).load()

    def count(batch: Any, _number: int) -> None:
        batch.count()
        (folder / "counted").touch()

    rate.writeStream.foreachBatch(count).option("checkpointLocation", str(folder / "checkpoint")).start()
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
