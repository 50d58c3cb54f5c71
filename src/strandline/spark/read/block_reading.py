"""The blocks of a stream through Spark's own Parquet reader, which prunes columns and row groups by itself."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.control_columns import KIND, OFFSET, PARTITION, REASON
from strandline.log.operator_state.guesses import guesses_of
from strandline.log.reading.bounds import Bounds
from strandline.log.reading.tentative_results import TENTATIVE
from strandline.log.stream import log_errors
from strandline.log.stream.block import Block
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import END, Log
from strandline.log.stream.reason import IN_NAME, LATE
from strandline.spark.entry import batch_layout

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Whatever the session says: no block is left out in silence, and no date is taken for one of an older calendar.
_READING = {
    "parquet.page.verify-checksum.enabled": "true",  # Spark does not know our checksums, but those of the pages
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
}
_GLOB = re.compile(r"([\\{}\[\]*?,])")


def read_blocks(
    spark: SparkSession,
    log: Log,
    blocks: Sequence[Block],
    bounds: Bounds,
    *,
    late: bool,
    positions: bool,
    kind: Kind = Kind.RESULT,
    since: Mapping[str, int] | None = None,
) -> DataFrame:
    """Reads blocks as a DataFrame: results only, within the bounds. Spark opens the files when it runs the DataFrame.

    Or tuples of another `kind`; of the files that `since` names only those from that time on.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import ByteType, LongType, StructField, StructType

    from strandline.spark.read.source_schema import spark_schema

    schema = spark_schema(log.spec, positions=False)
    if not blocks:
        return spark.createDataFrame([], spark_schema(log.spec, late=late, positions=positions))
    stamps = [StructField(OFFSET, LongType()), StructField(KIND, ByteType())] if log.spec.is_stamped else []
    paths = [_GLOB.sub(r"\\\1", f"file://{log.storage.local_path(b.file)}") for b in blocks]
    require_whole(log, blocks)
    with _listing_here(spark, len(blocks)):
        df = spark.read.schema(StructType([*schema.fields, *stamps])).options(**_READING).parquet(*paths)
    metadata = df.metadataColumn("_metadata")  # whatever columns of that name the tuples have
    file = metadata["file_path"]
    offset = F.col(OFFSET) if stamps else _first(file) + metadata["row_index"]
    if kind is not Kind.RESULT or any(b.results != b.tuples for b in blocks):
        df = df.where(F.col(KIND) == int(kind))
    time = batch_layout.quoted(log.spec.time)
    if since:
        least = {name: batch_layout.time_literal(log.spec, value) for name, value in since.items()}
        df = df.where(F.coalesce(time >= _per_file(file, least), F.lit(True)))
    if bounds.time_from is not None:
        df = df.where(time >= batch_layout.time_literal(log.spec, bounds.time_from))
    if bounds.time_until is not None:
        df = df.where(time < batch_layout.time_literal(log.spec, bounds.time_until))
    low = {b.file: bounds.firsts[b.partition] for b in blocks if bounds.firsts.get(b.partition, 0) > b.first}
    high = {b.file: bounds.ends[b.partition] for b in blocks if bounds.ends.get(b.partition, END) < b.end}
    if low:
        df = df.where(offset >= F.coalesce(_per_file(file, low), F.lit(0)))
    if high:
        df = df.where(offset < F.coalesce(_per_file(file, high), F.lit(END)))
    columns = [batch_layout.quoted(c) for c in log.spec.columns]
    if positions:
        number = F.regexp_extract(file, r"/p(\d{5})/[^/]+$", 1)  # empty in the late side log
        columns += [F.nullif(number, F.lit("")).cast("int").alias(PARTITION), offset.alias(OFFSET)]
        if late and REASON not in map(str.lower, log.spec.columns):
            reason = F.nullif(F.regexp_extract(file, IN_NAME, 1), F.lit(""))
            columns.append(F.coalesce(reason, F.lit(LATE)).alias(REASON))
    return df.select(*columns)


def require_whole(log: Log, blocks: Iterable[Block]) -> None:
    """Raises `CorruptBlockError` for a block whose file is gone or has another size than was published.

    One look at each file, as Spark's own reader takes, which would say it in words of its own.
    """
    for block in blocks:
        path = log.storage.local_path(block.file)
        assert path is not None, "only for file systems"
        try:
            size_bytes = path.stat().st_size
        except FileNotFoundError:
            log.refresh()
            if any(b.file == block.file for b in log.blocks(block.partition, block.first, block.end)):
                raise log_errors.lost_block(block, log.storage.url) from None
            raise log_errors.compacted_meanwhile(block.partition, block.first, log.storage.url) from None
        if size_bytes != block.size_bytes:
            raise log_errors.cut_block(block, size_bytes, log.storage.url)


@contextlib.contextmanager
def _listing_here(spark: SparkSession, files: int) -> Iterator[None]:
    """Keeps Spark from starting a job to look at more than 32 files, because the manifests have named them.

    No option of a reader says so, only a setting of the session, which is put back, one reader at a time.
    """
    with _listing:
        before = spark.conf.getAll.get(_THRESHOLD)
        if files <= int(str(spark.conf.get(_THRESHOLD))):
            yield
            return
        spark.conf.set(_THRESHOLD, str((1 << 31) - 1))
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(_THRESHOLD)
            else:
                spark.conf.set(_THRESHOLD, before)


_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_listing = threading.Lock()


def _first(file: Column) -> Column:
    """Returns the offset of a file's first tuple, with which its name begins."""
    from pyspark.sql import functions as F

    return F.substring(F.substring_index(file, "/", -1), 1, 20).cast("long")


def _per_file(file: Column, offsets: Mapping[str, int | Column]) -> Column:
    """Returns a bound that holds only for the files that it cuts."""
    from pyspark.sql import functions as F

    # Files in the folders of two partitions may have the same name.
    names = {"/".join(name.split("/")[-2:]): offset for name, offset in offsets.items()}
    pairs = [F.lit(part) for pair in names.items() for part in pair]
    return F.create_map(*pairs)[F.substring_index(file, "/", -2)]


def read_with_tentative(spark: SparkSession, log: Log, bounds: Bounds, *, positions: bool) -> DataFrame:
    """Reads the results, and behind them the tentative ones that are not void, with the column `_tentative`.

    Those that count stand behind the last undo, and not before the stable boundary: the state of the log says both.
    """
    from pyspark.sql import functions as F

    partitions = range(log.spec.partitions)
    stable = [b for p in partitions for b in bounds.blocks(log, p)]
    results = read_blocks(spark, log, stable, bounds, late=False, positions=positions)
    counting = {p: found for p in partitions if (found := guesses_of(log, p)) is not None}
    firsts = {p: max(found.first, bounds.firsts.get(p, 0)) for p, found in counting.items()}
    behind = replace(bounds, firsts={**bounds.firsts, **firsts})
    guesses = [b for p in counting for b in behind.blocks(log, p) if b.rows.get("tentative")]
    since = {b.file: boundary for b in guesses if (boundary := counting[b.partition].since) is not None}
    tentative = read_blocks(
        spark, log, guesses, behind, late=False, positions=positions, kind=Kind.TENTATIVE, since=since
    )
    return results.withColumn(TENTATIVE, F.lit(False)).unionAll(tentative.withColumn(TENTATIVE, F.lit(True)))
