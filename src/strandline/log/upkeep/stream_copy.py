"""Copying a stream while it is written: everything that is truth up to one commit, nothing that is derived.

The copy takes the state of the source at its newest commit. It copies the live blocks of that state first, then loss
records, files of milestones, Spark's checkpoint and consumers, and last the commits, the marks and stream.json. Files
may vanish under its hands: compaction, truncation and the dropping of commits go on. It then opens the source again and
goes on with the newer state; what it has copied stays and is not copied again.

Names of blocks, commits, milestones and loss records are never used twice, so a file that the target has need not be
compared. Spark's files and those of consumers are replaced if they differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from strandline.errors import ConflictError, CorruptManifestError, KeyMissingError, StreamMismatchError, TruncatedError
from strandline.log.operator_state import loss_record
from strandline.log.storage.storage import Storage, is_temporary
from strandline.log.stream import spec
from strandline.log.stream.block import Block, checksum
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.log.stream.manifest import commit_key, seal, unseal
from strandline.log.stream.milestone import Milestone, is_mark, mark_key
from strandline.log.upkeep import consumer_registry

SPARK_CHECKPOINT = "spark_checkpoint"
_PRUNED = ("blocks", "late", "milestones", "commits", consumer_registry.FOLDER, SPARK_CHECKPOINT)

T = TypeVar("T")
Progress = Callable[[str, int, int, int], None]
"""Called with what is copied, files done, files in all and the bytes copied so far."""


def unseen(_what: str, _done: int, _total: int, _bytes: int) -> None:
    """Does nothing: of a copy whose progress nothing shows."""


class _VanishedError(ConflictError):
    """A file of the source went while it was copied; a newer state of the stream does without it."""


def live_blocks(log: Log) -> Iterator[Block]:
    """Yields the blocks of all partitions and of the side log."""
    for partition in range(log.spec.partitions + 1):
        yield from log.blocks(partition)


def results(log: Log, blocks: Iterable[Block]) -> int:
    """Returns how many tuples readers of a stream get from these blocks: neither footprints nor the side log."""
    return sum(block.results for block in blocks if block.partition != log.spec.late)


@dataclass
class StreamCopy:
    """Copies one stream to one target; `run` may be called once."""

    source: Storage
    target: Storage
    finished: int = -1
    """The commit up to which the target is known to hold what the source holds."""
    progress: Progress = unseen
    files: int = field(default=0, init=False)
    size_bytes: int = field(default=0, init=False)
    damaged: list[str] = field(default_factory=list, init=False)
    """Blocks that the source has lost, or whose bytes are not those that were published: not copied."""
    tuples: int = field(default=0, init=False)
    """Of the state that was copied: what readers get."""
    log: Log = field(init=False)
    """The state of the source that was copied."""
    milestone: Milestone | None = field(default=None, init=False)
    """Its newest milestone with a mark."""
    _sizes: dict[str, int] = field(default_factory=dict, init=False)
    _needed: set[str] = field(default_factory=set, init=False)
    _missed: set[str] = field(default_factory=set, init=False)

    def run(self) -> None:
        """Copies all that is truth and that the target lacks, but for stream.json."""
        self._sizes = {listed.key: listed.size_bytes for listed in self.target.list("")}
        while True:
            try:
                return self._copy_state()
            except (ConflictError, TruncatedError):
                continue  # the source has moved on

    def _copy_state(self) -> None:
        self.damaged, self._needed = [], set()
        # Before the commits: then no consumer has read beyond the last of them.
        listed = [one.key for one in self.source.list(consumer_registry.FOLDER) if not is_temporary(one.key)]
        words = {key: data for key in listed if (data := self._read(key)) is not None}
        self.log = log = Log.open(self.source)
        state = log.state
        self.milestone = self._of_source(lambda: log.commits.marked(state.milestone))
        self._require_same_history(state)
        blocks = list(live_blocks(log))
        self.tuples = results(log, blocks)
        milestones = [m for m in (self.milestone, state.milestone) if m is not None]
        of_milestones = self._of_source(lambda: {file for m in milestones for file in log.commits.files(m)})
        if log.state is not state:
            raise _VanishedError("a newer state was found while the blocks were listed")
        self._copy_spark()
        self._copy_blocks(blocks)
        for standing in state.standings:
            for key in reversed([*loss_record.records(self.source, standing.losses)]):
                self._copy_once(key)  # the oldest first: a record in the target has all before it there
        for file in sorted(of_milestones):
            self._copy_once(file)
        self._copy_words(words, state)
        self._copy_commits(state)
        for number in range(0 if self.milestone is None else self.milestone.number + 1):
            self._copy_once(mark_key(number))

    # ------------------------------------------------------------------ what to copy

    def _require_same_history(self, state: LogState) -> None:
        """Raises if the target has commits that the source does not have."""
        last = self.finished
        if last < 0:
            return
        what, numbers = "", range(self.milestone.number, -1, -1) if self.milestone else ()
        common = next((number for number in numbers if mark_key(number) in self._sizes), None)
        if last > state.seq:
            what = f"ends at commit {last}, the stream at {state.seq}"
        elif last >= (self.milestone.kept if self.milestone else 0) and self._differs(commit_key(last)):
            what = f"has another commit {last}"
        elif common is not None and self._differs(mark_key(common)):
            what = f"has another milestone {common}"
        if what:
            raise StreamMismatchError(
                f"the backup {what}: since then the stream has lost commits, and the backup may still have them",
                stream=self.target.url,
                todo="keep this backup, and make a new one at an empty path",
            )

    def _differs(self, key: str) -> bool:
        return self._needed_bytes(key) != self.target.read(key)

    # ------------------------------------------------------------------ copying

    def _copy_blocks(self, blocks: list[Block]) -> None:
        missed = False
        for done, block in enumerate(blocks, 1):
            self._needed.add(block.file)
            if self._sizes.get(block.file) != block.size_bytes and not self._copy_block(block):
                if block.file not in self._missed and not self.source.exists(block.file):
                    self._missed.add(block.file)
                    missed = True
                else:
                    self.damaged.append(block.file)
            self.progress("block", done, len(blocks), self.size_bytes)
        if missed:
            raise _VanishedError("blocks were compacted or truncated, and collected")

    def _copy_block(self, block: Block) -> bool:
        """Copies one block, which is all that is in memory at a time; returns whether it was there as published."""
        for _ in range(2):  # a bit may have flipped on the way
            data = self._read(block.file)
            if data is None:
                return False
            if checksum(data) == block.checksum:
                self._put(block.file, data)
                return True
            del data
        return False

    def _copy_spark(self) -> None:
        """Copies Spark's checkpoint: listed after the commits were read, it is ahead of them, and Spark is wound back.

        Spark deletes the oldest files as it goes on, so the newest are copied first. What Spark adds after the listing
        belongs to later batches.
        """
        listed = [listed for listed in self.source.list(SPARK_CHECKPOINT) if not is_temporary(listed.key)]
        for file in sorted(listed, key=lambda listed: listed.modified_us, reverse=True):
            if (data := self._read(file.key)) is not None:
                self._needed.add(file.key)
                self._put_if_other(file.key, data)

    def _copy_words(self, words: dict[str, bytes], state: LogState) -> None:
        registered = {f"{consumer_registry.FOLDER}/{c.name}.json" for c in state.consumers}
        for key, said in words.items():
            data = said
            if key not in registered:
                continue
            try:
                body = unseal(data, key)
            except CorruptManifestError:
                continue  # the consumer writes it anew; what it needed when it registered is kept until then
            needs = [max(need, start) for need, start in zip(body["needs"], state.starts, strict=False)]
            if needs != body["needs"]:
                # It has read on since this was written, or the truncation would have been refused.
                data = seal({**body, "needs": needs})
            self._needed.add(key)
            self._put_if_other(key, data)

    def _copy_commits(self, state: LogState) -> None:
        kept = self.milestone.kept if self.milestone else 0
        for seq in range(kept, state.seq + 1):
            key = commit_key(seq)
            self._needed.add(key)
            if key in self._sizes and seq <= self.finished:
                continue
            data = self._needed_bytes(key)
            if key in self._sizes and self.target.read(key) != data:
                raise StreamMismatchError(
                    f"commit {seq} at the target differs from that of the stream",
                    where=f"{self.target.url}/{key}",
                    todo="another program writes to the target: keep its files, and make the copy at an empty path",
                )
            if key not in self._sizes:
                self._put(key, data)
            self.progress("commit", seq + 1 - kept, state.seq + 1 - kept, self.size_bytes)

    def _copy_once(self, key: str) -> None:
        self._needed.add(key)
        if key not in self._sizes:
            self._put(key, self._needed_bytes(key))

    def _put_if_other(self, key: str, data: bytes) -> None:
        if self._sizes.get(key) != len(data) or self.target.read(key) != data:
            self._put(key, data)

    def _put(self, key: str, data: bytes) -> None:
        self.target.put(key, data)
        self._sizes[key] = len(data)
        self.files += 1
        self.size_bytes += len(data)

    # ------------------------------------------------------------------ afterwards

    def complete(self) -> None:
        """Copies stream.json: from then on the target is a stream."""
        self._copy_once(spec.KEY)

    def close_first_commit(self) -> None:
        """Puts the newest mark in the place of commit 0 if that is dropped, as the dropping of commits does."""
        if self.milestone is not None and self.milestone.kept:
            self._put_if_other(commit_key(0), self.target.read(mark_key(self.milestone.number)))

    def prune(self) -> int:
        """Deletes what the copied state does not need from the target; returns how many files that were."""
        needed = {*self._needed, *self.damaged, commit_key(0)}
        spare = [key for key in self._sizes if key.partition("/")[0] in _PRUNED and key not in needed]
        gone = [key for key in spare if not is_mark(key)]
        for key in gone:
            self.target.delete(key)
        return len(gone)

    # ------------------------------------------------------------------ reading the source

    def _read(self, key: str) -> bytes | None:
        try:
            return self.source.read(key)
        except KeyMissingError:
            return None

    def _needed_bytes(self, key: str) -> bytes:
        return self._of_source(lambda: self.source.read(key))

    def _of_source(self, read: Callable[[], T]) -> T:
        """Reads files that are there unless the source has moved on; raises if one is lost."""
        try:
            return read()
        except KeyMissingError as problem:
            key = problem.where.removeprefix(f"{self.source.url}/")
            if key not in self._missed:
                self._missed.add(key)
                raise _VanishedError(f"{key} is gone") from problem
            raise CorruptManifestError(
                f"a file that the stream needs is missing: {problem.what}",
                where=f"{self.source.url}/{key}",
                todo="run `strandline verify`, and restore the file from an earlier backup",
            ) from problem
