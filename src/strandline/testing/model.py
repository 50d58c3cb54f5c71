"""A stream in plain lists: the specification of the log that can be run.

Per partition a list of blocks, each a list of tuples, and where the partition begins. Appending adds a block,
truncating drops blocks from the front, compacting joins neighbours and changes no tuple, no offset, no order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

Row: TypeAlias = tuple[object, ...]
"""One tuple: the values of its columns."""


class ModelStream:
    """A stream of `partitions` lists; the late side log is one more, the last.

    >>> stream = ModelStream(partitions=1, time=lambda row: row[0])
    >>> stream.append({0: [(10,), (20,)]}); stream.append({0: [(30,)]})
    >>> stream.truncate(before_offset={0: 2})
    >>> stream.read(0)
    [(2, (30,))]
    """

    def __init__(self, partitions: int, time: Callable[[Row], int]) -> None:
        self._time = time
        self._blocks: list[list[list[Row]]] = [[] for _ in range(partitions + 1)]
        self.starts = [0] * (partitions + 1)

    @property
    def ends(self) -> list[int]:
        """The next offset of each partition."""
        return [
            start + sum(len(block) for block in blocks) for start, blocks in zip(self.starts, self._blocks, strict=True)
        ]

    def append(self, batch: Mapping[int, Sequence[Row]], rows_max: int | None = None) -> None:
        """Appends a batch: a block a partition, or several of at most `rows_max` tuples."""
        for partition, rows in batch.items():
            for at in range(0, len(rows), rows_max or max(len(rows), 1)):
                self._blocks[partition].append(list(rows[at : None if rows_max is None else at + rows_max]))

    def compact(self, partition: int, first: int, end: int) -> None:
        """Joins the blocks of [first, end) into one. No tuple changes."""
        bounds = self.bounds(partition)
        low = [b[0] for b in bounds].index(first)
        high = [b[1] for b in bounds].index(end) + 1
        blocks = self._blocks[partition]
        blocks[low:high] = [[row for block in blocks[low:high] for row in block]]

    def truncate(self, *, before_time: int | None = None, before_offset: Mapping[int, int] | None = None) -> None:
        """Drops from the front the blocks all of whose tuples lie before the time, or before the offset."""
        for partition, blocks in enumerate(self._blocks):
            while blocks:
                end = self.starts[partition] + len(blocks[0])
                if before_time is not None:
                    lies_before = all(self._time(row) < before_time for row in blocks[0])
                else:
                    lies_before = end <= (before_offset or {}).get(partition, 0)
                if not lies_before:
                    break
                del blocks[0]
                self.starts[partition] = end

    def read(self, partition: int, first: int = 0, end: int | None = None) -> list[tuple[int, Row]]:
        """Returns the kept tuples of [first, end), with their offsets, in order."""
        rows = [row for block in self._blocks[partition] for row in block]
        stamped = list(enumerate(rows, self.starts[partition]))
        return [(offset, row) for offset, row in stamped if first <= offset and (end is None or offset < end)]

    def read_times(self, partition: int, time_from: int, time_until: int) -> list[tuple[int, Row]]:
        """Returns the kept tuples with a time in [time_from, time_until)."""
        return [found for found in self.read(partition) if time_from <= self._time(found[1]) < time_until]

    def bounds(self, partition: int) -> list[tuple[int, int]]:
        """Returns first and end offset of each block."""
        bounds: list[tuple[int, int]] = []
        first = self.starts[partition]
        for block in self._blocks[partition]:
            bounds.append((first, first + len(block)))
            first += len(block)
        return bounds
