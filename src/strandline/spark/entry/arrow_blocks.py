"""Blocks written by Python tasks that get the rows from Spark as Arrow, for stores that Spark cannot rename in.

One put a block, its checksum known before it leaves the task: on an object store nothing is copied or read back.
Rows are taken as they come, so that a task holds one block in memory, however large the batch.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from strandline.failpoint import failpoint
from strandline.log.storage.storage import create_once
from strandline.log.stream import block_sequence
from strandline.log.stream.block import Block
from strandline.log.stream.block_sequence import BlockSequence, Part
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import block_from_json, block_json
from strandline.log.stream.spec import StreamSpec
from strandline.spark.entry.batch_layout import REASON_NUMBER, BatchRows
from strandline.spark.entry.set_aside import EntryLimits, Expected
from strandline.spark.session.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ANSWER = pa.schema([pa.field("answer", pa.string())])


class ArrowBlocks:
    """Writes the batches of one stream."""

    def __init__(self, place: Place, log: Log) -> None:
        self._place = place
        self._log = log
        self._rows = BatchRows(log.spec)
        self._expected = Expected()
        self._configured = False

    def write(self, df: DataFrame, limits: EntryLimits, ends: Sequence[int], name: str) -> list[Block]:
        """Writes the batch as durable blocks from `ends` on, which no manifest names yet. `name` is used once."""
        if not self._configured:  # in the session that Spark made for this query: its plans are small, always the same
            df.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
            self._configured = True
        self._expected.next_batch()
        while True:
            answers = self._answers(df, limits, ends, name)
            if not self._expected.learn(reason for answer in answers for reason in answer.get("found", ())):
                blocks = [block_from_json(answer) for answer in answers]
                self._expected.met(b for b in blocks if b.partition == self._log.spec.late)
                return blocks

    def _answers(self, df: DataFrame, limits: EntryLimits, ends: Sequence[int], name: str) -> list[dict[str, Any]]:
        """Runs the tasks and returns their answers: each block, or the reasons for which tuples must be set aside."""
        from pyspark.sql import functions as F

        reasons = self._expected.reasons
        rows = self._rows.ordered(df, limits, reasons, numbered=True)
        # Under plain names: mapInArrow does not quote those of the columns.
        columns = [column.alias(f"c{i}") for i, column in enumerate(self._rows.columns)]
        if reasons:
            columns.append(F.col(REASON_NUMBER).alias("reason"))
        sizes = {"bytes_max": block_sequence.BYTES_MAX, "rows_max": block_sequence.ROWS_MAX}
        job = _Job(self._place, self._log.spec.to_json(), tuple(ends), name, limits, reasons, sizes)
        answered = rows.select(*columns).mapInArrow(job.task(), "answer string").collect()
        return [json.loads(row["answer"]) for row in answered]


Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class _Job:
    """The data that the tasks of one batch need."""

    place: Place
    spec_json: bytes
    ends: tuple[int, ...]
    name: str
    limits: EntryLimits
    reasons: tuple[str, ...]
    sizes: Mapping[str, int]

    def task(self) -> Callable[[Batches], Batches]:
        """Returns the work of a task, in a form that Spark takes."""
        return lambda batches: (
            pa.RecordBatch.from_pydict({"answer": [json.dumps(answer)]}, schema=_ANSWER)
            for answer in self._answers(batches)
        )

    def _answers(self, batches: Batches) -> Iterator[Mapping[str, Any]]:
        """Writes a partition, and says of each block what a manifest says; or says why it cannot."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        spec = StreamSpec.from_json(self.spec_json, self.place.url)
        partition, storage = context.partitionId(), self.place.storage()
        first = self.ends[partition]

        def create(file: str, data: bytes) -> None:
            failpoint("during-seal")
            create_once(storage, file, data)

        # Every attempt has files of its own; those that Spark does not accept are collected later.
        unique = f"{self.name}-{context.taskAttemptId()}"
        found: set[str] = set()
        for reason, rows in itertools.groupby(self._rows(batches, spec, partition), key=lambda pair: pair[0]):
            parts = self._parts((batch for _, batch in rows), spec, partition, found)
            blocks = BlockSequence(spec, partition, first, unique, create, reason=reason, **self.sizes)
            for block in blocks.write(parts):
                yield {"partition": partition, **block_json(block)}
                first = block.end
        if found:
            yield {"found": sorted(found)}

    def _rows(self, batches: Batches, spec: StreamSpec, partition: int) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Yields the tuples in the stream's types, with the reason for which they are set aside."""
        for batch in batches:
            tuples = pa.Table.from_batches([batch]).select(range(len(spec.columns))).rename_columns(list(spec.columns))
            for typed in tuples.cast(spec.arrow).combine_chunks().to_batches():
                if partition != spec.late:
                    yield None, typed
                    continue
                numbers = batch.column(len(spec.columns)).to_numpy(zero_copy_only=False)
                starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
                for at, end in itertools.pairwise(starts):
                    yield self.reasons[int(numbers[at])], typed.slice(at, end - at)

    def _parts(self, batches: Batches, spec: StreamSpec, partition: int, found: set[str]) -> Iterator[Part]:
        """Yields the tuples until some must be set aside: then the batch is written again."""
        for batch in batches:
            if partition != spec.late:
                found |= self.limits.in_rows(batch, spec, partition) - set(self.reasons)
            if not found:
                yield Kind.RESULT, batch.columns
