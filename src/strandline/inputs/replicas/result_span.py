"""Some of the results that all replicas have, by their numbers: read from one, or from another if that one is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from strandline.clock import SYSTEM_CLOCK, Clock
from strandline.errors import CorruptManifestError, StorageError, StrandlineError, StreamMismatchError
from strandline.inputs.replicas.replica_check import require_replicable, require_result, row_checksum
from strandline.inputs.replicas.replica_set import MISSING
from strandline.log.operator_state.upstream import group_of
from strandline.log.reading.result_ordinals import offset_of_result
from strandline.log.storage.storage import Storage
from strandline.log.stream.block import Block
from strandline.log.stream.kinds import only_results
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec

WAIT_S = 60.0
"""The reader of a span waits that long for a replica that has it: others may lag behind the one that was lost."""
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Held:
    """Where a replica holds a span."""

    replica: int
    """Its number."""
    spec: bytes
    """Its `stream.json`."""
    first: int
    """Offsets."""
    end: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class ResultSpan:
    """Results of one partition, from one number to another."""

    partition: int
    first: int
    end: int
    last: str
    """A checksum of the result before the first, see `ResultPlace`."""
    group: str
    """Of which replicas, see `upstream.group_of`."""
    held: Held | None = None
    """Where they were when they were looked for; None if no replica had them."""

    def read(
        self, storages: Sequence[Callable[[], Storage]], *, clock: Clock = SYSTEM_CLOCK, wait_s: float = WAIT_S
    ) -> Iterator[tuple[int, pa.Table]]:
        """Reads all of the results, in order and once, as tables with the number of the first in each.

        Should a replica be lost on the way, another goes on behind the last result that was taken. Raises if none has
        the rest and `wait_s` are over. `storages` are those of the replicas, by their numbers.
        """
        reading = _Reading(self)
        if self.held is not None:
            try:
                yield from reading.held(self.held, storages[self.held.replica]())
                return
            except MISSING:
                pass
        until_us = clock.steady_us() + round(wait_s * 1_000_000)
        while True:
            problems: list[StrandlineError] = []
            for storage in self._in_turn(storages):
                try:
                    yield from reading.looked_up(Log.open(storage(), clock))
                    return
                except MISSING as problem:
                    problems.append(problem)
            if clock.steady_us() >= until_us:
                raise self._none_readable(problems)
            clock.sleep(_LOOK_EVERY_S)

    def _in_turn(self, storages: Sequence[Callable[[], Storage]]) -> Iterator[Callable[[], Storage]]:
        """Yields the replicas; the one that had the span comes first, because it may only have been compacted."""
        first = self.held.replica if self.held else 0
        return (storages[(first + i) % len(storages)] for i in range(len(storages)))

    def _none_readable(self, problems: Sequence[StrandlineError]) -> StrandlineError:
        return StorageError(
            f"none of the {len(problems)} replicas has the results {self.first:,} to {self.end - 1:,} of partition "
            f"{self.partition}, which one of the replicas had before",
            where="; ".join(f"{problem.what} ({problem.where})" for problem in problems),
            todo="start the query again when a replica is back, or has caught up: it goes on where it was",
        )


class _Reading:
    """The progress of reading a span, from any replica."""

    def __init__(self, span: ResultSpan) -> None:
        self._span = span
        self._next = span.first
        self._last: str | pa.Table = span.last
        """Of the result before that one: its checksum, or itself."""

    def held(self, held: Held, storage: Storage) -> Iterator[tuple[int, pa.Table]]:
        """Yields the results that the replica holds by what was seen of it, without a look at its commits."""
        log = Log(storage, StreamSpec.from_json(held.spec, storage.url))

        def tables() -> Iterator[pa.Table]:
            for block in held.blocks:
                cut = max(0, held.first - block.first)
                yield log.read_block(block).slice(cut, min(held.end, block.end) - block.first - cut)

        return self._taken(log, tables())

    def looked_up(self, log: Log) -> Iterator[tuple[int, pa.Table]]:
        """Yields the rest from a replica; raises, before the first of it, if that does not have all, or is another
        stream."""
        span, url = self._span, log.storage.url
        if group_of(log.spec) != span.group:
            raise StreamMismatchError(
                "this stream is no replica of the stream that was read: its operator or inputs differ", stream=url
            )
        require_replicable(log)
        require_result(log, span.partition, self._next, self._checksum(log.spec))
        require_result(log, span.partition, span.end, "")
        first, end = (offset_of_result(log, span.partition, number) for number in (self._next, span.end))
        return self._taken(log, log.read(span.partition, first, end))

    def _checksum(self, spec: StreamSpec) -> str:
        if isinstance(self._last, str):
            return self._last
        return row_checksum(self._last.select(list(spec.columns)).to_pylist()[0])

    def _taken(self, log: Log, tables: Iterator[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        for read in tables:
            table = only_results(read)
            if len(table):
                first, self._next = self._next, self._next + len(table)
                self._last = table.slice(len(table) - 1)
                yield first, table
        if self._next != self._span.end:
            raise CorruptManifestError(
                f"the commits count {self._span.end:,} results in partition {self._span.partition}, its blocks hold "
                f"{self._next:,}",
                stream=log.storage.url,
                todo="run `strandline verify` on the stream",
            )
