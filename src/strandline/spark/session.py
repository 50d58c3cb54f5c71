"""A local Spark whose micro-batches are fast, and the registration of `format("strandline")`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A Python task over a Unix socket starts about 40 ms sooner than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # The default local filesystem forks about 20 small processes a batch to set file permissions.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Plans of micro-batches are small and always the same: adapting them costs more than it brings.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "4g",
    # On a few cores the throughput collector does best; the sort's pages are none of its business.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.memory.offHeap.enabled": "true",
    "spark.memory.offHeap.size": "2g",
}


def session(master: str = "local[*]", app_name: str = "strandline", **config: str) -> SparkSession:
    """A local Spark with settings that suit small batches.

    More settings by their names, or with underscores for the dots:

    >>> spark = session("local[2]", spark_ui_enabled="true", **{"spark.driver.memory": "8g"})  # doctest: +SKIP
    """
    _find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    for name, value in config.items():
        builder = builder.config(name if "." in name else name.replace("_", "."), value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel(os.environ.get("STRANDLINE_SPARK_LOG_LEVEL", "ERROR"))
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Makes `format("strandline")` work on a session of yours, for `spark.read` and `spark.readStream`."""
    from strandline.spark.source import StrandlineDataSource
    from strandline.spark.time_zone import SETTING

    # Off by default in Spark: with it, a filter on the time column decides which blocks are opened.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(StrandlineDataSource.in_zone(str(spark.conf.get(SETTING))))


def _find_java() -> None:
    """On a machine without Java, `make setup` leaves one from PyPI beside the interpreter."""
    bundled = Path(sys.prefix) / "java-home"
    if "JAVA_HOME" not in os.environ and bundled.is_dir():
        os.environ["JAVA_HOME"] = str(bundled)
