"""Checks that the newest milestone, which nothing else can replace, is complete."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from strandline.errors import CorruptManifestError, KeyMissingError, StrandlineError
from strandline.log.audit.index_audit import IndexAudit
from strandline.log.audit.problem import Problem
from strandline.log.index import cuts
from strandline.log.index.index import Index, Snapshot
from strandline.log.storage.storage import Storage
from strandline.log.stream.commits import Commits
from strandline.log.stream.milestone import FOLDER, is_mark, mark_key
from strandline.log.stream.spec import StreamSpec
from strandline.wording import plural

_TODO = "restore the file from a copy of the stream; the commits that the milestone stands for are dropped"


class MilestoneAudit:
    """The checks of the newest milestone of a stream, and of the marks."""

    def __init__(self, storage: Storage, spec: StreamSpec, commits: Commits) -> None:
        self._storage = storage
        self._spec = spec
        self._commits = commits

    def unmarked(self) -> Iterator[Problem]:
        """Numbers of milestones that have lost their mark, which lets a frozen process go astray."""
        numbers = [int(listed.key[-25:-5]) for listed in self._storage.list(FOLDER) if is_mark(listed.key)]
        if (dropped_for := self._commits.dropped_for()) is not None:
            numbers.append(dropped_for.number + 1)
        for number in range(max(numbers, default=-1)):
            if not self._storage.exists(mark_key(number)):  # a listing may lag behind
                what = f"the mark of milestone {number} is missing"
                yield Problem("milestone", what, file=mark_key(number), todo="restore it from a copy of the stream")

    def snapshot(self) -> tuple[Snapshot | None, list[Problem]]:
        """Returns the contents of the newest milestone, if it can be read, and what is wrong with it."""
        try:
            snapshot = self._commits.snapshot()
            problems = [] if snapshot is None else list(self._unreadable(snapshot))
        except (StrandlineError, KeyError, TypeError, ValueError) as problem:
            what, where = (problem.what, problem.where) if isinstance(problem, StrandlineError) else (repr(problem), "")
            file = where.removeprefix(f"{self._storage.url}/") if isinstance(problem, CorruptManifestError) else where
            return None, [Problem("milestone", f"the newest milestone cannot be read: {what}", file=file, todo=_TODO)]
        if snapshot is None or problems:
            return None, problems
        return snapshot, list(self._gaps(snapshot))

    def _unreadable(self, snapshot: Snapshot) -> Iterator[Problem]:
        for problem in IndexAudit(Index(self._storage), snapshot, self._spec).unreadable():
            yield Problem("milestone", "a file of the newest milestone is missing or rotten", problem.file, todo=_TODO)
        for file in self._commits.cut_files():
            try:
                found = cuts.read(self._storage, file, self._spec.id)
                if [m.seq for m in found][-1:] != [file.last] or len(found) != file.rows:
                    yield Problem("milestone", "a file of cuts is not the one that was written", file.file, todo=_TODO)
            except (CorruptManifestError, KeyMissingError, OSError, ValueError):
                yield Problem("milestone", "a file of cuts is missing or rotten", file.file, todo=_TODO)

    def _gaps(self, snapshot: Snapshot) -> Iterator[Problem]:
        index, state = Index(self._storage), snapshot.state
        for p, (start, end) in enumerate(zip(state.starts, state.ends, strict=True)):
            blocks = index.blocks(snapshot.children, p, start, end) if start < end else iter(())
            bounds = itertools.chain([(start, start)], ((max(b.first, start), b.end) for b in blocks), [(end, end)])
            for (_, reached), (first, _) in itertools.pairwise(bounds):
                if reached != first:
                    what = f"the newest milestone has no block for {plural(first - reached, 'tuple')}"
                    yield Problem("milestone", what, FOLDER + "/", p, reached, first, todo=_TODO)
