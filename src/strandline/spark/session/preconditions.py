"""Preconditions of a query, before it creates anything: the kind of Spark, its file systems, names that are free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strandline.errors import OptionError, SecondWriterError
from strandline.spark.query import running
from strandline.spark.session.place import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_classic(spark: Any) -> None:
    """Raises for a session or a DataFrame of Spark Connect, whose driver is in another process."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise OptionError(
            "this is a session of Spark Connect, and Strandline has to run in the process of Spark's driver",
            where=f"{type(spark).__module__}.{type(spark).__name__}",
            todo="use a classic session: unset SPARK_REMOTE and SPARK_API_MODE, and build it with .master(…), not "
            ".remote(…); streams can also be read without Spark, with sl.stream(path).tables(partition)",
        )


def has_stopped(spark: SparkSession) -> bool:
    """Returns whether the session's Spark was stopped, by this program or by itself."""
    context: Any = spark.sparkContext
    return context._jsc is None or bool(context._jsc.sc().isStopped())


def require_running(spark: SparkSession, where: str) -> None:
    """Raises unless this is a Spark session that runs: another part of the program may have stopped it."""
    if not hasattr(spark, "sparkContext"):
        raise OptionError(
            f"start(…) needs a Spark session, and got {spark!r}", where=where, todo="pass one: start(sl.session(), …)"
        )
    if has_stopped(spark):
        raise OptionError("this Spark session was stopped", where=where, todo="make another one: sl.session(…)")


def require_ready(spark: SparkSession, urls: Sequence[str], name: str | None, checkpoint: Place | None = None) -> None:
    """Raises unless a query of this name may begin to write these streams, with its Spark checkpoint, if any, there.

    A pipeline whose streams are all finished writes none.
    """
    require_classic(spark)
    require_running(spark, next(iter(urls), ""))
    if checkpoint is not None:
        require_spark_can_write(spark, checkpoint)
    if name is not None and (running.has_name(name) or any(active.name == name for active in spark.streams.active)):
        raise OptionError(
            f"a query of the name {name!r} runs already in this session",
            where=urls[0],
            todo="stop that query first, or give this one another name",
        )
    for url in urls:
        if running.writes(url):
            raise written_already(url)


def require_spark_can_write(spark: SparkSession, place: Place) -> None:
    """Raises unless Spark can keep its own checkpoint there: Hadoop's file systems may not know the store."""
    scheme, found, _ = place.spark_url.partition("://")
    if not found or scheme == "file":
        return
    untyped: Any = spark
    configuration = untyped.sparkContext._jsc.hadoopConfiguration()
    try:
        untyped._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, configuration)
    except Exception:
        raise OptionError(
            f"Spark cannot keep its own checkpoint at {scheme}://: this Spark has no file system for it",
            where=place.url,
            todo="pass spark_checkpoint_dir= with a local or shared folder; if it is lost, Strandline rebuilds it "
            "for sources such as Kafka, rate and Strandline",
        ) from None


def written_already(url: str, by: str = "a query of this program") -> SecondWriterError:
    """Returns the error for a second writer in this program."""
    return SecondWriterError(
        f"this stream is being written already, by {by}", where=url, todo="stop that query first, or let it run"
    )
