"""Prepares a Spark whose processes start sooner: the tests start hundreds of them. `make test` does this once.

- An archive of the Java classes that Spark loads. A JVM of the tests then starts with 40 % less CPU.
- A home of Spark, made of links, that lacks `python/lib/pyspark.zip`. Spark puts this zip in front of the path of its
  Python processes. They would compile PySpark from it, a second of CPU each. Without it they find the installed
  PySpark, with its compiled files.

Where one of them is missing, or does not fit, Spark does without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
HOME = Path(sys.prefix) / "spark-home"
LINKED = ("bin", "jars", "sbin", "data")
# The JVMs of the tests live for seconds, so the second compiler of Java never pays: without it, a third less CPU. The
# tests do not open Spark's UI, and do not need Java's warnings about classes that it cannot archive.
OPTIONS = "-XX:TieredStopAtLevel=1 -Dspark.ui.enabled=false -Xlog:disable -Xlog:all=error:stderr"

_PROGRAM = """
import sys
import strandline as sl
spark = sl.session("local[2]")
folder = sys.argv[1]
spark.range(9).selectExpr("id", "timestamp_seconds(id) AS at").write.parquet(f"{folder}/files")
df = spark.readStream.schema("id long, at timestamp").parquet(f"{folder}/files")
items = sl.source(df, f"{folder}/items", key="id", time="at", partitions=2, lateness="1 s")
counts = items.window(sl.count_window(2)).aggregate(n=sl.count_all())
counts.start(spark, f"{folder}/counts", trigger="available-now").await_termination()
sl.stream(f"{folder}/counts").read(spark).collect()
sl.stream(f"{folder}/items").read(spark).groupBy("id").count().collect()
spark.stop()
"""


def use() -> None:
    """Sets the environment of this process and of those that it starts, unless the user has set it."""
    archive = f" -XX:SharedArchiveFile={ARCHIVE}" if ARCHIVE.exists() else ""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", OPTIONS + archive)
    if HOME.exists():
        os.environ.setdefault("SPARK_HOME", str(HOME))


def prepare() -> None:
    """Makes the home and the archive; leaves out what cannot be made."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    for name in LINKED:
        (HOME / name).symlink_to(Path(spec.origin).parent / name)
    made = ARCHIVE.with_suffix(".new")
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": f"{OPTIONS} -XX:ArchiveClassesAtExit={made}"}
    environment["SPARK_HOME"] = str(HOME)
    with tempfile.TemporaryDirectory() as folder:
        # The pipe ends when the JVM does, which writes the archive after Python has ended.
        command = [sys.executable, "-c", _PROGRAM, folder]
        subprocess.run(command, env=environment, check=False, stdout=subprocess.PIPE)
    if made.exists():
        made.replace(ARCHIVE)


if __name__ == "__main__":
    prepare()
