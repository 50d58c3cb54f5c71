"""Blocks written by Spark itself, then checked, made durable and moved into place by a small task a block.

Rows never pass through Python, which makes this the fastest way into a stream on a file system. Spark writes into a
staging folder; its own commit protocol leaves there one file a partition, whatever was retried or speculated. What is
left to us costs little: a checksum over bytes that are still in the page cache, the footer, an fsync and a rename.
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
from strandline.log.block import Block, describe, earliest
from strandline.log.local_storage import LocalStorage
from strandline.log.log import Log
from strandline.log.spec import StreamSpec
from strandline.log.state import LogState
from strandline.spark.place import Place, spark_file_url
from strandline.spark.rows import Rows

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
_LATE_MEMORY = 64
_PART = re.compile(r"part-(\d+)-.*\.parquet")


@dataclass(frozen=True)
class _Written:
    """A file of Spark's, on its way to become a block."""

    path: str
    key: str
    partition: int
    first: int


class NativeBlocks:
    """Writes the batches of one stream."""

    def __init__(self, place: Place, log: Log) -> None:
        self._place = place
        self._log = log
        self._rows = Rows(log.spec)
        self._configured = False
        self._expect_late = 0
        """For so many batches more, late tuples are given a partition of their own from the start."""

    def write(self, df: DataFrame, base: LogState, name: str) -> list[Block]:
        """The batch as durable blocks that no manifest names yet. `name` is used once."""
        spec = self._log.spec
        self._configure(df)
        self._expect_late -= 1
        staging = self._written_by_spark(df, base, name, split_late=self._expect_late > 0)
        parts = _parts(staging)
        if self._expect_late <= 0 and _has_late(parts, spec, base):
            shutil.rmtree(staging, ignore_errors=True)
            self._expect_late = _LATE_MEMORY
            staging = self._written_by_spark(df, base, f"{name}-late", split_late=True)
            parts = _parts(staging)
        failpoint("before-seal")
        written = [_Written(str(path), spec.file(p, base.ends[p], name), p, base.ends[p]) for p, path in parts]
        blocks = _seal_all(df, self._place, spec, written)
        shutil.rmtree(staging, ignore_errors=True)
        failpoint("after-seal")
        return blocks

    def _written_by_spark(self, df: DataFrame, base: LogState, name: str, *, split_late: bool) -> Path:
        """The folder in which Spark has left a file a partition.

        A partition for late tuples costs every batch another task, and most batches have none. So they are looked for
        afterwards, in the footers, and only a batch that has some is written again.
        """
        staging = self._log.storage.local_path(f"staging/{name}")
        assert staging is not None, "only for file systems"
        ordered = self._rows.ordered(df, base, split_late=split_late)
        ordered.write.options(**_OPTIONS).parquet(spark_file_url(staging))
        return staging

    def _configure(self, df: DataFrame) -> None:
        """In the session that Spark made for this query; the user's own stays as it is."""
        if not self._configured:
            for setting, value in _SESSION.items():
                df.sparkSession.conf.set(setting, value)
            self._configured = True


def _has_late(parts: Sequence[tuple[int, Path]], spec: StreamSpec, base: LogState) -> bool:
    """Whether a file begins before the boundary of its partition: the rows are in the order of time."""
    found = ((path, base.boundaries[p]) for p, path in parts if p < spec.late)
    return any(boundary is not None and earliest(path, spec) < boundary for path, boundary in found)


def _parts(staging: Path) -> list[tuple[int, Path]]:
    found = []
    for path in sorted(staging.iterdir()) if staging.is_dir() else []:
        match = _PART.fullmatch(path.name)
        # Spark writes a file without rows for an empty first partition.
        if match and pq.read_metadata(path).num_rows:
            found.append((int(match[1]), path))
    return found


def _seal_all(df: DataFrame, place: Place, spec: StreamSpec, written: Sequence[_Written]) -> list[Block]:
    """Seals next to the files: in this process if Spark runs here, in a job if it runs elsewhere."""
    context = df.sparkSession.sparkContext
    if not written:
        return []
    if str(context.master).startswith("local["):
        with ThreadPoolExecutor(len(written)) as pool:
            return list(pool.map(lambda w: _seal(w, place, spec), written))
    spec_json = spec.to_json()
    tasks = context.parallelize(written, len(written))
    return tasks.map(lambda w: _seal(w, place, StreamSpec.from_json(spec_json, place.url))).collect()


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
            # The disk works while the checksum is computed. What it has to say counts: it says it once.
            syncing = disk.submit(storage.secure, path) if path != target else None
            # Left to the collector: it cannot be closed while an error of `describe` refers to it.
            block = describe(memoryview(data), spec, written.partition, written.first, written.key)
            if syncing is not None:
                syncing.result()
    except (FileNotFoundError, pa.ArrowInvalid) as problem:
        raise StorageError(
            f"a file that Spark has written cannot be read here: {problem}",
            where=written.path,
            todo="on a cluster the stream's path must be shared by all machines (NFS or an object store); "
            "if an earlier attempt says that its disk failed, mend that",
        ) from problem
    if path != target:
        storage.adopt(path, written.key)
    return block
