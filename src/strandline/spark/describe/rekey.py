"""`stream.rekey("other")`, an operator; `stream.rekey("other", "streams/by-other")`, a Spark query that shuffles.

The operator needs no query of Spark and passes tentative results on; each of its partitions reads the whole stream.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from strandline.errors import OptionError
from strandline.inputs.serialisable import require_time
from strandline.inputs.stream_definition import output_spec, stored_expressions
from strandline.log.stream.column_types import fields_of, type_name
from strandline.log.stream.spec import StreamSpec
from strandline.operators.expressions.shape import AS_IS, Shape
from strandline.operators.stateless.rekey_definition import RekeyDefinition
from strandline.schema_text import key_names
from strandline.spark.describe.stateless import Stateless
from strandline.spark.operator.partition_input import partitions_of
from strandline.spark.operator.processing_element import ReplicatedInput, Upstream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.entry.entry import Entry

_READING = ("max_tuples_per_batch", "consumer", "start")


class Rekeyed(Stateless):
    """Tuples of a stream with another key, as an operator; each of its partitions takes in all partitions."""

    def _streams_of(self, inputs: Sequence[Upstream]) -> Sequence[Upstream]:
        """Returns each partition of the stream as an input."""
        return partitions_of(inputs[0], cast("RekeyDefinition", self.definition).partitions)


def rekey_operator(
    input_: Upstream, shape: Shape, key: str | Sequence[str], options: Mapping[str, Any], spark: Any = None
) -> Rekeyed:
    """Returns the operator that gives tuples another key after this work on them; raises if there can be none.

    Of the options it takes `partitions` alone: time and lateness are the stream's.
    """
    bare = input_._bare_input
    where, spec = bare._input_place.url, bare._input_spec
    if others := [*(name for name in options if name != "partitions"), *(["spark"] if spark is not None else [])]:
        raise OptionError(
            f"rekey without a path takes no {', '.join(f'{name}=' for name in others)}: its results keep the time of "
            "the stream, and no query of Spark reads it",
            where=where,
            todo="give options of the output to .into(…) or .start(…); or name a path, rekey(key, path, …), for a "
            "query of Spark that shuffles the stream",
        )
    if isinstance(bare, ReplicatedInput):
        raise _of_replicas(where)
    if len(bare._input_members) > 1:
        raise OptionError(
            "rekey() of a union", where=where, todo="give the union an output first: sl.union(…).into(path).rekey(…)"
        )
    require_time(repr(bare), spec)
    partitions = options.get("partitions", spec.partitions)
    schema = {f["name"]: f["type"] for f in fields_of(spec.schema)}
    made = shape.columns_over(schema, spec.arrow)
    keys = key_names(key)
    definition = RekeyDefinition(
        output=tuple(made.items()),
        key=tuple((name, type_name(made.get(name, "nothing"))) for name in keys),
        time=(spec.time, type_name(schema[spec.time])),
        more_times=(spec.time,) * (spec.partitions - 1),
        shape=shape,
        partitions=partitions,
    )
    # What is wrong with the key or the partitions is raised here, and not where the operator gets an output.
    output_spec(definition, replace(spec, partitions=partitions))
    return Rekeyed([bare], definition)


def _of_replicas(where: str) -> OptionError:
    return OptionError(
        "rekey() needs one stream, and replicas are several",
        where=where,
        todo="make a stream of them: sl.source(replicas.read_stream(spark), path, key=…, time=…, lateness=…)",
    )


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
        raise _of_replicas(str(path))
    spec = stream._input_spec
    reading = {name: options[name] for name in _READING if name in options}
    writing = {name: value for name, value in options.items() if name not in _READING}
    if "lateness" not in writing and (why := _why_later(spec, options)):
        raise OptionError(
            f"rekey needs lateness=: {why}",
            where=str(path),
            todo='pass lateness=, for example lateness="1 min"; later tuples go to the side log of the new stream',
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
