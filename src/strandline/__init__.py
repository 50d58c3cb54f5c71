"""Strandline: stateful streaming on PySpark that survives any failure, its state kept in its own output stream.

>>> import strandline as sl
>>> spark = sl.session()                                                                      # doctest: +SKIP
>>> items = sl.source(df, "streams/items", key="id", time="at", lateness="10 s")              # doctest: +SKIP
>>> average = items.window(sl.count_window(10)).aggregate(average=sl.avg("price"))            # doctest: +SKIP
>>> query = average.checkpoint(sl.cec(recover_within="2 s")).start(spark, "streams/average")  # doctest: +SKIP
>>> sl.stream("streams/average").read(spark, since="2026-01-01").show()                       # doctest: +SKIP
"""

import importlib
from typing import Any

from strandline.checkpoint.policy import Policy, cec, instant, none, partial
from strandline.errors import (
    AggregateOverflowError,
    CollectedError,
    ConflictError,
    ConsumerError,
    CorruptBlockError,
    CorruptionError,
    CorruptManifestError,
    DroppedError,
    FormatVersionError,
    InputError,
    InputWentBackError,
    NoAccessError,
    NoSpaceError,
    NotAStreamError,
    NotRepeatableError,
    NullTimeError,
    OptionError,
    SchemaError,
    SecondWriterError,
    SparkCheckpointError,
    StorageError,
    StrandlineError,
    StrandlineWarning,
    StreamError,
    StreamFinishedError,
    StreamMismatchError,
    StreamNotFoundError,
    TruncatedError,
    UnsafeFolderError,
)
from strandline.operators.aggregate.aggregates import (
    Aggregate,
    avg,
    count,
    count_all,
    count_distinct,
    first,
    last,
    max,
    min,
    percentile,
    stddev,
    sum,
    variance,
)
from strandline.operators.aggregate.windows import Window, count_window, session_window, time_window
from strandline.operators.keyed.keyed_function import KeyedFunction, keyed
from strandline.operators.keyed.returned import CLOSE, EMIT
from strandline.operators.partition_wide.user_operator import UserOperator as Operator
from strandline.spark.aggregation import Aggregation, Windowed
from strandline.spark.barrier import Barrier, barrier
from strandline.spark.entry import Entry, persist, source
from strandline.spark.joining import Join
from strandline.spark.keyed import Keyed
from strandline.spark.partition_wide import PartitionWide
from strandline.spark.query import Query
from strandline.spark.replicas import Replicas, replicas
from strandline.spark.session import register, session
from strandline.spark.shaped import Shaped
from strandline.spark.stream import Stream, stream
from strandline.spark.union import Union, union
from strandline.version import VERSION as __version__

__all__ = [
    "CLOSE",
    "EMIT",
    "Aggregate",
    "AggregateOverflowError",
    "Aggregation",
    "Barrier",
    "CollectedError",
    "ConflictError",
    "ConsumerError",
    "CorruptBlockError",
    "CorruptManifestError",
    "CorruptionError",
    "DroppedError",
    "Entry",
    "FormatVersionError",
    "InputError",
    "InputWentBackError",
    "Join",
    "Keyed",
    "KeyedFunction",
    "NoAccessError",
    "NoSpaceError",
    "NotAStreamError",
    "NotRepeatableError",
    "NullTimeError",
    "Operator",
    "OptionError",
    "PartitionWide",
    "Policy",
    "Query",
    "Replicas",
    "SchemaError",
    "SecondWriterError",
    "Shaped",
    "SparkCheckpointError",
    "StorageError",
    "StrandlineError",
    "StrandlineWarning",
    "Stream",
    "StreamError",
    "StreamFinishedError",
    "StreamMismatchError",
    "StreamNotFoundError",
    "TruncatedError",
    "Union",
    "UnsafeFolderError",
    "Window",
    "Windowed",
    "__version__",
    "avg",
    "barrier",
    "cec",
    "count",
    "count_all",
    "count_distinct",
    "count_window",
    "first",
    "instant",
    "keyed",
    "last",
    "max",
    "min",
    "none",
    "partial",
    "percentile",
    "persist",
    "register",
    "replicas",
    "session",
    "session_window",
    "source",
    "stddev",
    "stream",
    "sum",
    "time_window",
    "union",
    "variance",
]


def __getattr__(name: str) -> Any:
    """`sl.testing`, the kit for tests, is loaded when it is asked for; nothing else here knows of it."""
    if name == "testing":
        return importlib.import_module("strandline.testing")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
