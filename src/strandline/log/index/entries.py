"""The entries of all live blocks in the index, as columns: how many tuples, of what times, in how many bytes.

No block is opened. Of an operator's stream only results are tuples: footprints take up offsets and bytes, but no
reader gets them, and the end of a window that is still open is no time of the stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from strandline.errors import CorruptionError, KeyMissingError
from strandline.log.index.index import Child, Index, outermost
from strandline.log.index.leaf import Ints, Leaf
from strandline.log.index.profile import Spans, profiles_of
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.commit_kinds import CompactCommit
from strandline.log.stream.log import END, Log
from strandline.log.stream.log_state import LogState


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """One partition, or the late side log. Times are the log's integers."""

    partition: int
    start: int
    end: int
    boundary: int | None
    tuples: int
    """Results between start and end; in an operator's stream there are footprints beside them."""
    blocks: int
    size_bytes: int
    time_min: int | None
    """Of results."""
    time_max: int | None


@dataclass(frozen=True, slots=True)
class Histogram:
    """Tuples over time: bucket i covers [edges[i], edges[i + 1])."""

    edges: tuple[float, ...]
    tuples: tuple[int, ...]
    """Tuples of a block count as spread evenly over its time range, or over 64 parts of it as its profile says."""


class Entries:
    """Seven numbers of every live block, as columns, and the profiles of those that compaction made."""

    def __init__(self, log: Log) -> None:
        self._late = log.spec.late
        self._has_footprints = log.spec.operator is not None
        try:
            leaves = [self._columns_of(leaf) for leaf in _live_leaves(log)]
        except (CorruptionError, KeyMissingError):
            # The log's own search mends an index that has lost a file.
            leaves = [self._columns_of(Leaf.of(log.blocks(p))) for p in range(log.spec.partitions + 1)]
        self._numbers = np.concatenate([numbers for numbers, _ in leaves], axis=1)
        partition, _, end, *_ = self._numbers
        is_live = end > np.asarray(log.state.starts)[partition]
        self._numbers = self._numbers[:, is_live]
        chunks = [chunk for _, profiles in leaves for chunk in profiles.chunks]
        self._profiles = pa.chunked_array(chunks, pa.string()).filter(pa.array(is_live))

    def _columns_of(self, leaf: Leaf) -> tuple[Ints, pa.ChunkedArray]:
        results = leaf.results if self._has_footprints else leaf.end - leaf.first
        columns = [leaf.partition, leaf.first, leaf.end, leaf.time_min, leaf.time_max, leaf.size_bytes, results]
        return np.stack(columns), profiles_of(leaf.table.column("file"))

    def tuples_from(self, offsets: Sequence[int]) -> Ints:
        """Returns, per partition, the side log last, the results at these offsets and behind.

        Those of a block that lies across, between footprints, count as spread evenly over it.
        """
        partition, first, end, *_, results = self._numbers
        behind = np.clip(end - np.asarray(offsets, dtype=np.int64)[partition], 0, end - first)
        found = np.zeros(len(offsets), dtype=np.int64)
        np.add.at(found, partition, -(-results * behind // (end - first)))
        return found

    def partitions(self, state: LogState) -> list[PartitionSummary]:
        """Sums and extremes of each partition, the late side log last."""
        partition, _, _, time_min, time_max, size_bytes, results = self._numbers
        many = len(state.ends)
        tuples = self.tuples_from(state.starts)
        blocks, sizes = (np.zeros(many, dtype=np.int64) for _ in range(2))
        lowest, highest = np.full(many, np.iinfo(np.int64).max), np.full(many, np.iinfo(np.int64).min)
        np.add.at(blocks, partition, 1)
        np.add.at(sizes, partition, size_bytes)
        timed = results > 0
        np.minimum.at(lowest, partition[timed], time_min[timed])
        np.maximum.at(highest, partition[timed], time_max[timed])
        if self._has_footprints:
            # In streams of before, blocks have the times of footprints, too; all results lie before the boundary.
            bounds = [END if b is None else b for b in state.boundaries]
            highest = np.minimum(highest, [*bounds, END])
        return [
            PartitionSummary(
                partition=p,
                start=state.starts[p],
                end=state.ends[p],
                boundary=state.boundaries[p] if p < len(state.boundaries) else None,
                tuples=int(tuples[p]),
                blocks=int(blocks[p]),
                size_bytes=int(sizes[p]),
                time_min=int(lowest[p]) if tuples[p] else None,
                time_max=int(highest[p]) if tuples[p] else None,
            )
            for p in range(many)
        ]

    def since(self, offsets: Sequence[int]) -> tuple[int, int]:
        """Returns the tuples and bytes of the blocks at or behind these offsets of their partitions; none is late."""
        partition, _, end, _, _, size_bytes, results = self._numbers
        held = end > np.asarray([*offsets, END], dtype=np.int64)[partition]
        return int(results[held].sum()), int(size_bytes[held].sum())

    def histogram(self, lowest: int, highest: int, buckets: int) -> Histogram:
        """Returns the tuples of the partitions, without the late side log, over time."""
        shown = (self._numbers[0] != self._late) & (self._numbers[6] > 0)
        _, _, _, time_min, time_max, _, tuples = self._numbers[:, shown].astype(np.float64)
        spans = Spans(time_min, time_max, tuples).sliced(self._profiles.filter(pa.array(shown)))
        counts = spans.over(float(lowest), float(highest), buckets)
        edges = float(lowest) + (float(highest) - float(lowest) + 1.0) / buckets * np.arange(buckets + 1)
        whole = np.rint(np.cumsum(counts))  # rounding sums keeps the total
        return Histogram(tuple(edges.tolist()), tuple(np.diff(whole, prepend=0).astype(int).tolist()))


def tuples_kept(log: Log) -> int:
    """Returns how many results the partitions hold now, at a cost that does not grow with the stream.

    The root of the index says it, and the commits since; leaves are read where some of their blocks were just dropped,
    or where an earlier version has not counted.
    """
    starts, ends = np.asarray(log.state.starts), np.asarray(log.state.ends)
    if log.spec.operator is None:
        return int((ends - starts)[:-1].sum())
    appended = (b for m in log.tail.commits if isinstance(m, AppendCommit) for b in m.blocks)
    index = Index(log.storage)

    def below(children: Sequence[Child]) -> int:
        found = 0
        for child in children:
            is_cut = bool((np.asarray(child.firsts) < np.minimum(starts, child.ends)).any())
            if child.results is not None and not is_cut:
                found += child.results
            elif child.is_leaf:
                leaf = index.leaf(child)
                found += int(leaf.results[leaf.end > starts[leaf.partition]].sum())
            else:
                found += below(index.node(child))
        return found

    try:
        kept = below(log.snapshot.children) + sum(b.results for b in appended if b.end > starts[b.partition])
        return kept - int(ends[-1] - starts[-1])  # in the side log all are results
    except (CorruptionError, KeyMissingError):
        return int(Entries(log).tuples_from(log.state.starts)[:-1].sum())


def _live_leaves(log: Log) -> Iterator[Leaf]:
    """Yields the entries of the index, less those that later commits replaced, plus those that they added."""
    replacements = outermost(b for m in log.tail.commits if isinstance(m, CompactCommit) for b in m.blocks)
    appended = Leaf.of(b for m in log.tail.commits if isinstance(m, AppendCommit) for b in m.blocks)
    index = Index(log.storage)
    for leaf in itertools.chain(map(index.leaf, index.leaves(log.snapshot.children)), [appended]):
        drop = leaf.covered_by(replacements)
        yield leaf.edited(drop, ()) if drop.any() else leaf
    yield Leaf.of(replacements)
