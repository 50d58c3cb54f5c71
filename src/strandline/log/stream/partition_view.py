"""One partition of a stream as a stream of its own, so that each partition of an operator can take in all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from strandline.log.stream.block import Block
from strandline.log.stream.commit import Commit
from strandline.log.stream.log import END, Log, Times
from strandline.log.stream.log_state import LogState
from strandline.log.stream.spec import StreamSpec


class PartitionView(Log):
    """A handle for reading in which each of several partitions is the same partition of another handle.

    Blocks, offsets, commits and files are those of the stream. Whatever publishes uses `whole`.
    """

    def __init__(self, whole: Log, number: int, readers: int) -> None:
        """Shows the partition with this `number` to so many `readers`: the partitions of an operator."""
        self.whole = whole
        self.number = number
        self.readers = readers
        self.storage = whole.storage
        self.clock = whole.clock
        self.commits = whole.commits
        self._shown_state = whole.state, self._of(whole.state)
        self._shown_spec = whole.spec, replace(whole.spec, partitions=readers)

    @property
    def state(self) -> LogState:  # type: ignore[override]
        """The state of the stream, in which each partition is as that one."""
        now = self.whole.state
        if self._shown_state[0] is not now:
            self._shown_state = now, self._of(now)
        return self._shown_state[1]

    @property
    def spec(self) -> StreamSpec:
        """The description of the stream, with a partition for each reader."""
        now = self.whole.spec
        if self._shown_spec[0] is not now:
            self._shown_spec = now, replace(now, partitions=self.readers)
        return self._shown_spec[1]

    def _of(self, now: LogState) -> LogState:
        p, many, late = self.number, self.readers, self.whole.spec.late
        outage = now.outage
        if outage is not None and outage.forks:
            outage = replace(outage, forks=(outage.forks[p],) * many)
        return replace(
            now,
            starts=(now.starts[p],) * many + now.starts[late:],
            ends=(now.ends[p],) * many + now.ends[late:],
            boundaries=(now.boundaries[p],) * many,
            standings=(),
            outage=outage,
        )

    # ------------------------------------------------------------------ commits

    def refresh(self) -> bool:
        return self.whole.refresh()

    def reload(self) -> None:
        self.whole.reload()

    @property
    def kept(self) -> int:
        return self.whole.kept

    def commit(self, seq: int) -> Commit:
        return self.whole.commit(seq)

    def after(self, seq: int) -> Iterator[Commit]:
        return self.whole.after(seq)

    def before(self, seq: int) -> Iterator[Commit]:
        return self.whole.before(seq)

    # ------------------------------------------------------------------ blocks

    def blocks(
        self,
        partition: int,
        first: int = 0,
        end: int = END,
        time_from: int | None = None,
        time_until: int | None = None,
    ) -> Iterator[Block]:
        return self.whole.blocks(self.number, first, end, time_from, time_until)

    def read_block(self, block: Block, columns: list[str] | None = None) -> pa.Table:
        return self.whole.read_block(block, columns)

    def read_blocks(
        self, partition: int, first: int | None, end: int, columns: list[str] | None, times: Times, results: bool
    ) -> Iterator[tuple[Block, pa.Table]]:
        return self.whole.read_blocks(self.number, first, end, columns, times, results)

    def require_kept(self, partition: int, first: int) -> None:
        self.whole.require_kept(self.number, first)


def partition_views(whole: Log, readers: int) -> tuple[PartitionView, ...]:
    """Returns a view of each partition of a stream, on one handle."""
    return tuple(PartitionView(whole, number, readers) for number in range(whole.spec.partitions))
