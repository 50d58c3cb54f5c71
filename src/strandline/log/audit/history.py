"""The live blocks of a stream from its manifests (and milestone) alone: what the index must agree with.

Deliberately not the code of `index`: two ways to the same answer are what makes a comparison worth anything.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from strandline.errors import CorruptManifestError
from strandline.log.index.leaf import Leaf
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.block import Block
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import CompactCommit, TruncateCommit, announced
from strandline.log.stream.log_state import LogState
from strandline.log.stream.spec import StreamSpec

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

    def replace(self, block: Block, *, is_checked: bool = True) -> None:
        """Puts a compacted block in the place of those it stands for; raises if it is not the same tuples."""
        if self._recent and block.first < self._recent[0].first < block.end:
            self._seal()
        if self._recent and block.first >= self._recent[0].first:
            low = bisect.bisect_left(self._recent, block.first, key=lambda b: b.first)
            high = max(low, bisect.bisect_right(self._recent, block.end, key=lambda b: b.end))
            if is_checked:
                _require_same_tuples(block, self._recent[low:high])
            self._recent[low:high] = [block]
            return
        low = bisect.bisect_right(self._sealed, block.first, key=lambda leaf: int(leaf.end[-1]))
        high = max(low, bisect.bisect_left(self._sealed, block.end, key=lambda leaf: int(leaf.first[0])))
        kept: list[Leaf] = []
        gone: list[Block] = []
        for leaf in self._sealed[low:high]:
            inside = (leaf.first >= block.first) & (leaf.end <= block.end)
            gone += leaf.edited(~inside, ()).all()
            kept.append(leaf.edited(inside, ()))
        if is_checked:
            _require_same_tuples(block, gone)
        whole = Leaf.joined([*kept, Leaf.of([block])])
        self._sealed[low:high] = [whole]

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
    name = f"its block {block.file} (partition {block.partition}, offsets {block.first} to {block.end - 1})"
    if not gone or gone[0].first != block.first or gone[-1].end != block.end or tuples != block.tuples:
        raise _unusable(f"{name} does not take the place of whole blocks")
    if any(b.reason != block.reason for b in gone):
        raise _unusable(f"{name} says {block.reason!r} of tuples that are in the side log for other reasons, too")
    rows: Counter[str] = Counter()
    for b in gone:
        rows.update(b.rows)
    times = min(b.time_min for b in gone), max(b.time_max for b in gone)
    # Where footprints are, times are those of results, of footprints alone, or, in streams of before, of both.
    is_exact = set(rows) == {"result"}
    fits = times[0] <= block.time_min <= block.time_max <= times[1]
    if dict(rows) != dict(block.rows) or (times != (block.time_min, block.time_max) if is_exact else not fits):
        raise _unusable(
            f"{name} has {dict(block.rows)} at times {block.time_min} to {block.time_max}, "
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
        """True if every manifest so far was used."""
        self.adopted_ends = self.state.ends
        """Of the blocks before these ends it is not known who wrote them."""
        self.holes: list[tuple[int, int, int]] = []
        """Partition, first and end offset of what lost manifests published, and no compaction after them holds."""
        self.is_certain = True
        """True if every manifest since the last snapshot was used: what follows another can only be followed."""
        self._ends_in_doubt = self.state.ends
        self._announced: set[str] = set()
        self._is_behind = False

    def take(self, m: Commit) -> None:
        """Applies the next manifest; raises `CorruptManifestError` if it cannot stand here."""
        state = self.state
        if not self.is_certain and isinstance(m, TruncateCommit | CompactCommit):
            self._take_what_fits(m)
            return
        if self._is_behind and isinstance(m, AppendCommit):
            state = _caught_up(state, m)
            ends = enumerate(zip(self.state.ends, state.ends, strict=True))
            self.holes += [(p, old, new) for p, (old, new) in ends if new > old]
        state = state.apply(m)
        if isinstance(m, CompactCommit):
            for b in m.blocks:
                self.live[b.partition].replace(b)
                self.compacted.add(b.file)
        elif isinstance(m, AppendCommit):
            for b in m.blocks:
                self.live[b.partition].append(b)
            self._is_behind = False
        elif isinstance(m, TruncateCommit):
            self._drop_before(state.starts)
        self._announced |= announced([m])
        self.state = state

    def _take_what_fits(self, m: TruncateCommit | CompactCommit) -> None:
        """Follows a commit that names tuples of a lost one, which nothing can judge any more."""
        starts, ends = self.state.starts, list(self.state.ends)
        if isinstance(m, TruncateCommit) and len(m.starts) == len(starts):
            starts = tuple(max(pair) for pair in zip(starts, m.starts, strict=True))
            self._drop_before(starts)
        for b in m.blocks:
            self.live[b.partition].replace(b, is_checked=False)
            self.compacted.add(b.file)
            ends[b.partition] = max(ends[b.partition], b.end)  # it may hold the very tuples whose commit is lost
            self.holes = [
                (p, first, end) for p, first, end in self.holes if p != b.partition or first < b.first or end > b.end
            ]
        self.state = replace(self.state, seq=m.seq, starts=starts, ends=tuple(ends), tip=m.checksum)

    def _drop_before(self, starts: Sequence[int]) -> None:
        for live, start in zip(self.live, starts, strict=True):
            live.drop_before(start)

    def skip(self) -> None:
        """Goes past a manifest that cannot be used. The next append says where the offsets stand then."""
        self.state = replace(self.state, seq=self.state.seq + 1, tip="")
        self.is_whole = self.is_certain = False
        self._is_behind = True
        self._ends_in_doubt = self.state.ends

    def may_be_replaced(self, block: Block) -> bool:
        """Returns whether a manifest that cannot be used may have compacted or truncated this block."""
        return not self.is_certain and block.end <= self._ends_in_doubt[block.partition]

    def adopt(self, state: LogState, live: Iterable[Iterable[Block]]) -> None:
        """Takes a snapshot's word for everything up to here: of dropped or lost manifests it is the only witness."""
        self.state = state
        self.adopted_ends = state.ends
        self.live = [LiveBlocks(blocks) for blocks in live]
        self.holes = []
        self.is_certain = True
        self._is_behind = False

    def go_to(self, seq: int) -> None:
        """Goes past all manifests up to this one, none of which can be used."""
        self.state = replace(self.state, seq=seq - 1)
        self.skip()

    def check(self, m: Commit) -> None:
        """Raises `CorruptManifestError` if the manifest cannot stand here, whatever was before it."""
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


def _caught_up(state: LogState, m: AppendCommit) -> LogState:
    """Returns the state right before an append, from what the append says, never behind what is known."""
    firsts = {b.partition: b.first for b in reversed(m.blocks)}  # of several blocks of one partition, the first
    if len(m.ends) != len(state.ends):
        return state
    ends = tuple(max(old, firsts.get(p, end)) for p, (old, end) in enumerate(zip(state.ends, m.ends, strict=True)))
    return replace(state, ends=ends)


def _unusable(why: str) -> CorruptManifestError:
    return CorruptManifestError(why)
