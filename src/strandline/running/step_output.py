"""The output of a step: blocks that go to the store as they fill, so that memory holds one of them.

A block that is written is not published. If the attempt dies between two of its blocks, the first ones are files that
no manifest names, like any other file that a dead attempt leaves.
"""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from strandline.clock import stopwatch_s
from strandline.failpoint import failpoint
from strandline.log.storage.storage import create_once
from strandline.log.stream.block import Block
from strandline.log.stream.block_sequence import BlockSequence
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log


class StepOutput:
    """The tuples that one attempt of a step writes to one partition, from the offset `first` on."""

    def __init__(self, output: Log, partition: int, first: int, attempt: str) -> None:
        self._first = first
        self._sequence = BlockSequence(output.spec, partition, first, attempt, self._store)
        self._storage = output.storage
        self._blocks: list[Block] = []
        self._counts: Counter[Kind] = Counter()
        self.write_s = 0.0
        """The time spent on writing blocks."""
        self.store_s = 0.0
        """The part of it that passed in the storage."""

    @property
    def rows(self) -> int:
        """The number of tuples, of any kind."""
        return self._counts.total()

    @property
    def end(self) -> int:
        """The offset behind the last tuple."""
        return self._first + self.rows

    def count(self, kind: Kind) -> int:
        """Returns the number of tuples of this kind."""
        return self._counts[kind]

    def add(self, kind: Kind, columns: list[pa.Array]) -> None:
        """Adds tuples; writes the blocks that are full. Kinds come one after the other."""
        if not len(columns[0]):
            return
        self._counts[kind] += len(columns[0])
        began_s = stopwatch_s()
        if written := self._sequence.add(kind, columns):
            self._blocks += written
            self.write_s += stopwatch_s() - began_s
            failpoint("between-blocks")

    def _store(self, key: str, data: bytes) -> None:
        began_s = stopwatch_s()
        create_once(self._storage, key, data)
        self.store_s += stopwatch_s() - began_s

    def finish(self) -> tuple[Block, ...]:
        """Returns all blocks, durable, under names that no other attempt uses; none if there is nothing to write."""
        failpoint("before-block")
        began_s = stopwatch_s()
        self._blocks += self._sequence.finish()
        self.write_s += stopwatch_s() - began_s
        failpoint("after-block")
        return tuple(self._blocks)
