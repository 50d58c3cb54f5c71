"""Strandline: persistent, replayable streams for PySpark.

>>> import strandline as sl
>>> spark = sl.session()                                                     # doctest: +SKIP
>>> query = sl.persist(df, "streams/items", key="id", time="at").start()     # doctest: +SKIP
>>> sl.stream("streams/items").read(spark, since="2026-01-01").show()        # doctest: +SKIP
"""

from strandline.errors import (
    CollectedError,
    ConflictError,
    ConsumerError,
    CorruptBlockError,
    CorruptionError,
    CorruptManifestError,
    FormatVersionError,
    InputError,
    NoSpaceError,
    NotAStreamError,
    NullTimeError,
    OptionError,
    SchemaError,
    SecondWriterError,
    SparkCheckpointError,
    StorageError,
    StrandlineError,
    StreamError,
    StreamMismatchError,
    StreamNotFoundError,
    TruncatedError,
)
from strandline.spark.entry import Entry, persist
from strandline.spark.query import Query
from strandline.spark.session import register, session
from strandline.spark.stream import Stream, stream
from strandline.version import VERSION as __version__

__all__ = [
    "CollectedError",
    "ConflictError",
    "ConsumerError",
    "CorruptBlockError",
    "CorruptManifestError",
    "CorruptionError",
    "Entry",
    "FormatVersionError",
    "InputError",
    "NoSpaceError",
    "NotAStreamError",
    "NullTimeError",
    "OptionError",
    "Query",
    "SchemaError",
    "SecondWriterError",
    "SparkCheckpointError",
    "StorageError",
    "StrandlineError",
    "Stream",
    "StreamError",
    "StreamMismatchError",
    "StreamNotFoundError",
    "TruncatedError",
    "__version__",
    "persist",
    "register",
    "session",
    "stream",
]
