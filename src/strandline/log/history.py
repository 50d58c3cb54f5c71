"""The live blocks of a stream from its manifests alone: what the index must agree with.

Deliberately not the code of `index`: two ways to the same answer are what makes a comparison worth anything.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from strandline.errors import CorruptManifestError
from strandline.log.block import Block
from strandline.log.leaf import Leaf
from strandline.log.manifest import Manifest
from strandline.log.spec import StreamSpec
from strandline.log.state import LogState

_SEAL_AT = 4_096


class LiveBlocks:
    """The blocks of one partition, in the order of their offsets.

    All but the last few thousand are kept as columns: a stream of a million commits then takes megabytes, not
    gigabytes.
    """

    def __init__(self, blocks: Iterable[Block] = ()) -> None:
        self._sealed: list[Leaf] = []
        self._recent: list[Block] = []
        for block in blocks:
            self.append(block)

    def __len__(self) -> int:
        return sum(len(leaf) for leaf in self._sealed) + len(self._recent)

    def __iter__(self) -> Iterator[Block]:
        for leaf in self._sealed:
            yield from leaf.all()
        yield from self._recent

    def append(self, block: Block) -> None:
        """Adds a block behind all others."""
        self._recent.append(block)
        if len(self._recent) >= _SEAL_AT:
            self._seal()

    def _seal(self) -> None:
        if self._recent:
            self._sealed.append(Leaf.of(self._recent))
            self._recent = []

    def replace(self, block: Block) -> None:
        """Puts a compacted block in the place of those it stands for; raises if it is not the same tuples."""
        if self._recent and block.first >= self._recent[0].first:
            inside = [b.first >= block.first and b.end <= block.end for b in self._recent]
            gone = [b for b, is_inside in zip(self._recent, inside, strict=True) if is_inside]
            _require_same_tuples(block, gone)
            at = inside.index(True)
            self._recent[at : at + len(gone)] = [block]
            return
        if self._recent and block.end > self._recent[0].first:
            self._seal()
        low = bisect.bisect_right(self._sealed, block.first, key=lambda leaf: int(leaf.end[-1]))
        high = bisect.bisect_left(self._sealed, block.end, key=lambda leaf: int(leaf.first[0]))
        touched = self._sealed[low:high]
        inside_of = [(leaf.first >= block.first) & (leaf.end <= block.end) for leaf in touched]
        gone = [b for leaf, drop in zip(touched, inside_of, strict=True) for b in leaf.edited(~drop, ()).all()]
        _require_same_tuples(block, gone)
        kept = [
            leaf.edited(drop, (block,) if i == 0 else ())
            for i, (leaf, drop) in enumerate(zip(touched, inside_of, strict=True))
        ]
        self._sealed[low:high] = [leaf for leaf in kept if len(leaf)]

    def drop_before(self, start: int) -> None:
        """Takes out the blocks that end at or before an offset."""
        past = bisect.bisect_right(self._sealed, start, key=lambda leaf: int(leaf.end[-1]))
        del self._sealed[:past]
        if self._sealed:
            drop = self._sealed[0].end <= start
            if np.any(drop):
                self._sealed[0] = self._sealed[0].edited(drop, ())
        self._recent = [b for b in self._recent if b.end > start]


def _require_same_tuples(block: Block, gone: Sequence[Block]) -> None:
    """Raises unless the compacted block has the offsets, kinds and times of the blocks that it replaces."""
    tuples = sum(b.tuples for b in gone)
    if not gone or gone[0].first != block.first or gone[-1].end != block.end or tuples != block.tuples:
        raise _unusable(
            f"its block {block.file} (partition {block.partition}, offsets {block.first} to {block.end - 1}) "
            f"does not take the place of whole blocks"
        )
    rows: Counter[str] = Counter()
    for b in gone:
        rows.update(b.rows)
    times = min(b.time_min for b in gone), max(b.time_max for b in gone)
    if dict(rows) != dict(block.rows) or times != (block.time_min, block.time_max):
        raise _unusable(
            f"its block {block.file} (partition {block.partition}, offsets {block.first} to {block.end - 1}) "
            f"has {dict(block.rows)} at times {block.time_min} to {block.time_max}, "
            f"the blocks it replaces {dict(rows)} at times {times[0]} to {times[1]}"
        )


class History:
    """The fold of the manifests, one after the other; goes on behind a manifest that cannot be used."""

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = spec
        self.state = LogState.empty(spec.partitions)
        self.live = [LiveBlocks() for _ in range(spec.partitions + 1)]
        self.compacted: set[str] = set()
        """Files of blocks that a compaction wrote: only inside others are tuples in the order of time."""
        self.is_whole = True
        """Whether every manifest so far was used."""
        self._announced: set[str] = set()
        self._is_behind = False

    def take(self, m: Manifest) -> None:
        """Applies the next manifest, or raises `CorruptManifestError` and changes nothing."""
        self._check(m)
        state = self.state
        if self._is_behind:
            if m.kind != "append":
                # What it speaks of may be in the manifest that is lost, so nothing can be said about it.
                self.state = replace(state, seq=m.seq)
                return
            state = _caught_up(state, m)
        state = state.apply(m)
        if m.kind == "compact":
            for b in m.blocks:
                self.live[b.partition].replace(b)
                self.compacted.add(b.file)
        elif m.kind == "append":
            for b in m.blocks:
                self.live[b.partition].append(b)
        elif m.kind == "truncate":
            for live, start in zip(self.live, state.starts, strict=True):
                live.drop_before(start)
        self._announced.update(m.files)
        self.state = state
        self._is_behind = False

    def skip(self) -> None:
        """Goes past a manifest that cannot be used. The next append says where the offsets stand then."""
        self.state = replace(self.state, seq=self.state.seq + 1)
        self.is_whole = False
        self._is_behind = True

    def adopt(self, state: LogState, live: Iterable[Iterable[Block]]) -> None:
        """Takes the index's word for everything up to here: after a lost manifest it is the only witness."""
        self.state = state
        self.live = [LiveBlocks(blocks) for blocks in live]
        self._is_behind = False

    def _check(self, m: Manifest) -> None:
        if m.stream != self.spec.id:
            raise _unusable(f"it belongs to another stream, {m.stream}")
        if m.seq != self.state.seq + 1:
            raise _unusable(f"it says that it is commit {m.seq}")
        for b in m.blocks:
            if not 0 <= b.partition <= self.spec.late:
                raise _unusable(f"there is no partition {b.partition}")
            if b.file in self._announced:
                raise _unusable(
                    f"it names {b.file} (partition {b.partition}, offsets {b.first} to {b.end - 1}), "
                    "which an earlier commit announced for deletion"
                )


def _caught_up(state: LogState, m: Manifest) -> LogState:
    """The state right before an append, from what the append says, never behind what is known."""
    firsts = {b.partition: b.first for b in m.blocks}
    if len(m.ends) != len(state.ends):
        return state
    ends = tuple(max(old, firsts.get(p, end)) for p, (old, end) in enumerate(zip(state.ends, m.ends, strict=True)))
    return replace(state, ends=ends)


def _unusable(why: str) -> CorruptManifestError:
    return CorruptManifestError(why)
