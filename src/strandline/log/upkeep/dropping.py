"""Dropping commits: a milestone takes the place of the commits before it, and most of those are deleted.

Without this a stream at five batches a second gains a hundred million commits in a year, and a reader without the
index reads all of them. The order of things is what makes it safe, at whichever point a process dies:

    1  copies of the index's files, and of where some appends ended, under names never used before
    2  the milestone's commit, whose writer has seen all commits before it: none has announced these files
    3  the mark, created if absent: from here on every process that looks knows which commits are kept
    4  the commits before those are deleted, oldest first

A process that finds step 2 done goes on with step 3. The files of 1 and 2 are made durable before 3, and the mark
before 4, also with `durability="os"`: else a power loss could cost what was deleted for it, however old.

Why no process mistakes a dropped commit for one that never was: see `commits`.
"""

from __future__ import annotations

import bisect
import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from strandline.errors import CorruptManifestError, KeyMissingError, StorageError
from strandline.log.index import cuts
from strandline.log.index.cuts import CutFile
from strandline.log.index.index import Child, Index, children_json
from strandline.log.storage import durable_file
from strandline.log.storage.storage import Storage, create_once
from strandline.log.stream.block import checksum
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import MilestoneCommit, announced
from strandline.log.stream.commits import write_mark
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.log.stream.manifest import FORMAT_2, commit_key, seal, seq_of
from strandline.log.stream.milestone import FOLDER, Milestone, mark_key

KEEP_COMMITS = 4_096
KEEP_US = 24 * 3_600_000_000
MILESTONE_EVERY = 16_384


@dataclass(frozen=True, slots=True)
class Dropped:
    """The outcome of one call."""

    milestone: Milestone | None
    """The one that was made, if one was."""
    commits: int
    """Commits that were deleted."""


def drop_commits(
    log: Log,
    *,
    keep_commits: int = KEEP_COMMITS,
    keep_us: int = KEEP_US,
    every: int = MILESTONE_EVERY,
    deletes_max: int | None = None,
    unique: Callable[[], str] = lambda: uuid.uuid4().hex,
) -> Dropped:
    """Makes a milestone if `every` commits were folded since the last one, and deletes commits that are not kept.

    The newest `keep_commits` are kept, and what is younger than `keep_us` by the clocks of its writers: after a clock
    was set back, younger ones may go, which costs patience and not safety. Safe while writers and readers run.
    """
    log.reload()
    made: Milestone | None = None
    kept_before = log.kept
    folded = log.state.milestone.folded if log.state.milestone else -1
    # Not worth more than a try: what goes wrong with the index, or because of others, is done the next time.
    with contextlib.suppress(CorruptManifestError, KeyMissingError):
        log.index_files()  # mends an index that has lost a file
        if log.snapshot.state.seq - folded >= every:
            made = _make(log, log.clock.now_us() - keep_us, keep_commits, unique())
    if made is not None and kept_before > 1:
        # What processes that stood still for long have created at the numbers of dropped commits.
        for listed in log.storage.list("commits"):
            if 0 < (seq_of(listed.key) or 0) < kept_before:
                log.storage.delete(listed.key)
    return Dropped(made, _delete(log, deletes_max))


# ---------------------------------------------------------------------- steps 1 to 3


def _make(log: Log, cutoff_us: int, keep_commits: int, unique: str) -> Milestone | None:
    previous, snapshot, base_seq = log.state.milestone, log.snapshot, log.state.seq
    if previous is not None:
        _mark(log, previous)  # before the next one is published: the numbers of marks have no gaps
    kept = _first_kept(log, cutoff_us, keep_commits)
    number = previous.number + 1 if previous else 0
    written = _Files(log.storage, f"{FOLDER}/{number:020d}-{unique}")
    copied = replace(snapshot, children=_copied(log, written, snapshot.children))
    cut_files = _cut_files(log, written, kept)
    body = seal(
        {
            "format": max(FORMAT_2, copied.state.format),
            **copied.to_json(),
            "cuts": [file.to_json() for file in cut_files],
        }
    )
    milestone = Milestone(number, snapshot.state.seq, kept, written.create("json", body), checksum(body))

    def make(state: LogState, seen: Sequence[Commit]) -> MilestoneCommit | None:
        if state.milestone != previous or written.names & announced(seen):
            return None  # another milestone was made, or the files of this one were collected
        return MilestoneCommit(*log.stamp(state), milestone=milestone)

    return milestone if log.publish(make, since=base_seq) else None


def _first_kept(log: Log, cutoff_us: int, keep_commits: int) -> int:
    """Returns the first commit that is young, among the newest, or has announced files that are not deleted yet."""
    low = log.state.milestone.kept if log.state.milestone else 0
    high = min([log.snapshot.state.seq, log.state.seq + 1 - keep_commits, *log.state.announced[:1]])
    return low + bisect.bisect_right(range(low, high), cutoff_us, key=lambda seq: log.commit(seq).published_us)


class _Files:
    """Writes files under new names, and remembers them."""

    def __init__(self, storage: Storage, prefix: str) -> None:
        self._storage = storage
        self._prefix = prefix
        self.names: set[str] = set()

    def create(self, suffix: str, data: bytes) -> str:
        name = f"{self._prefix}-{len(self.names)}.{suffix}"
        create_once(self._storage, name, data)
        self.names.add(name)
        return name


def _copied(log: Log, written: _Files, children: Sequence[Child]) -> tuple[Child, ...]:
    """Returns these children with files of the milestone's own, or of the last milestone where they are alike."""
    index = Index(log.storage)
    snapshot = log.commits.snapshot()
    known = {leaf.checksum: leaf.file for leaf in index.leaves(snapshot.children)} if snapshot else {}

    def copy(child: Child) -> Child:
        if not child.is_leaf:
            data = seal({"format": FORMAT_2, **children_json([copy(c) for c in index.node(child)])})
            return replace(child, file=written.create("json", data), checksum=checksum(data))
        if child.checksum not in known:
            known[child.checksum] = written.create("parquet", index.read(child))
        return replace(child, file=known[child.checksum])

    return tuple(copy(child) for child in children)


def _cut_files(log: Log, written: _Files, kept: int) -> list[CutFile]:
    """Returns the cuts of all commits before `kept`, as far as their tuples are still there; the last of them in any
    case.

    That one says up to which time nothing follows, or that nothing follows at all: news also for an operator that has
    taken in every tuple.
    """
    files = log.commits.cut_files()
    last = files[-1] if files else None
    first = max(last.last + 1 if last else 0, log.kept)
    rows = list(cuts.chosen(log.commit, range(first, kept), sum(last.ends) if last else 0, log.spec.partitions))
    live = [file for file in files if any(end > start for end, start in zip(file.ends, log.state.starts, strict=True))]
    if not rows:
        return live or files[-1:]
    if live and not live[-1].is_full:
        rows = [*cuts.read(log.storage, live.pop(), log.spec.id), *rows]
    data = cuts.encode(rows)
    file = written.create("parquet", data)
    return [*live, CutFile(file, checksum(data), len(rows), rows[-1].seq, rows[-1].ends)]


def _mark(log: Log, milestone: Milestone) -> None:
    """Creates the mark, once what must be durable before it is.

    The commits after those that are folded, too, the milestone's own among them: if a power loss took that and left the
    mark, the next milestone would want the same number.
    """

    def keys() -> Iterator[str]:
        if not log.storage.exists(mark_key(milestone.number)):
            yield from sorted(log.commits.files(milestone))
            yield from (commit_key(seq) for seq in range(milestone.folded + 1, log.state.seq + 1))

    make_durable(log.storage, keys())
    create_once(log.storage, mark_key(milestone.number), write_mark(milestone, log.spec.id))


# ---------------------------------------------------------------------- step 4


def _delete(log: Log, deletes_max: int | None) -> int:
    milestone, storage = log.state.milestone, log.storage
    if milestone is None or not milestone.kept:
        return 0
    _mark(log, milestone)
    # The first commit's number stays taken: a Strandline that knows no milestones would take the stream for empty.
    mark = write_mark(milestone, log.spec.id)
    if not storage.exists(commit_key(0)) or storage.read(commit_key(0)) != mark:
        storage.put(commit_key(0), mark)
    gone = bisect.bisect_left(range(1, milestone.kept), True, key=lambda seq: storage.exists(commit_key(seq)))
    seqs = range(1, milestone.kept)[gone:][:deletes_max]
    if seqs:
        make_durable(storage, [mark_key(milestone.number), commit_key(0)])
    for seq in seqs:
        storage.delete(commit_key(seq))
    return len(seqs)


def make_durable(storage: Storage, keys: Iterable[str]) -> None:
    """Returns when these keys will survive a power loss, also those of other writers and of `durability="os"`.

    Keys that are not there are left out. Stores elsewhere show only what is durable: nothing is done for them.
    """
    anywhere = storage.local_path("x")
    if anywhere is None:
        return
    folders = set()
    try:
        for key in keys:
            path = anywhere.parent / key
            with suppress(FileNotFoundError):
                durable_file.sync_file(str(path))
                folders.add(str(path.parent))
        for folder in sorted(folders):
            durable_file.sync_names_up_to(folder, str(anywhere.parent))
    except OSError as error:
        raise StorageError(
            f"could not make files durable: {error.strerror or error}",
            stream=storage.url,
            todo="mend the disk, then start again; nothing was deleted",
        ) from error
