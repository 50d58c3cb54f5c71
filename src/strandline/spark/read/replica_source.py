"""Replicas as a source of Spark: each result once, by its number, from whichever of them is there.

What a query has read is said by numbers of results, which mean the same in all replicas. So a batch that Spark repeats
after a restart is the same, and a task whose replica is lost looks the same numbers up in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from strandline.control_columns import KIND, PARTITION
from strandline.errors import StreamMismatchError
from strandline.inputs.replicas.numbered_results import NumberedResults
from strandline.inputs.replicas.replica_changes import Changes, ReplicaChanges
from strandline.inputs.replicas.replica_place import ReplicaPlace
from strandline.inputs.replicas.replica_story import RESULT
from strandline.inputs.replicas.result_span import ResultSpan
from strandline.log.reading.tentative_results import CHANGES
from strandline.log.stream.kinds import Kind
from strandline.spark.read.read_options import ReadOptions, shared_out

ROWS_PER_BATCH = 1 << 16


class SpanPartition(InputPartition):
    """The span of results that one task reads."""

    def __init__(self, span: ResultSpan) -> None:
        self.span = span


class ReplicaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the results of replicas."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        options.require_streaming()
        self._options = options
        self._schema = schema
        self._set = options.replica_set()
        self._results = NumberedResults(self._set)
        self._until: tuple[int, ...] | None = None

    def initialOffset(self) -> dict[str, Any]:
        place = self._first()
        self._tell_consumer(place)
        return place.to_json()

    def _first(self) -> ReplicaPlace:
        start = self._options.start
        if start == "earliest":
            return self._results.oldest()
        if start == "latest":
            return self._results.newest()
        time = self._options.start_time(self._set.spec)
        assert time is not None
        return self._results.at(time)

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_tuples_per_batch
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._results.newest().results

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        place = self._place(start)

        def taken(there: Sequence[int]) -> Sequence[int]:
            if self._until is not None:
                ends = zip(there, self._until, place.results, strict=True)
                there = [max(0, min(has, until - read)) for has, until, read in ends]
            if isinstance(limit, ReadMaxRows) and sum(there) > limit.max_rows:
                return shared_out(there, limit.max_rows)
            return there

        return self._results.after(place, taken).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [SpanPartition(span) for span in self._results.spans(self._place(start), self._place(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SpanPartition)
        for results in self._of_span(partition.span):
            yield from self._batches(results)

    def _of_span(self, span: ResultSpan) -> Iterator[pa.Table]:
        """Yields the results, with the columns of their positions if Spark wants them."""
        for first, table in span.read([place.storage for place in self._options.replicas]):
            results = table.drop_columns([KIND])
            if self._options.positions or self._options.tentative:
                number = pa.repeat(pa.scalar(span.partition, pa.int32()), len(table))
                numbers = pa.array(np.arange(first, first + len(table)))
                results = results.append_column(PARTITION, number).append_column(RESULT, numbers)
            yield results

    def _batches(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yields the columns that Spark wants, in its types."""
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        return iter(table.select(wanted.names).cast(wanted).to_batches(max_chunksize=ROWS_PER_BATCH))

    def commit(self, end: dict[str, Any]) -> None:
        self._tell_consumer(self._place(end))

    def _tell_consumer(self, place: ReplicaPlace) -> None:
        if self._options.consumer is not None:
            self._results.register(self._options.consumer, place)

    def _place(self, position: dict[str, Any]) -> ReplicaPlace:
        if position.get("group") != self._results.group:
            raise StreamMismatchError(
                "this query has read other streams before: their operator or its inputs differ",
                where=self._options.where,
                todo="start the query with a new Spark checkpoint",
            )
        return ReplicaPlace.from_json(position)


class ChangesPartition(InputPartition):
    """The changes that one task reads."""

    def __init__(self, changes: Changes) -> None:
        self.changes = changes


class ReplicaChangesReader(ReplicaStreamReader):
    """Follows all that happens to the results of replicas: guesses and undo, too."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._changes = ReplicaChanges(self._set, self._results)
        self._ends = False
        """True if the query ends as soon as it has come to the end of one look."""

    def prepareForTriggerAvailableNow(self) -> None:
        self._ends, self._changes.is_all_told = True, False

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        place = self._place(start)
        if self._ends and self._changes.is_all_told:
            return start
        return self._changes.after(place, *((limit.max_rows,) if isinstance(limit, ReadMaxRows) else ())).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [ChangesPartition(one) for one in self._changes.between(self._place(start), self._place(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ChangesPartition)
        changes, stable = partition.changes, pa.scalar(CHANGES[Kind.RESULT])
        yield from (batch for table in changes.before for batch in self._batches(table))
        for results in self._of_span(changes.results) if changes.results else ():
            yield from self._batches(results.append_column(KIND, pa.repeat(stable, len(results))))
        yield from (batch for table in changes.after for batch in self._batches(table))
