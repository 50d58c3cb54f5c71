"""Blocks written by Python tasks that get the rows from Spark as Arrow, for stores that Spark cannot rename in.

One put a block, its checksum known before it leaves the task: on an object store nothing is copied or read back.
Rows are taken as they come, so that a task holds one block in memory, however large the batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.failpoint import failpoint
from strandline.log import block_sequence
from strandline.log.block import Block, Kind
from strandline.log.block_sequence import Part, write_blocks
from strandline.log.log import Log
from strandline.log.manifest import block_from_json, block_json
from strandline.log.spec import StreamSpec
from strandline.log.state import LogState
from strandline.log.storage import create_once
from strandline.spark.place import Place
from strandline.spark.rows import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RESULT = pa.schema([pa.field("block", pa.string())])


class ArrowBlocks:
    """Writes the batches of one stream."""

    def __init__(self, place: Place, log: Log) -> None:
        self._place = place
        self._log = log
        self._rows = Rows(log.spec)

    def write(self, df: DataFrame, base: LogState, name: str) -> list[Block]:
        """The batch as durable blocks that no manifest names yet. `name` is used once."""
        # Under plain names: mapInArrow does not quote those of the columns.
        columns = [column.alias(f"c{i}") for i, column in enumerate(self._rows.columns)]
        tuples = self._rows.ordered(df, base).select(*columns)
        limits = {"bytes_max": block_sequence.BYTES_MAX, "rows_max": block_sequence.ROWS_MAX}
        task = _task(self._place, self._log.spec.to_json(), base.ends, name, limits)
        answers = tuples.mapInArrow(task, "block string").collect()
        return [block_from_json(json.loads(row["block"])) for row in answers]


Batches = Iterator[pa.RecordBatch]


def _task(
    place: Place, spec_json: bytes, ends: tuple[int, ...], name: str, limits: Mapping[str, int]
) -> Callable[[Batches], Batches]:
    def write(batches: Batches) -> Batches:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        spec = StreamSpec.from_json(spec_json, place.url)
        partition = context.partitionId()
        storage = place.storage()

        def create(file: str, data: bytes) -> None:
            failpoint("during-seal")
            create_once(storage, file, data)

        # Every attempt has files of its own; those that Spark does not accept are collected later.
        unique = f"{name}-{context.taskAttemptId()}"
        parts = (part for batch in batches for part in _parts(batch, spec))
        for block in write_blocks(parts, spec, partition, ends[partition], unique, create, **limits):
            answer = json.dumps({"partition": partition, **block_json(block)})
            yield pa.RecordBatch.from_pydict({"block": [answer]}, schema=_RESULT)

    return write


def _parts(batch: pa.RecordBatch, spec: StreamSpec) -> Iterator[Part]:
    table = pa.Table.from_batches([batch]).rename_columns(list(spec.columns)).cast(spec.arrow)
    for typed in table.to_batches():
        yield Kind.RESULT, typed.columns
