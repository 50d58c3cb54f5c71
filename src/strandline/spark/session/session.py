"""A local Spark whose micro-batches are fast, and the registration of `format("strandline")`."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.errors import StrandlineError
from strandline.spark.query import last_words, spark_log, translation
from strandline.spark.session.preconditions import require_classic
from strandline.spark.session.worker_python import require_workers
from strandline.user_warning import warn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Off by default in Spark: with it, a filter on the time column decides which blocks `format("strandline")` opens."""

# Each with its reason in docs/reference.md.
_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    # A Python task over a Unix socket starts about 40 ms sooner than over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # The default local filesystem forks about 20 small processes a batch to set file permissions.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.session.timeZone": "UTC",
    PUSHDOWN: "true",
    "spark.driver.memory": "4g",
    # On a few cores the throughput collector does best; sort buffers off the heap do not add to its work.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.memory.offHeap.enabled": "true",
    "spark.memory.offHeap.size": "2g",
}
_FASTER = (
    "spark.python.unix.domain.socket.enabled",
    "spark.hadoop.fs.file.impl",
    "spark.sql.streaming.checkpointFileManagerClass",
)
"""Without these, small batches take noticeably longer."""


def session(master: str | None = None, app_name: str = "strandline", **config: str) -> SparkSession:
    """Starts a local Spark with settings for small batches, or returns the session that this program has already.

    More settings by their names, or with underscores for the dots:

    >>> spark = session("local[2]", spark_ui_enabled="false", **{"spark.driver.memory": "8g"})  # doctest: +SKIP

    What Spark and its workers would write to the terminal goes to a file, see `STRANDLINE_SPARK_LOG` in the reference.
    """
    asked = {name if "." in name else name.replace("_", "."): str(value) for name, value in config.items()}
    if _is_running():
        return _as_it_is(master, asked)
    last_words.install()
    try:
        find_java()
        _require_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        master = master or "local[*]"
        spark = _started(app_name, {**_SETTINGS, **_shuffle_partitions(master), **asked, "spark.master": master})
        spark.sparkContext.setLogLevel(os.environ.get("STRANDLINE_SPARK_LOG_LEVEL", "ERROR"))
        register(spark)
    except KeyboardInterrupt:
        # Of the place in py4j that was interrupted a user learns nothing: it is left out.
        raise KeyboardInterrupt("interrupted while sl.session() was starting Spark") from None
    return spark


def _is_running() -> bool:
    """Says if this program has a Spark, without loading PySpark for the answer."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return context is not None and context._active_spark_context is not None


def _as_it_is(master: str | None, asked: Mapping[str, str]) -> SparkSession:
    """Returns the existing session unchanged; warns about each difference from what was asked for."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    register(spark)
    has = {**dict(spark.sparkContext.getConf().getAll()), **spark.conf.getAll}
    wanted = {**asked, **({"spark.master": master} if master else {})}
    missing = [f"{name}={value}" for name, value in wanted.items() if has.get(name) != value]
    slow = [name for name in _FASTER if name not in wanted and has.get(name) != _SETTINGS[name]]
    said = [f"without {', '.join(missing)}"] * bool(missing) + [f"slower for want of {', '.join(slow)}"] * bool(slow)
    if said:
        warn(
            f"this program has a Spark session already; sl.session() returns it as it is, {' and '.join(said)}",
        )
    return spark


def _started(app_name: str, settings: Mapping[str, str]) -> SparkSession:
    """Starts a session whose JVM writes to Spark's log instead of to our terminal."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    log = spark_log.begin() if SparkContext._gateway is None else None  # else that of an earlier session still runs
    if log is not None:
        conf: Any = SparkConf()
        for name, value in settings.items():
            conf.set(name, value)
        with log.open("ab") as file:
            try:
                context: Any = SparkContext
                launch: Any = launch_gateway
                with _no_jvm_left_over():
                    context._ensure_initialized(gateway=launch(conf, {"stderr": file}))
            except Exception as problem:
                raise StrandlineError(
                    f"Spark does not start: {spark_log.last_line(log) or problem}",
                    where=str(log),
                    todo="Spark 4.3 needs Java 17 or newer, in JAVA_HOME or on the PATH; the file has all that Spark "
                    "printed",
                ) from None
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    require_classic(spark)  # the environment may ask for another kind
    return spark


@contextlib.contextmanager
def _no_jvm_left_over() -> Iterator[None]:
    """Kills a JVM whose start is interrupted: PySpark takes away the folder for its port, and it would never end."""
    from pyspark import java_gateway

    begun: list[Any] = []
    launcher: Any = java_gateway
    popen = launcher.Popen

    def noted(*arguments: Any, **options: Any) -> Any:
        begun.append(popen(*arguments, **options))
        return begun[-1]

    launcher.Popen = noted
    try:
        yield
    except BaseException:
        for process in begun:
            process.kill()
        raise
    finally:
        launcher.Popen = popen


def _shuffle_partitions(master: str) -> dict[str, str]:
    """Sets as many shuffle partitions as there are cores: 200 are 200 small tasks for each `groupBy` on one machine."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,.*)?\])?", master)
    if local is None:
        return {}
    cores = (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    return {"spark.sql.shuffle.partitions": str(cores)}


def register(spark: SparkSession) -> None:
    """Makes `format("strandline")` work on a session of yours, for `spark.read` and `spark.readStream`.

    Of the session's settings it makes one, unless you have made it: `spark.sql.python.filterPushdown.enabled`.
    """
    require_classic(spark)
    if PUSHDOWN not in spark.conf.getAll:
        spark.conf.set(PUSHDOWN, "true")
    register_as_it_is(spark)


def register_as_it_is(spark: SparkSession) -> None:
    """Registers the source without a change of settings: where they forbid it, filters do not reach our reader."""
    require_classic(spark)
    from strandline.spark.read.source import StrandlineDataSource, UnfilteredDataSource
    from strandline.spark.session.time_zone import SETTING

    require_workers(spark)
    translation.install()
    has_filters = spark.conf.getAll.get(PUSHDOWN) == "true"
    source = StrandlineDataSource if has_filters else UnfilteredDataSource
    spark.dataSource.register(source.in_zone(str(spark.conf.get(SETTING))))


def find_java() -> None:
    """Finds the Java that `make setup` leaves beside the interpreter on a machine without Java."""
    bundled = Path(sys.prefix) / "java-home"
    if "JAVA_HOME" not in os.environ and bundled.is_dir():
        os.environ["JAVA_HOME"] = str(bundled)


def _require_java() -> None:
    """Raises `StrandlineError` if Spark's scripts would find no Java: what they say of that names no cause."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # a JVM runs already
        return
    home = os.environ.get("JAVA_HOME")
    if home and shutil.which("java", path=str(Path(home) / "bin")) is None:
        raise StrandlineError(
            f"Spark does not start: JAVA_HOME is {home}, where there is no bin/java",
            todo="set JAVA_HOME to the folder of a Java 17 or newer, or unset it",
        )
    if not home and shutil.which("java") is None:
        raise StrandlineError(
            "Spark does not start: no Java was found, neither in JAVA_HOME nor on the PATH",
            todo="install Java 17 or newer, or set JAVA_HOME to its folder",
        )
