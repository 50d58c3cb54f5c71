"""What is true in a run, kept apart from the library: every effect on the disk goes through here and is checked.

published is never lost, never doubled, order kept, offsets dense; batches appear once each, in order
a manifest is never overwritten, and names no file that is missing or was announced for deletion
only announced files are deleted, and none that is live
a truncation cuts between blocks and takes nothing that a registered consumer needs
what anybody has seen survives a power loss
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from strandline.clock import ManualClock
from strandline.log.index.index import Index, Snapshot
from strandline.log.stream import commit_kinds, commits, manifest
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.block import Block, checksum
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import (
    CollectCommit,
    CompactCommit,
    ConsumerCommit,
    MilestoneCommit,
    TruncateCommit,
)
from strandline.log.stream.log import END
from strandline.log.stream.log_state import LogState
from strandline.log.stream.milestone import Milestone, is_mark, mark_key
from strandline.testing import MemoryStorage
from tests.support.items import Item, item_spec

PARTITIONS = 2
LATE = PARTITIONS
LATENESS = 6
STREAM = item_spec(PARTITIONS).id

Live = tuple[tuple[Block, ...], ...]


class Violation(BaseException):
    """A promise of the log is broken; a `BaseException`, so that no code of the library swallows it."""


def require(holds: bool, *what: object) -> None:
    if not holds:
        raise Violation(" ".join(str(w) for w in what))


class Batches:
    """The content of every batch, decided by its number and the seed: what Spark would give again after a restart."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._batches: list[dict[int, list[Item]]] = []
        self._time_max: int | None = None

    def __getitem__(self, number: int) -> dict[int, list[Item]]:
        while len(self._batches) <= number:
            self._batches.append(self._make(len(self._batches)))
        return self._batches[number]

    def boundary_before(self, number: int) -> int:
        """What a heartbeat may promise before this batch: no tuple of it, or of any later one, is older."""
        following = [t for n in range(number, number + 6) for p in range(PARTITIONS) for _, _, t in self[n][p]]
        return min([4 * (number + 6) - 2 * LATENESS, *following])

    def _make(self, number: int) -> dict[int, list[Item]]:
        rng = Random(self._seed * 1_000_003 + number)
        now = 4 * number + rng.randint(0, 4)
        boundary = -(10**9) if self._time_max is None else self._time_max - LATENESS
        batch: dict[int, list[Item]] = {p: [] for p in range(PARTITIONS + 1)}
        for i in range(rng.randint(0, 4)):
            p = rng.randrange(PARTITIONS)
            item = (p, number * 100 + i, now - rng.randint(0, 2 * LATENESS))
            batch[LATE if item[2] < boundary else p].append(item)
        for rows in batch.values():
            rows.sort(key=lambda item: (item[2], item))
        times = [t for p in range(PARTITIONS) for _, _, t in batch[p]]
        self._time_max = max([*times, *([] if self._time_max is None else [self._time_max])], default=None)
        return batch


def milestone_of(commit: Commit) -> Milestone | None:
    """Returns the milestone that this commit makes; None if it makes none."""
    return commit.milestone if isinstance(commit, MilestoneCommit) else None


@dataclass
class Ledger:
    """The history so far, as plain lists."""

    batches: Batches
    rows: list[list[Item]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS + 1)])
    starts: list[int] = field(default_factory=lambda: [0] * (PARTITIONS + 1))
    live: list[list[Block]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS + 1)])
    announced: set[str] = field(default_factory=set)
    batch: int = -1
    boundaries: tuple[int | None, ...] | None = None
    moments: list[tuple[tuple[int, ...], tuple[int, ...], Live]] = field(default_factory=list)
    """After each commit: starts, ends, live blocks."""
    promises: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """What each consumer was told that it may rely on."""
    commits: list[Commit] = field(default_factory=list)
    """Every commit there ever was, dropped or not."""
    marks: list[Milestone] = field(default_factory=list)
    seen_seq: int = -1
    """The newest commit that anybody has been shown."""
    acknowledged: int = -1
    """The newest batch that a writer was told is published."""

    def take(self, m: Commit, holds: Callable[[Block], bool]) -> None:
        """One more commit; `holds` tells whether the disk has the bytes of a block."""
        require(m.seq == len(self.moments), "commit", m.seq, "after", len(self.moments) - 1)
        for b in m.blocks:
            require(b.file not in self.announced, "commit", m.seq, "names", b.file, "which was announced")
            require(holds(b), "commit", m.seq, "names", b.file, "which is not on the disk as described")
        getattr(self, f"_take_{m.kind}")(m)
        self.commits.append(m)
        live = tuple(tuple(blocks) for blocks in self.live)
        self.moments.append((tuple(self.starts), tuple(len(rows) for rows in self.rows), live))

    def _take_append(self, m: AppendCommit) -> None:
        if not m.blocks and (m.writer.batch if m.writer else -1) == self.batch:
            known = (None,) * PARTITIONS if self.boundaries is None else self.boundaries
            require(m.boundaries != known, "batch", m.writer, "is there twice")  # else it is a heartbeat
            self.boundaries = m.boundaries
            return
        self.boundaries = m.boundaries
        require(m.writer is not None and m.writer.batch == self.batch + 1, "batch", m.writer, "after", self.batch)
        self.batch += 1
        expected = {p: list(rows) for p, rows in self.batches[self.batch].items() if rows}
        require({b.partition for b in m.blocks} == set(expected), "batch", self.batch, "lacks a partition")
        for b in m.blocks:
            rows = self.rows[b.partition]
            require(b.first == len(rows), b, "is not dense")
            rows += expected[b.partition][: b.tuples]
            del expected[b.partition][: b.tuples]
            require(b.end == len(rows), b, "has more tuples than batch", self.batch)
            self.live[b.partition].append(b)
        require(not any(expected.values()), "batch", self.batch, "has more tuples than its blocks:", expected)

    def _take_compact(self, m: CompactCommit) -> None:
        for b in m.blocks:
            live = self.live[b.partition]
            inside = [old for old in live if b.first < old.end and old.first < b.end]
            require(bool(inside) and inside[0].first == b.first and inside[-1].end == b.end, b, "replaces", inside)
            at = live.index(inside[0])
            live[at : at + len(inside)] = [b]

    def _take_truncate(self, m: TruncateCommit) -> None:
        for p, start in enumerate(m.starts):
            if start == self.starts[p]:
                continue
            require(self.starts[p] < start, "partition", p, "began at", self.starts[p], "and begins at", start)
            for name, needs in self.promises.items():
                require(p == LATE or start <= needs[p], name, "needs", needs, "but partition", p, "begins at", start)
            kept = [b for b in self.live[p] if b.first >= start]
            require(all(b.end <= start for b in self.live[p] if b not in kept), "a block is cut at", start)
            self.live[p], self.starts[p] = kept, start

    def _take_collect(self, m: CollectCommit) -> None:
        hit = self.live_files.intersection(m.files)
        require(not hit, "live files were announced", hit)
        self.announced.update(m.files)

    def _take_consumer(self, m: ConsumerCommit) -> None:
        pass

    def _take_milestone(self, m: MilestoneCommit) -> None:
        pass  # the disk has looked at its files

    def mark(self, milestone: Milestone) -> None:
        """From here on the commits before `milestone.kept` may be deleted."""
        require(milestone.number == len(self.marks), "milestone", milestone, "is marked after", self.marks)
        require(milestone.kept >= self.kept, milestone, "goes back behind", self.kept)
        require(milestone in map(milestone_of, self.commits), milestone, "is marked and was never committed")
        self.marks.append(milestone)

    @property
    def kept(self) -> int:
        return self.marks[-1].kept if self.marks else 0

    @property
    def live_files(self) -> set[str]:
        return {b.file for blocks in self.live for b in blocks}

    # ------------------------------------------------------------------ what processes say they have seen

    def saw(self, state: LogState) -> None:
        """A handle has shown this state to its user."""
        if state.seq < 0:
            return
        require(state.seq < len(self.moments), "commit", state.seq, "was shown and does not exist")
        starts, ends, _ = self.moments[state.seq]
        require((state.starts, state.ends) == (starts, ends), state, "is not what commit", state.seq, "left")
        self.seen_seq = max(self.seen_seq, state.seq)

    def was_published(self, m: Commit) -> None:
        """A publisher was told that this commit is part of the history."""
        require(m.seq < len(self.commits) and self.commits[m.seq] == m, m, "is not what is published", m.seq)

    def saw_appends(self, state: LogState, done: int, found: Sequence[AppendCommit]) -> None:
        """A handle in this state has listed the appends after a commit; some of the dropped ones may be missing."""
        appends = [m for m in self.commits[done + 1 : state.seq + 1] if isinstance(m, AppendCommit)]
        shown = {m.seq: (m.ends, m.boundaries) for m in found}
        require([m.seq for m in found] == sorted(shown), "appends are not in order", found)
        kept = max((made.kept for made in map(milestone_of, self.commits) if made), default=0)
        for m in appends:
            require(m.seq in shown or m.seq < kept, "append", m.seq, "after", done, "is not in", sorted(shown))
            if m.seq in shown:
                require(shown.pop(m.seq) == (m.ends, m.boundaries), "append", m.seq, "is not what it was")
        require(not shown, "commits", sorted(shown), "are no appends after", done)
        require(not appends or appends[-1].ends == found[-1].ends, "tuples are left out at the end, after", done)

    def saw_blocks(self, state: LogState, partition: int, blocks: Sequence[Block]) -> None:
        """A handle in this state has listed a partition from its start to its end."""
        expected = self.moments[state.seq][2][partition] if state.seq >= 0 else ()
        require(tuple(blocks) == expected, "at commit", state.seq, "partition", partition, blocks, "not", expected)

    def saw_blocks_of_time(
        self, state: LogState, partition: int, blocks: Sequence[Block], since: int, until: int
    ) -> None:
        """A handle in this state has looked for [since, until): it may find too much, but never too little."""
        live = self.moments[state.seq][2][partition] if state.seq >= 0 else ()
        require([b for b in live if b in blocks] == list(blocks), "found", blocks, "which are not all of", live)
        for b in live:
            hit = any(since <= t < until for _, _, t in self.rows[partition][b.first : b.end])
            require(b in blocks or not hit, b, "has a time in", (since, until), "and was not found at", state.seq)

    def saw_items(self, partition: int, found: Sequence[tuple[int, Item]]) -> None:
        """A reader was given these tuples."""
        for offset, item in found:
            rows = self.rows[partition]
            require(offset < len(rows), "offset", offset, "of partition", partition, "was read, but not published")
            require(item == rows[offset], "offset", offset, "of partition", partition, item, "not", rows[offset])


class Disk(MemoryStorage):
    """The disk of a run, which tells the ledger of every effect."""

    def __init__(self, clock: ManualClock, ledger: Ledger) -> None:
        super().__init__(clock)
        self._batches = ledger.batches
        self.ledger = ledger
        self._is_losing = False

    def create(self, key: str, data: bytes) -> None:
        super().create(key, data)
        if is_mark(key):
            self.ledger.mark(commits.read_mark(data, STREAM, key))
        elif key.startswith("commits/") and number_of(key) >= self.ledger.kept:  # else nobody is to believe it
            m = commit_kinds.decode(data, key)
            if (made := milestone_of(m)) is not None:
                self._check_milestone(made)
            self.ledger.take(m, self._holds)

    def put(self, key: str, data: bytes) -> None:
        is_tombstone = key == manifest.commit_key(0) and self.ledger.kept > 0
        require(not key.startswith("commits/") or is_tombstone or self._is_losing, key, "was overwritten")
        super().put(key, data)

    def delete(self, key: str) -> None:
        if not self._is_losing and not key.startswith("consumers/"):
            is_dropped = key.startswith("commits/") and 0 < number_of(key) < self.ledger.kept
            require(is_dropped or key in self.ledger.announced, key, "was deleted and never announced")
            require(key not in self.ledger.live_files, key, "was deleted and is live")
            require(key not in self._milestone_files(), key, "was deleted and is of the newest milestone")
        super().delete(key)

    def _holds(self, block: Block) -> bool:
        return self.exists(block.file) and checksum(self.read(block.file)) == block.checksum

    def _milestone_files(self) -> set[str]:
        newest = next(filter(None, map(milestone_of, reversed(self.ledger.commits))), None)
        return commits.Commits(self, STREAM).files(newest)

    def _check_milestone(self, milestone: Milestone) -> None:
        """What a milestone holds must be what the commits it stands for had added up to."""
        snapshot = Snapshot.from_json(commits.read_body(self, milestone))
        starts, ends, live = self.ledger.moments[milestone.folded]
        require(
            (snapshot.state.starts, snapshot.state.ends) == (starts, ends), milestone, "is not what was", starts, ends
        )
        for p, expected in enumerate(live):
            found = tuple(Index(self).blocks(snapshot.children, p, starts[p], END))
            require(found == expected, milestone, "has in partition", p, found, "not", expected)
        hit = self.ledger.announced & commits.Commits(self, STREAM).files(milestone)
        require(not hit, milestone, "rests on files that were announced", hit)

    def lose_power(self, lose: Callable[[], None]) -> None:
        """Lets `lose` take back writes, and begins a new ledger from the commits that are left."""
        self._is_losing = True
        lose()
        self._is_losing = False
        old = self.ledger
        self.ledger = new = Ledger(self._batches, acknowledged=old.acknowledged, seen_seq=old.seen_seq)
        marks = [mark for mark in old.marks if self.exists(mark_key(mark.number))]
        require(marks == old.marks[: len(marks)], "a mark is lost before", marks[-1:])
        kept = marks[-1].kept if marks else 0
        while len(new.moments) < kept or self.exists(key := manifest.commit_key(len(new.moments))):
            # A file that is deleted by now may have been there when its commit was made: the old ledger has seen it.
            dropped = len(new.moments) < kept
            m = old.commits[len(new.moments)] if dropped else commit_kinds.decode(self.read(key), key)
            new.take(m, lambda _block: True)
        for mark in marks:
            new.mark(mark)
        new.promises = old.promises
        left = [number for listed in self.list("commits") if (number := number_of(listed.key)) >= kept]
        require(left == [*range(kept, len(new.moments))], "a commit is lost among", left)
        require(len(new.moments) > old.seen_seq, "commit", old.seen_seq, "was shown and is lost")
        require(new.batch >= old.acknowledged, "batch", old.acknowledged, "was acknowledged and is lost")
        for b in (b for blocks in new.live for b in blocks):
            require(self._holds(b), b.file, "is live and lost its bytes")
        for file in self._milestone_files():
            require(self.exists(file), file, "is of the newest milestone and lost")


def number_of(key: str) -> int:
    """The number of a commit."""
    return int(key.removeprefix("commits/").removesuffix(".json"))
