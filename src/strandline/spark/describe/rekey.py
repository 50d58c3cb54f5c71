"""`stream.rekey("other", "streams/by-other")`: read, shuffle, persist, in one call."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.errors import OptionError
from strandline.log.stream.spec import StreamSpec
from strandline.operators.expressions.shape import AS_IS, Shape
from strandline.recovery.stream_definition import stored_expressions
from strandline.spark.operator.processing_element import ReplicatedInput, Upstream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.entry.entry import Entry

_READING = ("max_tuples_per_batch", "consumer", "start")


def rekeyed(
    stream: Upstream,
    read_stream: Callable[..., DataFrame],
    key: str | Sequence[str],
    path: str,
    spark: SparkSession | None,
    options: Mapping[str, Any],
    shape: Shape = AS_IS,
) -> Entry:
    """Makes the entry point that persists a stream by another key; `options` are those of reading and of `sl.source`.

    `shape` is what `read_stream` does to the tuples of the stream. The new stream keeps it, and takes no other.

    Time, partitions and lateness are the stream's unless they are given. A batch takes in whole commits of all
    partitions, and after a commit nothing older than the boundary follows. So with the stream's own lateness no tuple
    becomes late on the way. `_why_later` has the cases that are otherwise, and have to say a lateness. What is far
    ahead was kept out of the stream, or was wanted in it: it is not asked again.
    """
    from strandline.spark.entry.entry import source

    if isinstance(stream, ReplicatedInput):
        raise OptionError(
            "rekey() of replicas: none of them is the stream of which another could be made",
            where=str(path),
            todo="make a stream of them: sl.source(replicas.read_stream(spark), path, key=…, time=…, lateness=…)",
        )
    spec = stream._input_spec
    reading = {name: options[name] for name in _READING if name in options}
    writing = {name: value for name, value in options.items() if name not in _READING}
    if "lateness" not in writing and (why := _why_later(spec, options)):
        raise OptionError(
            f"rekey has to say how far behind a tuple may come: {why}",
            where=str(path),
            todo='pass lateness=, for example lateness="1 min"; what is later goes to the side log of the new stream',
        )
    lateness = None if spec.lateness is None else dt.timedelta(microseconds=spec.lateness)
    own = {"time": spec.time, "partitions": spec.partitions, "lateness": lateness, "max_ahead": None}
    given = {**own, **writing}
    entry = source(read_stream(_session(spark), **reading), path, key=key, **given)
    known = shape.known_as(stored_expressions(entry._input_place.storage()))
    return entry.made_of(
        {
            "stream": spec.id,
            "path": stream._input_place.url,
            "shape": known.to_json(),
            "expressions": {formula.text: formula.arrow for formula in known.formulas},
        }
    )


def _why_later(spec: StreamSpec, options: Mapping[str, Any]) -> str:
    """Returns why the stream's own lateness may not be enough; empty if it is."""
    if spec.operator is not None:
        return "the partitions of an operator's results need not be equally far"
    if options.get("time", spec.time) != spec.time:
        return f"the stream is in order by {spec.time}, which says nothing of {options['time']}"
    if options.get("max_tuples_per_batch") is not None:
        return "with max_tuples_per_batch the partitions need not be equally far"
    if options.get("heartbeat") is not None:
        return "with heartbeat= time passes while a tuple is still on its way through the first stream"
    return ""


def _session(spark: SparkSession | None) -> SparkSession:
    from pyspark.sql import SparkSession as Session

    found = spark or Session.getActiveSession()
    if found is None:
        raise OptionError("there is no Spark session in this program", todo="pass spark=sl.session()")
    return found
