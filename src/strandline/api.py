"""All that a program can name: `strandline` gives it on, when the first of it is asked for."""

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
    SparkSilentError,
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
from strandline.operators.keyed.record_layout import CLOSE, EMIT
from strandline.operators.partition_wide.user_operator import UserOperator as Operator
from strandline.spark.describe.aggregation import Aggregation, Windowed
from strandline.spark.describe.barrier import Barrier, barrier
from strandline.spark.describe.joining import Join
from strandline.spark.describe.keyed import Keyed
from strandline.spark.describe.partition_wide import PartitionWide
from strandline.spark.describe.replicas import Replicas, replicas
from strandline.spark.describe.shaped import Shaped
from strandline.spark.describe.stage import Stage
from strandline.spark.describe.stateless import Stateless
from strandline.spark.describe.union import Union, union
from strandline.spark.entry.entry import Entry, persist, source
from strandline.spark.pipeline.pipeline import Pipeline, pipeline
from strandline.spark.pipeline.pipeline_run import PipelineRun
from strandline.spark.query.query import Query
from strandline.spark.read.stream import Stream, stream
from strandline.spark.session.session import register, session
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
    "Pipeline",
    "PipelineRun",
    "Policy",
    "Query",
    "Replicas",
    "SchemaError",
    "SecondWriterError",
    "Shaped",
    "SparkCheckpointError",
    "SparkSilentError",
    "Stage",
    "Stateless",
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
    "pipeline",
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
