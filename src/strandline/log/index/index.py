"""The index: every block of a stream, found by offset or time with a binary search.

It is derived from the newest milestone and the manifests after it, and may be lost at any time (`log` rebuilds it).
Every `FOLD_EVERY` commits become a leaf; `FANOUT` neighbours become one leaf of the next level, or, when that would
grow too large, one node that lists them. So the snapshot at the root stays small, each block's entry is rewritten a few
times in its life whatever the length of the stream, and a reader holds the root, a few leaves and the commits since the
last fold.

    snapshots/root.json ─► leaf … leaf (level 1)  leaf … leaf (level 0)   + commits since then, in memory
                       └─► node ─► leaf … leaf
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from strandline.errors import CorruptManifestError, KeyMissingError, concerning
from strandline.log.index.leaf import Leaf
from strandline.log.storage.storage import Storage
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.block import Block, checksum
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import CompactCommit
from strandline.log.stream.log_state import LogState
from strandline.log.stream.manifest import FORMAT, commit_key, read_checked, read_sealed, seal, unseal

FOLD_EVERY = 64
FANOUT = 64
LEAF_ENTRIES_MAX = 100_000
_FOLDER = "snapshots"
ROOT_KEY = f"{_FOLDER}/root.json"
_CACHED = 16
_FIRST = -(1 << 63)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Child:
    """A leaf or node as its parent sees it. `firsts` and `ends` say which offsets are looked up in it."""

    file: str
    checksum: str
    level: int
    is_leaf: bool
    entries: int
    tuples: int
    size_bytes: int
    firsts: tuple[int, ...]
    ends: tuple[int, ...]
    time_max: int | None
    """The largest time in the stream up to the end of this child."""
    boundary: int | None
    """The time before which nothing follows after this child."""
    seq: int
    results: int | None = field(default=None, compare=False)
    """The tuples that are results; None if its writer did not count them."""


def children_json(children: Sequence[Child]) -> dict[str, Any]:
    """Returns the children as a root, node or milestone holds them.

    Where there are others than results, how many results each has stands beside them: older readers look past it.
    """
    # Not `asdict`, which copies every number of every partition one by one.
    body = [{f.name: getattr(c, f.name) for f in fields(c) if f.name != "results"} for c in children]
    has_others = any(c.results is not None and c.results < c.tuples for c in children)
    return {"children": body, **({"results": [c.results for c in children]} if has_others else {})}


def children_in(body: Mapping[str, Any]) -> tuple[Child, ...]:
    """Returns the children that `children_json` wrote."""
    results = body.get("results") or [None] * len(body["children"])
    return tuple(
        Child(**{**child, "firsts": tuple(child["firsts"]), "ends": tuple(child["ends"]), "results": found})
        for child, found in zip(body["children"], results, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The root: the state of the stream at a commit, and the index of its blocks."""

    stream: str
    state: LogState
    children: tuple[Child, ...] = ()

    def encode(self) -> bytes:
        """Returns the bytes of root.json."""
        return seal({"format": self.state.format, **self.to_json()})

    def to_json(self) -> dict[str, Any]:
        """Returns the part that root.json and a milestone's file have in common."""
        return {"stream": self.stream, "state": self.state.to_json(), **children_json(self.children)}

    @classmethod
    def decode(cls, data: bytes, where: str) -> Snapshot:
        """Returns the snapshot in these bytes."""
        return cls.from_json(unseal(data, where))

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Snapshot:
        """Returns the snapshot that `to_json` wrote."""
        return cls(body["stream"], LogState.from_json(body["state"]), children_in(body))


class Index:
    """Reads and writes the leaves and nodes below a snapshot."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._leaves: OrderedDict[str, Leaf] = OrderedDict()
        self._nodes: OrderedDict[str, tuple[Child, ...]] = OrderedDict()

    # ------------------------------------------------------------------ reading

    def blocks(
        self,
        children: Sequence[Child],
        partition: int,
        first: int,
        end: int,
        time_from: int | None = None,
        time_until: int | None = None,
    ) -> Iterator[Block]:
        """Yields blocks of a partition, in order, that hold an offset in [first, end) and may hold a time in the range.

        The late side log (the last partition) is not ordered by time, so there only the leaves look at times.
        """
        low = bisect.bisect_right(children, first, key=lambda c: c.ends[partition])
        is_late = bool(children) and partition == len(children[0].ends) - 1
        if time_from is not None and not is_late:
            after = bisect.bisect_left(children, time_from, key=lambda c: _FIRST if c.time_max is None else c.time_max)
            low = max(low, after)
        for i in range(low, len(children)):
            child = children[i]
            if child.firsts[partition] >= end:
                return
            past = children[i - 1].boundary if i else None
            if time_until is not None and not is_late and past is not None and past >= time_until:
                return
            if child.is_leaf:
                yield from self.leaf(child).blocks(partition, first, end, time_from, time_until)
            else:
                yield from self.blocks(self.node(child), partition, first, end, time_from, time_until)

    def leaf(self, child: Child) -> Leaf:
        """Returns the leaf behind a child, from memory if it was read lately."""
        found = self._leaves.get(child.file)
        if found is None:
            found = Leaf.decode(self.read(child))
        _remember(self._leaves, child.file, found)
        return found

    def node(self, child: Child) -> tuple[Child, ...]:
        """Returns the children of a node, from memory if it was read lately."""
        found = self._nodes.get(child.file)
        if found is None:
            with concerning(self._storage.url):
                body = unseal(self.read(child), f"{self._storage.url}/{child.file}")
            found = children_in(body)
        _remember(self._nodes, child.file, found)
        return found

    def files(self, children: Iterable[Child]) -> Iterator[str]:
        """Yields every file of the index below these children."""
        for child in children:
            yield child.file
            if not child.is_leaf:
                yield from self.files(self.node(child))

    def leaves(self, children: Iterable[Child]) -> Iterator[Child]:
        """Yields every leaf below these children."""
        for child in children:
            if child.is_leaf:
                yield child
            else:
                yield from self.leaves(self.node(child))

    def read(self, child: Child) -> bytes:
        """Returns the bytes of a leaf or node; raises if their checksum is wrong."""
        what, todo = "a file of a milestone", "restore it from a copy"
        if child.file.startswith(f"{_FOLDER}/"):
            what, todo = "a file of the index", f"delete {ROOT_KEY}; the index is rebuilt"
        return read_checked(self._storage, child.file, child.checksum, what, todo)

    # ------------------------------------------------------------------ folding

    def fold(self, snapshot: Snapshot, tail: Sequence[Commit]) -> Snapshot:
        """Writes the new files of the snapshot after the commits of `tail`; returns it, to be put at the root."""
        state = before = snapshot.state
        for m in tail:
            state = state.apply(m)
        added = [b for m in tail if isinstance(m, AppendCommit) for b in m.blocks]
        replacements = outermost(b for m in tail if isinstance(m, CompactCommit) for b in m.blocks)
        edits = _Edits(replacements, state.starts)
        children = list(snapshot.children)
        if added:
            bounds = before.ends, state.ends, state.time_max, state.boundary, state.seq
            children.append(self._write_leaf(Leaf.of(added), Child("", "", 0, True, 0, 0, 0, *bounds)))
        if replacements or state.starts != before.starts:
            children = self._edited(children, edits)
        return Snapshot(snapshot.stream, state, tuple(self._merged(children)))

    def _write_leaf(self, leaf: Leaf, place: Child) -> Child:
        """Writes a leaf; `place` says where it stands in the index."""
        data = leaf.encode()
        sum_ = checksum(data)
        # The checksum in the name: two processes that fold the same commits write the same file, harmlessly.
        file = f"{_FOLDER}/{place.seq:020d}-{place.level}-{sum_.partition(':')[2]}.parquet"
        self._storage.put(file, data)
        _remember(self._leaves, file, leaf)
        return replace(
            place,
            file=file,
            checksum=sum_,
            entries=len(leaf),
            tuples=int((leaf.end - leaf.first).sum()),
            size_bytes=int(leaf.size_bytes.sum()),
            results=int(leaf.results.sum()),
        )

    def _write_node(self, children: Sequence[Child], level: int) -> Child:
        last = children[-1]
        data = seal({"format": FORMAT, **children_json(children)})
        sum_ = checksum(data)
        file = f"{_FOLDER}/{last.seq:020d}-{level}-{sum_.partition(':')[2]}.json"
        self._storage.put(file, data)
        _remember(self._nodes, file, tuple(children))
        return replace(
            last,
            file=file,
            checksum=sum_,
            level=level,
            is_leaf=False,
            entries=sum(c.entries for c in children),
            tuples=sum(c.tuples for c in children),
            size_bytes=sum(c.size_bytes for c in children),
            firsts=children[0].firsts,
            results=None if None in (counted := [c.results for c in children]) else sum(filter(None, counted)),
        )

    def _merged(self, children: list[Child]) -> list[Child]:
        """Joins the last FANOUT children whenever they are all of one level."""
        while len(children) >= FANOUT and len({c.level for c in children[-FANOUT:]}) == 1:
            group = children[-FANOUT:]
            level, last = group[0].level + 1, group[-1]
            if all(c.is_leaf for c in group) and sum(c.entries for c in group) <= LEAF_ENTRIES_MAX:
                leaf = Leaf.joined(self.leaf(c) for c in group)
                merged = self._write_leaf(leaf, replace(last, firsts=group[0].firsts, level=level))
            else:
                merged = self._write_node(group, level)
            children[-FANOUT:] = [merged]
        return children

    def _edited(self, children: Iterable[Child], edits: _Edits) -> list[Child]:
        """Returns the children after compactions and truncations; those that lost every entry are left out."""
        edited = (self._edited_child(c, edits) if edits.touch(c) else c for c in children)
        return [c for c in edited if c.entries]

    def _edited_child(self, child: Child, edits: _Edits) -> Child:
        ends, time_max = list(child.ends), child.time_max
        firsts = [min(max(f, s), e) for f, s, e in zip(child.firsts, edits.starts, ends, strict=True)]
        own: list[Block] = []
        for r in edits.replacements:
            p = r.partition
            if firsts[p] <= r.first < ends[p]:
                own.append(r)
            elif r.first < firsts[p] < r.end:
                firsts[p] = r.end
            else:
                continue
            # Raised in every child that it reaches into, so that neighbours stay in order for the binary searches.
            ends[p] = max(ends[p], r.end)
            time_max = r.time_max if time_max is None else max(time_max, r.time_max)
        if not child.is_leaf:
            below = self._edited(self.node(child), edits)
            if not below:
                return replace(child, entries=0)
            return replace(self._write_node(below, child.level), firsts=tuple(firsts), ends=tuple(ends))
        leaf = self.leaf(child)
        drop = (leaf.end <= np.asarray(edits.starts)[leaf.partition]) | leaf.covered_by(edits.replacements)
        kept = [r for r in own if r.end > edits.starts[r.partition]]
        place = replace(child, firsts=tuple(firsts), ends=tuple(ends), time_max=time_max)
        return self._write_leaf(leaf.edited(drop, kept), place)


class _Edits(NamedTuple):
    """The changes that compactions and truncations make to entries of the index."""

    replacements: list[Block]
    starts: tuple[int, ...]

    def touch(self, child: Child) -> bool:
        """Returns whether anything of the child changes."""
        cut = any(f < min(s, e) for f, s, e in zip(child.firsts, self.starts, child.ends, strict=True))
        return cut or any(
            r.first < child.ends[r.partition] and child.firsts[r.partition] < r.end for r in self.replacements
        )


def outermost(blocks: Iterable[Block]) -> list[Block]:
    """Returns the blocks of compactions without those that a later one has replaced again, by partition and offset.

    A later one stands for whole ones of before, so they lie within each other or apart.
    """
    found: list[Block] = []
    # The later first among equals: sorting keeps their order.
    for block in sorted(reversed(list(blocks)), key=lambda b: (b.partition, b.first, -b.end)):
        if not (found and covers(found[-1], block)):
            found.append(block)
    return found


def covers(outer: Block, inner: Block) -> bool:
    """Returns whether `outer` stands for all tuples of `inner`."""
    return outer.partition == inner.partition and outer.first <= inner.first and inner.end <= outer.end


def load_snapshot(storage: Storage, stream: str) -> Snapshot | None:
    """Returns the snapshot at the root; None if it is of no use, for it is only a shortcut.

    That is: missing, torn, of another stream, or ahead of the commits (in a copy made while the stream was written).
    """
    try:
        snapshot = Snapshot.from_json(read_sealed(storage, ROOT_KEY))
    except (KeyMissingError, CorruptManifestError):
        return None
    fits = snapshot.stream == stream and storage.exists(commit_key(snapshot.state.seq))
    return snapshot if fits else None


def _remember(cache: OrderedDict[str, _T], file: str, found: _T) -> None:
    cache[file] = found
    cache.move_to_end(file)
    if len(cache) > _CACHED:
        cache.popitem(last=False)
