"""`stream.rekey("other", "streams/by-other")`: read, shuffle, persist, in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.errors import OptionError
from strandline.log.spec import StreamSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.entry import Entry

_READING = ("max_tuples_per_batch", "consumer", "start")


def rekeyed(
    read_stream: Callable[..., DataFrame],
    spec: StreamSpec,
    key: str | Sequence[str],
    path: str,
    spark: SparkSession | None,
    options: Mapping[str, Any],
) -> Entry:
    """The entry point that persists a stream by another key; `options` are those of reading and of `sl.source`.

    Time, partitions and lateness are the stream's unless they are given. A batch takes in whole commits of all
    partitions, and after a commit nothing older than the boundary follows. So with the stream's own lateness no tuple
    becomes late on the way. Two cases are otherwise, and have to say a lateness: an operator's results, whose
    partitions need not be equally far, and batches that are bounded and so end in the middle of commits.
    """
    from strandline.spark.entry import source

    reading = {name: options[name] for name in _READING if name in options}
    writing = {name: value for name, value in options.items() if name not in _READING}
    if "lateness" not in writing and (spec.operator is not None or "max_tuples_per_batch" in reading):
        why = "an operator's results" if spec.operator is not None else "max_tuples_per_batch"
        raise OptionError(
            f"rekey with {why} has to say how far behind a tuple may come: the partitions need not be equally far",
            where=str(path),
            todo='pass lateness=, for example lateness="1 min"; what is later goes to the side log of the new stream',
        )
    given = {"time": spec.time, "partitions": spec.partitions, "lateness": spec.lateness, **writing}
    return source(read_stream(_session(spark), **reading), path, key=key, **given)


def _session(spark: SparkSession | None) -> SparkSession:
    from pyspark.sql import SparkSession as Session

    found = spark or Session.getActiveSession()
    if found is None:
        raise OptionError("there is no Spark session in this program", todo="pass spark=sl.session()")
    return found
