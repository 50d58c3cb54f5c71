"""Blocks written by Python tasks that get the rows from Spark as Arrow, for stores that Spark cannot rename in.

One put a block, its checksum known before it leaves the task: on an object store nothing is copied or read back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.failpoint import failpoint
from strandline.log.block import Block, Kind, describe, encode_parts
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
        task = _task(self._place, self._log.spec.to_json(), base.ends, name)
        answers = tuples.mapInArrow(task, "block string").collect()
        return [block_from_json(json.loads(row["block"])) for row in answers]


Batches = Iterator[pa.RecordBatch]


def _task(place: Place, spec_json: bytes, ends: tuple[int, ...], name: str) -> Callable[[Batches], Batches]:
    def write_block(batches: Batches) -> Batches:
        from pyspark import TaskContext

        spec = StreamSpec.from_json(spec_json, place.url)
        arrived = list(batches)
        context = TaskContext.get()
        if context is None or not any(b.num_rows for b in arrived):
            return
        partition = context.partitionId()
        tuples = pa.Table.from_batches(arrived).rename_columns(list(spec.columns))
        first = ends[partition]
        data = encode_parts([(Kind.RESULT, tuples.cast(spec.arrow).combine_chunks().columns)], spec, first)
        # Every attempt has a file of its own; those that Spark does not accept are collected later.
        file = spec.file(partition, first, f"{name}-{context.taskAttemptId()}")
        block = describe(data, spec, partition, first, file)
        failpoint("during-seal")
        create_once(place.storage(), file, data)
        answer = json.dumps({"partition": partition, **block_json(block)})
        yield pa.RecordBatch.from_pydict({"block": [answer]}, schema=_RESULT)

    return write_block
