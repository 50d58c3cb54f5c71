"""Blocks written by Spark itself, then checked, made durable and moved into place by a small task a block.

Rows never pass through Python, which makes this the fastest way into a stream on a file system. Spark writes into a
staging folder; its own commit protocol leaves there the files of one attempt a partition, whatever was retried or
speculated. What is left to us costs little: a checksum over bytes that are still in the page cache, the footer, an
fsync and a rename.

Some things can be told only when a batch is written: that it has tuples to be set aside (see `set_aside`), or that its
tuples are so large that a block of so many is too much. Then it is written again, and the next ones at once as it
should be.
"""

from __future__ import annotations

import mmap
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.errors import StorageError
from strandline.failpoint import failpoint
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import block_sequence
from strandline.log.stream.block import Block, describe
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.spark.entry.batch_layout import BatchRows
from strandline.spark.entry.set_aside import EntryLimits, Expected
from strandline.spark.operator.affinity import is_local
from strandline.spark.session.place import Place, spark_file_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Settings of the session that would change what Spark writes.
_SESSION = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.adaptive.enabled": "false",
}
_OPTIONS = {
    "compression": "lz4_raw",
    "parquet.enable.dictionary": "false",
    "parquet.page.write-checksum.enabled": "true",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_PART = re.compile(r"part-(\d+)-.*-c(\d+)(?:\.[^.]+)?\.parquet")
_SEALED_AT_ONCE = 64
_FAR_TOO_LARGE = 4
"""A file is cut again if it is so many times larger than a block should be."""
_VALUE_BYTES = 32
"""The assumed bytes of a value of variable length, before any was seen."""


@dataclass(frozen=True)
class _SparkFile:
    """A file of Spark's: the first tuples of one of its partitions, or some of those that follow."""

    number: int
    """Of Spark's partition: behind ours come those of tuples that are set aside."""
    path: Path
    footer: pq.FileMetaData

    @property
    def rows(self) -> int:
        return int(self.footer.num_rows)

    @property
    def size_bytes(self) -> int:
        """Of its tuples, before compression."""
        return sum(self.footer.row_group(g).total_byte_size for g in range(self.footer.num_row_groups))


@dataclass(frozen=True)
class _Written:
    """A file of Spark on its way to become a block."""

    path: str
    key: str
    partition: int
    first: int


class NativeBlocks:
    """Writes the batches of one stream."""

    def __init__(self, place: Place, log: Log) -> None:
        self._place = place
        self._log = log
        self._rows = BatchRows(log.spec)
        self._configured = False
        self._expected = Expected()
        self._tuple_bytes = _guessed_bytes(log.spec)
        """The bytes of a tuple of the last batch, in the partition with the largest tuples."""

    def write(self, df: DataFrame, limits: EntryLimits, ends: Sequence[int], name: str) -> list[Block]:
        """Writes the batch as durable blocks from `ends` on, which no manifest names yet. `name` is used once."""
        spec = self._log.spec
        if not self._configured:  # in the session that Spark made for this query; the user's own stays as it is
            for setting, value in _SESSION.items():
                df.sparkSession.conf.set(setting, value)
            self._configured = True
        self._expected.next_batch()
        folder = f"staging/{name}"
        while True:
            staging = self._log.storage.local_path(folder)
            assert staging is not None, "only for file systems"
            ordered = self._rows.ordered(df, limits, self._expected.reasons)
            # A file a partition, or several if it has many tuples.
            options = {**_OPTIONS, "maxRecordsPerFile": str(self._rows_max())}
            ordered.write.options(**options).parquet(spark_file_url(staging))
            parts = _parts(staging)
            is_far_too_large = self._is_far_too_large(parts)
            found = [limits.in_file(p.path, p.footer, spec, p.number) for p in parts if p.number < spec.late]
            if not self._expected.learn(set().union(*found)) and not is_far_too_large:
                break
            shutil.rmtree(staging, ignore_errors=True)
            folder += "-again"
        failpoint("before-seal")
        blocks, place, context = list[Block](), self._place, df.sparkSession.sparkContext
        written = self._named(parts, ends, name)
        if written and is_local(context):  # in this process, else in a job
            with ThreadPoolExecutor(min(len(written), _SEALED_AT_ONCE)) as pool:
                blocks = list(pool.map(lambda w: _seal(w, place, spec), written))
        elif written:
            spec_json, tasks = spec.to_json(), context.parallelize(written, len(written))
            blocks = tasks.map(lambda w: _seal(w, place, StreamSpec.from_json(spec_json, place.url))).collect()
        self._expected.met(b for b in blocks if b.partition == spec.late)
        shutil.rmtree(staging, ignore_errors=True)
        failpoint("after-seal")
        return blocks

    def _is_far_too_large(self, parts: Sequence[_SparkFile]) -> bool:
        """Returns whether the batch must be cut again; notes what a tuple takes."""
        bytes_max = block_sequence.BYTES_MAX
        # Of small files, what a tuple takes is mostly what a file takes.
        sizes = [p.size_bytes / p.rows for p in parts if p.size_bytes > bytes_max // 100]
        self._tuple_bytes = max(sizes, default=self._tuple_bytes)
        # By the average: a few large tuples among many may make a block larger, and cutting again would not help.
        rows_max = 2 * self._rows_max()
        return any(p.size_bytes > _FAR_TOO_LARGE * bytes_max and p.rows > rows_max for p in parts)

    def _rows_max(self) -> int:
        """Returns how many tuples of the size known so far go into one block."""
        return max(1, min(block_sequence.ROWS_MAX, int(block_sequence.BYTES_MAX / self._tuple_bytes)))

    def _named(self, parts: Sequence[_SparkFile], ends: Sequence[int], name: str) -> list[_Written]:
        """Returns the files with the names and the offsets of the blocks that they become, from `ends` on."""
        spec, firsts, written = self._log.spec, list(ends), []
        for part in parts:
            p = min(part.number, spec.late)
            key = spec.file(p, firsts[p], name, self._expected.reasons[part.number - p] if p == spec.late else None)
            written.append(_Written(str(part.path), key, p, firsts[p]))
            firsts[p] += part.rows
        return written


def _guessed_bytes(spec: StreamSpec) -> float:
    """Returns how many bytes a tuple may take, by its types."""
    widths = (
        getattr(f.type, "bit_width", 0) / 8 if pa.types.is_primitive(f.type) else _VALUE_BYTES for f in spec.arrow
    )
    return max(1.0, sum(widths))


def _parts(staging: Path) -> list[_SparkFile]:
    """Returns the files in the order of partitions, and of the tuples in each."""
    found = []
    for path in staging.iterdir() if staging.is_dir() else []:
        if match := _PART.fullmatch(path.name):
            found.append((int(match[1]), int(match[2]), path))
    parts = [_SparkFile(number, path, pq.read_metadata(path)) for number, _, path in sorted(found)]
    # Spark writes a file without rows for an empty first partition.
    return [part for part in parts if part.rows]


def _seal(written: _Written, place: Place, spec: StreamSpec) -> Block:
    storage = place.storage()
    assert isinstance(storage, LocalStorage)
    failpoint("during-seal")
    target = storage.local_path(written.key)
    path = Path(written.path)
    if not path.exists() and target.exists():
        path = target  # a retried or speculated task: another attempt has moved the file already
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with ThreadPoolExecutor(1) as disk:
            # The disk works while the checksum is computed. A block of which that fails is named by no manifest.
            adopted = disk.submit(storage.adopt, path, written.key) if path != target else None
            # Left to the collector: it cannot be closed while an error of `describe` refers to it.
            block = describe(memoryview(data), spec, written.partition, written.first, written.key)
            if adopted is not None:
                adopted.result()
    except (FileNotFoundError, pa.ArrowInvalid) as problem:
        raise StorageError(
            f"this process cannot read a file that Spark has written: {problem}",
            where=written.path,
            todo="on a cluster the stream's path must be shared by all machines (NFS or an object store); "
            "if an earlier attempt says that its disk failed, repair the disk",
        ) from problem
    return block
