"""The commits since the last fold: what they add to the blocks of the index, and what they put in their place.

Kept by partition: to list the blocks of each of a thousand partitions costs as much as the blocks, not a thousand
times the commits.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence

from strandline.log.index.index import covers
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.block import Block
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import CompactCommit


class Tail:
    """Some commits that follow each other, and their blocks by partition."""

    def __init__(self, commits: Iterable[Commit] = ()) -> None:
        self.commits: list[Commit] = []
        self._appended: dict[int, list[Block]] = {}
        self._compacted: dict[int, list[Block]] = {}
        for m in commits:
            self.append(m)

    def __len__(self) -> int:
        return len(self.commits)

    def append(self, m: Commit) -> None:
        """Adds the next commit."""
        self.commits.append(m)
        if isinstance(m, AppendCommit):
            for b in m.blocks:
                self._appended.setdefault(b.partition, []).append(b)
        elif isinstance(m, CompactCommit):
            for b in m.blocks:
                # A newer one may cover older ones; those that are left do not overlap.
                others = (old for old in self._compacted.get(b.partition, ()) if not covers(b, old))
                self._compacted[b.partition] = sorted([*others, b], key=lambda block: block.first)

    def after(self, seq: int) -> list[Commit]:
        """Returns the commits of the tail after `seq`."""
        return self.commits[bisect.bisect_right(self.commits, seq, key=lambda m: m.seq) :]

    def blocks(
        self, partition: int, first: int, end: int, time_from: int | None = None, time_until: int | None = None
    ) -> list[Block]:
        """Returns appended blocks with an offset in [first, end) and perhaps a time in [time_from, time_until)."""
        appended = self._appended.get(partition, [])
        low = bisect.bisect_right(appended, first, key=lambda b: b.end)
        high = bisect.bisect_left(appended, end, lo=low, key=lambda b: b.first)
        return [
            b
            for b in appended[low:high]
            if (time_from is None or b.time_max >= time_from) and (time_until is None or b.time_min < time_until)
        ]

    def replaced(self, found: Iterable[Block], partition: int) -> Iterator[Block]:
        """Yields the blocks found, or, once each, the compacted ones that stand for them as of this call."""
        return _replaced(found, self._compacted.get(partition, []))


def _replaced(found: Iterable[Block], compacted: Sequence[Block]) -> Iterator[Block]:
    shown: Block | None = None
    for block in found:
        at = bisect.bisect_right(compacted, block.first, key=lambda b: b.first) - 1
        stands_for = compacted[at] if at >= 0 and covers(compacted[at], block) else block
        if stands_for is not shown:
            yield stands_for
        shown = stands_for
