"""Compaction as a stream grows: what is small is joined with its neighbours, level by level, a bounded piece at a time.

A block is joined with others only if it is no larger than all of them together, so that it ends up in one of at least
twice its tuples: a tuple is written anew a few times in its life, however long the stream becomes. Blocks that are
large enough are never touched again, and nothing before them is looked at twice. So the work of a piece, and of finding
it, follows what was appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from strandline.errors import ConflictError, CorruptionError, StrandlineError
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import NOTHING, Compacted, join, publish

TARGET_BYTES = 32 << 20
"""Less than what `compact` aims at by default: it is held in memory beside everything else that the process does."""
BLOCKS_MIN = 8
_LEVELS_APART = 8
"""No more than `BLOCKS_MIN`: then a block that is larger than all others of its level has few neighbours there."""
_REGION_BLOCKS = 4_096
_PIECE_BYTES = 4


class Levels:
    """Joins the small blocks of one stream, over a handle of its own."""

    def __init__(
        self,
        log: Log,
        *,
        target_bytes: int = TARGET_BYTES,
        blocks_min: int = BLOCKS_MIN,
        unique: Callable[[], str] | None = None,
    ) -> None:
        self._log = log
        self._target_bytes = target_bytes
        self._blocks_min = blocks_min
        self._unique = unique
        self._settled = list(log.state.starts)
        """Per partition: before this offset no blocks are left to be joined."""
        self._next = 0
        self.failure: StrandlineError | None = None
        """Why the last step had to leave blocks as they are."""

    def step(self) -> Compacted:
        """Joins at most one run of blocks in each partition, as one commit; nothing at all if none is left.

        Bounded: it reads about four blocks of the target size at most, then leaves the other partitions to the next.
        """
        log = self._log
        self.failure = None
        log.refresh()
        base_seq = log.state.seq
        runs: dict[str, Sequence[Block]] = {}
        made: list[Block] = []
        total = NOTHING
        for _ in range(log.spec.partitions + 1):
            partition, self._next = self._next, (self._next + 1) % (log.spec.partitions + 1)
            run = self._run(partition)
            joined = self._joined(run) if run else None
            if joined is not None:
                runs[joined.file] = run
                made.append(joined)
            if sum(b.size_bytes for found in runs.values() for b in found) >= _PIECE_BYTES * self._target_bytes:
                break
        for joined in publish(log, made, base_seq) if made else ():
            total = total.plus(runs[joined.file], joined)
        return total

    def _joined(self, run: Sequence[Block]) -> Block | None:
        try:
            return join(self._log, run, self._unique and self._unique())
        except CorruptionError as problem:
            # These cannot be joined; their readers will say so, and the others need not suffer for it.
            self.failure = problem
            self._settled[run[0].partition] = run[-1].end
            return None

    def _run(self, partition: int) -> Sequence[Block]:
        """Returns neighbours that should become one block; empty if there are none."""
        log = self._log
        first = self._settled[partition] = max(self._settled[partition], log.state.starts[partition])
        # A recovery reads the blocks behind this offset, whole: a large one would cost it dearly.
        standings, limit = log.state.standings, log.state.ends[partition]
        limit -= standings[partition].extent if partition < len(standings) else 0
        region: list[Block] = []
        size = 0
        try:
            for block in log.blocks(partition, first, limit):
                if block.end > limit:
                    break
                is_large = 2 * block.size_bytes > self._target_bytes
                if not is_large:
                    region.append(block)
                    size += block.size_bytes
                is_full = len(region) >= _REGION_BLOCKS or size >= 2 * self._target_bytes
                if is_large or is_full:
                    if run := self._best(region):
                        return run
                    # Few, and each of them nearly large enough; or what lies between two large ones.
                    self._settled[partition] = block.end
                    region, size = [], 0
        except ConflictError:  # another process compacts them right now
            return ()
        return self._best(region)

    def _best(self, region: Sequence[Block]) -> Sequence[Block]:
        """Returns the first run that is worth it, of the smallest blocks that have one."""
        if len(region) < self._blocks_min:
            return ()
        largest = max(b.tuples for b in region)
        level = _LEVELS_APART
        while True:
            for run in self._runs(region, level):
                if len(run) >= self._blocks_min and sum(b.tuples for b in run) >= 2 * max(b.tuples for b in run):
                    return run
            if level > largest:
                return ()
            level *= _LEVELS_APART

    def _runs(self, region: Sequence[Block], level: int) -> Iterator[list[Block]]:
        """Yields neighbours of fewer tuples than `level`, together no more than make a large block.

        In the side log all tuples of a block have one reason, which its name says.
        """
        for (is_below, _), neighbours in groupby(region, key=lambda b: (b.tuples < level, b.reason)):
            run: list[Block] = []
            size = 0
            for block in neighbours if is_below else ():
                run.append(block)
                size += block.size_bytes
                if size >= self._target_bytes:
                    yield run
                    run, size = [], 0
            if run:
                yield run
