"""Reading a whole stream again, and naming everything that is wrong with it.

Nothing is changed, nothing is trusted: the manifests are folded from the first one on, or from the newest milestone
where the first ones are dropped; the index is compared with that fold, and every live block is decoded. A stream may be
verified while others write, compact and truncate it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from strandline.clock import stopwatch_s
from strandline.errors import CorruptManifestError, DroppedError, KeyMissingError, StrandlineError
from strandline.log.audit import consumer_audit
from strandline.log.audit.block_audit import BlockAudit
from strandline.log.audit.history import History
from strandline.log.audit.index_audit import IndexAudit
from strandline.log.audit.milestone_audit import MilestoneAudit
from strandline.log.audit.problem import Problem
from strandline.log.index.index import ROOT_KEY, Index, Snapshot, covers
from strandline.log.operator_state import loss_record
from strandline.log.operator_state.standing import Standing
from strandline.log.storage.storage import Storage
from strandline.log.stream.block import Block
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import CompactCommit, TruncateCommit
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import commit_key, seq_of
from strandline.log.upkeep.unreferenced import IsLive, is_live_in, unreferenced
from strandline.wording import plural

Progress = Callable[[int, int, int], None]
"""Called with blocks done, blocks in all (0 while the manifests are read) and bytes read."""

UNREFERENCED_NAMED = 100
_NAMED = 4


@dataclass(frozen=True, slots=True)
class Unreferenced:
    """Files that nothing refers to: of crashed attempts, or replaced and not collected yet. They do no harm."""

    files: int
    size_bytes: int
    names: tuple[str, ...]
    """The first of them."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The outcome of `verify`: the amounts that were read, and all problems."""

    url: str
    stream: str
    commits: int
    blocks: int
    tuples: int
    late_tuples: int
    size_bytes: int
    consumers: int
    problems: tuple[Problem, ...]
    unreferenced: Unreferenced | None
    """None if manifests are lost: the files that they name look like files without any use."""
    seconds: float

    @property
    def is_good(self) -> bool:
        """True if nothing is wrong."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Returns plain values, for users' programs."""
        return {"is_good": self.is_good, **asdict(self)}


def verify(log: Log, progress: Progress | None = None) -> VerifyReport:
    """Reads every manifest and every live block of the stream again and says what is wrong with it."""
    return _Verification(log, progress or (lambda _done, _total, _bytes: None)).run()


class _Verification:
    def __init__(self, log: Log, progress: Progress) -> None:
        self._log = log
        self._storage = log.storage
        self._progress = progress
        self._problems: list[Problem] = []
        self._history = History(log.spec)
        self._index_files: set[str] = set()
        self._milestone_files: set[str] = set()
        self._cause: Problem | None = None
        self._doubtful: list[int] = []
        self._absent: list[str] = []

    def run(self) -> VerifyReport:
        began_s, began_us = stopwatch_s(), self._log.clock.now_us()
        self._progress(0, 0, 0)
        # Before the manifests: what a consumer needed then cannot lie beyond what is published by the time we look.
        words, rotten = consumer_audit.words(self._storage)
        self._fold()
        blocks, tuples, size_bytes = self._read_blocks()
        # Read again: a consumer that went on since may let others drop what it needed before.
        words_now, _ = consumer_audit.words(self._storage)
        state = self._history.state
        self._problems += [*rotten.values(), *consumer_audit.contradictions(state, words, words_now)]
        self._problems += _forgotten(self._storage, state.standings)
        if self._cause is not None and (follows := self._consequences()):
            self._problems[self._problems.index(self._cause)] = replace(self._cause, follows=follows)
        late = self._log.spec.late
        return VerifyReport(
            url=self._storage.url,
            stream=self._log.spec.id,
            commits=state.seq + 1,
            blocks=blocks,
            tuples=sum(tuples[:late]),
            late_tuples=tuples[late],
            size_bytes=size_bytes,
            consumers=len(state.consumers),
            problems=tuple(self._problems),
            unreferenced=self._unreferenced(began_us) if self._history.is_whole else None,
            seconds=stopwatch_s() - began_s,
        )

    # ------------------------------------------------------------------ manifests and index

    def _fold(self) -> None:
        # The snapshot before the manifests: then every commit that it knows must be there.
        snapshot = self._load_snapshot()
        # A listing may lag, but shows commits behind a hole.
        listed = (seq for found in self._storage.list("commits") if (seq := seq_of(found.key)) is not None)
        last_known = max([self._log.state.seq, snapshot.state.seq if snapshot else -1, *listed])
        history = self._history
        missing: list[int] = []
        self._begin()
        while True:
            if snapshot is not None and snapshot.state.seq < history.state.seq:
                # Older than the milestone: no reader may use it, and nothing is left to compare it with.
                self._index_files, snapshot = {ROOT_KEY}, None
            if snapshot is not None and snapshot.state.seq == history.state.seq:
                snapshot = self._compare_index(snapshot)
            seq = history.state.seq + 1
            try:
                m = self._log.commit(seq)
                self._report_missing(missing)
                history.check(m)
                self._take(m)
            except DroppedError:  # while we read; what they were folded into holds all that we have read so far
                self._begin()
            except KeyMissingError:
                if seq > last_known:
                    break
                missing.append(seq)
                history.skip()
            except StrandlineError as problem:
                todo = "restore it from a copy of the stream; until then readers that need it stop there"
                self._report_cause(Problem("manifest", f"commit {seq}: {problem.what}", commit_key(seq), todo=todo))
                history.skip()
        self._report_missing(missing)

    def _take(self, m: Commit) -> None:
        """Applies a manifest; one that does not fit behind others that could not be used is no problem of its own."""
        try:
            self._history.take(m)
        except CorruptManifestError:
            if self._history.is_certain:
                raise
            self._doubtful.append(m.seq)
            self._history.skip()

    def _begin(self) -> None:
        """Lets the history begin with the newest milestone; of the commits up to it, looks at those that are kept."""
        commits = self._log.commits
        audit = MilestoneAudit(self._storage, self._log.spec, commits)
        adopted, problems = audit.snapshot()
        self._problems += [*audit.unmarked(), *problems]
        if adopted is not None:
            found = IndexAudit(Index(self._storage), adopted, self._log.spec)
            self._history.adopt(adopted.state, found.blocks())
            self._milestone_files = commits.files(commits.newest)
        elif commits.kept:
            self._cause = self._cause or problems[0]
            self._history.go_to(commits.kept - 1)
        for seq in range(commits.kept, self._history.state.seq + 1):
            self._check_kept(seq)

    def _check_kept(self, seq: int) -> None:
        key = commit_key(seq)
        try:
            m = self._log.commit(seq)
            if (m.seq, m.stream) != (seq, self._log.spec.id):
                todo = "restore it from a copy of the stream"
                self._problems.append(Problem("manifest", f"it says that it is commit {m.seq}", file=key, todo=todo))
        except DroppedError:
            return
        except StrandlineError as problem:
            self._problems.append(Problem("manifest", f"commit {seq}: {problem.what}", file=key, todo=problem.todo))

    def _report_missing(self, missing: list[int]) -> None:
        if not missing:
            return
        first, last = missing[0], missing[-1]
        what = f"commit {first} is missing" if first == last else f"commits {first} to {last} are missing"
        todo = "restore it from a copy of the stream; what it published cannot be read without it"
        self._report_cause(Problem("manifest", what, commit_key(first), todo=todo))
        missing.clear()

    def _report_cause(self, problem: Problem) -> None:
        """Adds a problem from which others may follow; they are named with the first one."""
        self._problems.append(problem)
        self._cause = self._cause or problem

    def _consequences(self) -> tuple[str, ...]:
        """Returns what follows from manifests that could not be used."""
        holes, found = self._history.holes, []
        if holes:
            places = (f"partition {p}, offsets {first:,} to {end - 1:,}" for p, first, end in holes)
            tuples = plural(sum(end - first for _, first, end in holes), "tuple")
            found.append(f"{tuples} cannot be read, their blocks are most likely there: {_some(places)}")
        if self._doubtful:
            many = plural(len(self._doubtful), "later commit")
            found.append(f"{many} cannot be judged: {_some(str(seq) for seq in self._doubtful)}")
        if self._absent:
            many = plural(len(self._absent), "block")
            found.append(f"{many} not there, perhaps replaced by what is lost: {_some(self._absent)}")
        return (*found, "verify again when it is restored") if found else ()

    def _load_snapshot(self) -> Snapshot | None:
        where = f"{self._storage.url}/{ROOT_KEY}"
        try:
            snapshot = Snapshot.decode(self._storage.read(ROOT_KEY), where)
        except KeyMissingError:
            return None  # a young stream, or one whose index is to be built anew
        except (StrandlineError, KeyError, TypeError, ValueError) as problem:
            what = problem.what if isinstance(problem, StrandlineError) else repr(problem)
            self._problems.append(_root_problem(f"the root of the index is rotten: {what}"))
            return None
        if snapshot.stream != self._log.spec.id:
            self._problems.append(_root_problem(f"the index belongs to another stream, {snapshot.stream}"))
            return None
        return snapshot

    def _compare_index(self, snapshot: Snapshot) -> Snapshot | None:
        """Compares the index with the fold at its commit; returns another snapshot to compare with later, if any."""
        index = Index(self._storage)
        audit = IndexAudit(index, snapshot, self._log.spec)
        problems = audit.unreadable()
        if problems:
            # Another process may have folded again and collected the old files while we read manifests.
            newer = self._load_snapshot()
            if newer is not None and newer.state.seq > snapshot.state.seq:
                return newer
            self._problems += problems
            return None
        self._index_files = {ROOT_KEY, *index.files(snapshot.children)}
        if self._history.is_whole:
            self._problems += audit.differences(self._history)
        else:
            self._history.adopt(snapshot.state, audit.blocks())
        self._problems += audit.unfindable()
        return None

    # ------------------------------------------------------------------ blocks

    def _read_blocks(self) -> tuple[int, list[int], int]:
        """Checks every live block; the number of blocks, of results per partition, and of bytes."""
        history = self._history
        total = sum(len(live) for live in history.live)
        blocks, tuples, size_bytes = 0, [0] * len(history.live), 0
        for partition, live in enumerate(history.live):
            spec = self._log.spec
            may_be_sorted = history.is_whole and partition != spec.late and spec.is_written_in_order
            for block in live:
                is_known = block.first >= history.adopted_ends[partition] and block.file not in history.compacted
                is_sorted = may_be_sorted and is_known
                self._problems += self._check_block(block, is_sorted)
                blocks += 1
                tuples[partition] += block.results
                size_bytes += block.size_bytes
                self._progress(blocks, total, size_bytes)
        return blocks, tuples, size_bytes

    def _check_block(self, block: Block, is_sorted: bool) -> list[Problem]:
        audit = BlockAudit(block, self._log.spec, is_sorted)
        try:
            data = self._storage.read(block.file)
        except KeyMissingError:
            if self._history.may_be_replaced(block):
                self._absent.append(block.file)
                return []
            return [] if self._is_superseded(block) else [audit.missing()]
        except StrandlineError as problem:
            return [audit.problem(problem.what, problem.todo)]
        return audit.problems(data)

    def _is_superseded(self, block: Block) -> bool:
        """Returns whether a later commit took the block out of the stream: its file may be deleted then."""
        seq = self._history.state.seq
        while True:
            seq += 1
            try:
                m = self._log.commit(seq)
            except StrandlineError:
                return False
            if isinstance(m, TruncateCommit) and m.starts[block.partition] >= block.end:
                return True
            if isinstance(m, CompactCommit) and any(covers(b, block) for b in m.blocks):
                return True

    # ------------------------------------------------------------------ files

    def _unreferenced(self, began_us: int) -> Unreferenced:
        files, size_bytes, names = 0, 0, list[str]()
        with contextlib.suppress(StrandlineError):  # the newest one may not be marked yet
            self._milestone_files |= self._log.commits.files(self._history.state.milestone)
        for listed in unreferenced(self._storage, self._is_live_in):
            if listed.modified_us > began_us:
                continue  # what was written since we began may have been published since
            files += 1
            size_bytes += listed.size_bytes
            if len(names) < UNREFERENCED_NAMED:
                names.append(listed.key)
        return Unreferenced(files, size_bytes, tuple(names))

    def _is_live_in(self, folder: str) -> IsLive:
        if folder == "commits":
            return lambda key: not (seq := seq_of(key)) or seq >= self._log.kept  # the first one stays
        history, files = self._history, self._index_files | self._milestone_files
        return is_live_in(folder, self._log, history.state.standings, history.live.__getitem__, lambda: files)


def _forgotten(storage: Storage, standings: Sequence[Standing]) -> Iterator[Problem]:
    """Yields a problem of each partition whose record of losses cannot be read, or differs from the standing."""
    for partition, standing in enumerate(standings):
        losses = standing.losses
        if losses is None:
            continue
        found = loss_record.on_record(storage, losses)
        if found.count or found.unreadable:
            what = found.why or f"{len(found.losses):,} of {losses.count:,} losses are on record"
            todo = "restore the folder losses/ from a copy of the stream; results and recovery do not depend on it"
            yield Problem("operator", what, found.unreadable or losses.record, partition, todo=todo)


def _some(names: Iterable[str]) -> str:
    """Returns the first few of many."""
    first = list(itertools.islice(iterator := iter(names), _NAMED))
    others = sum(1 for _ in iterator)
    return "; ".join(first) + (f"; and {others:,} more" if others else "")


def _root_problem(what: str) -> Problem:
    return Problem("index", what, file=ROOT_KEY, todo=f"delete {ROOT_KEY}; the index is rebuilt from the manifests")
