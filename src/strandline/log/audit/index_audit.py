"""Compares the answers of the index with those of the manifests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from strandline.errors import KeyMissingError, StrandlineError
from strandline.log.audit.history import History
from strandline.log.audit.problem import Problem
from strandline.log.index.index import ROOT_KEY, Child, Index, Snapshot
from strandline.log.index.leaf import Leaf
from strandline.log.stream.block import Block
from strandline.log.stream.log import END
from strandline.log.stream.log_state import LogState
from strandline.log.stream.spec import StreamSpec

_TODO = f"delete {ROOT_KEY}; the index is rebuilt from the manifests"


@dataclass(frozen=True, slots=True)
class IndexAudit:
    """The checks of one snapshot and of what lies below it."""

    index: Index
    snapshot: Snapshot
    spec: StreamSpec

    def unreadable(self) -> list[Problem]:
        """Yields the files of the index that are missing or rotten."""
        return list(self._unreadable(self.snapshot.children))

    def _unreadable(self, children: Iterable[Child]) -> Iterator[Problem]:
        for child in children:
            try:
                if child.is_leaf:
                    self.index.leaf(child)
                else:
                    yield from self._unreadable(self.index.node(child))
            except KeyMissingError:
                yield Problem("index", "a file of the index is missing", file=child.file, todo=_TODO)
            except (StrandlineError, OSError, ValueError) as problem:
                what = problem.what if isinstance(problem, StrandlineError) else str(problem)
                yield Problem("index", what, file=child.file, todo=_TODO)

    def blocks(self) -> Iterator[Iterator[Block]]:
        """Returns, per partition, every block that the index knows."""
        for partition in range(self.spec.partitions + 1):
            yield self._blocks(partition)

    def _blocks(self, partition: int) -> Iterator[Block]:
        start = self.snapshot.state.starts[partition]
        return self.index.blocks(self.snapshot.children, partition, start, END)

    def differences(self, history: History) -> list[Problem]:
        """Returns where the index and the fold of the manifests do not agree: in one problem a partition."""
        found = list(self._differences_of_state(history.state))
        for partition, live in enumerate(history.live):
            wrong = ((a, b) for a, b in _side_by_side(live, self._blocks(partition)) if a != b)
            if (first := next(wrong, None)) is not None:
                others = sum(1 for _ in wrong)
                more = f" (and {others} further blocks of this partition)" if others else ""
                problem = _difference(*first)
                found.append(replace(problem, what=problem.what + more))
        return found

    def _differences_of_state(self, state: LogState) -> Iterator[Problem]:
        for field in fields(LogState):
            ours, theirs = getattr(state, field.name), getattr(self.snapshot.state, field.name)
            if field.name == "tip" and not theirs:
                continue  # an index of a version that did not know it
            if ours != theirs:
                what = f"at commit {state.seq} the index says {field.name} {theirs!r}, the manifests say {ours!r}"
                yield Problem("index", what, file=ROOT_KEY, todo=_TODO)

    def unfindable(self) -> list[Problem]:
        """Yields blocks that a search by offset and time would not find.

        Of each leaf and partition, the two blocks that bend a search most are looked up: the one that reaches furthest
        and the one that begins earliest.
        """
        found: list[Problem] = []
        for leaf in map(self.index.leaf, self.index.leaves(self.snapshot.children)):
            has_results = leaf.results > 0  # no search looks for footprints by their time
            for partition in np.unique(leaf.partition):
                own = np.flatnonzero((leaf.partition == partition) & has_results)
                if not len(own):
                    continue
                extremes = {int(own[np.argmax(leaf.time_max[own])]), int(own[np.argmin(leaf.time_min[own])])}
                found += [p for row in sorted(extremes) for p in self._unfindable(leaf, row)]
        return found

    def _unfindable(self, leaf: Leaf, row: int) -> Iterator[Problem]:
        b = next(Leaf(leaf.table.slice(row, 1)).all())
        if b.end <= self.snapshot.state.starts[b.partition]:
            return
        by_time = self.index.blocks(
            self.snapshot.children, b.partition, b.first, b.end, time_from=b.time_max, time_until=b.time_min + 1
        )
        if not any(hit.file == b.file for hit in by_time):
            what = f"a search in the index by time does not find the block {b.file}, times {b.time_min} to {b.time_max}"
            yield Problem("index", what, ROOT_KEY, b.partition, b.first, b.end, todo=_TODO)


def _difference(ours: Block | None, theirs: Block | None) -> Problem:
    b = ours or theirs
    assert b is not None
    if theirs is None:
        what = f"the index does not know the block {b.file}"
    elif ours is None:
        what = f"the index knows a block that the manifests do not have here, {b.file}"
    else:
        what = f"the index says {theirs} where the manifests say {ours}"
    return Problem("index", what, ROOT_KEY, b.partition, b.first, b.end, todo=_TODO)


def _side_by_side(ours: Iterable[Block], theirs: Iterable[Block]) -> Iterator[tuple[Block | None, Block | None]]:
    """Yields two ordered lists of blocks, matched by their first offset."""
    left, right = iter(ours), iter(theirs)
    a, b = next(left, None), next(right, None)
    while a is not None or b is not None:
        if b is None or (a is not None and a.first < b.first):
            yield a, None
            a = next(left, None)
        elif a is None or b.first < a.first:
            yield None, b
            b = next(right, None)
        else:
            yield a, b
            a, b = next(left, None), next(right, None)
