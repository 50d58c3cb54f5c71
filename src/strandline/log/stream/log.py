"""The persistent stream without Spark: open it, read it from any point, publish to it.

One rule carries everything: a commit is created exclusively at the next sequence number, by a writer that has seen
all commits before it. So there is one history, a second writer cannot slip in, and a file that a `collect` has
announced is never named again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from strandline.clock import SYSTEM_CLOCK, Clock
from strandline.errors import (
    CorruptionError,
    CorruptManifestError,
    DroppedError,
    KeyExistsError,
    KeyMissingError,
    StorageError,
    StreamNotFoundError,
    concerning,
)
from strandline.failpoint import failpoint
from strandline.log.index import index
from strandline.log.index.index import Index, Snapshot
from strandline.log.storage.storage import Storage, create_once
from strandline.log.stream import block as blocks_
from strandline.log.stream import commit_kinds, log_errors, spec
from strandline.log.stream.append_commit import Append, AppendCommit, require_forward
from strandline.log.stream.block import Block
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import MilestoneCommit, SchemaCommit, announced
from strandline.log.stream.commits import Commits
from strandline.log.stream.log_state import LogState
from strandline.log.stream.manifest import commit_key
from strandline.log.stream.recent_commits import Tail
from strandline.log.stream.spec import StreamSpec
from strandline.units import END_OF_TIME, earlier, latest

END = (1 << 63) - 1
Times = tuple[int | None, int | None]
C = TypeVar("C", bound=Commit)


class Log:
    """A handle on one stream, as of the last `refresh`."""

    readers: int = 1  # so many partitions of an operator take in each tuple: more than one of a `PartitionView`

    def __init__(self, storage: Storage, stream: StreamSpec, clock: Clock = SYSTEM_CLOCK) -> None:
        self.storage = storage
        self._spec = stream
        self.clock = clock
        self.retention = stream.retention  # of the writer that appends with this handle
        self._index = Index(storage)
        self.commits = Commits(storage, stream.id)
        self.snapshot = Snapshot(stream.id, LogState.empty(stream.partitions))
        """The snapshot that this handle stands on."""
        self.tail = Tail()
        """The commits since that snapshot."""
        self.state = self._told = self.snapshot.state
        self._published: int | None = None  # the newest commit of this handle

    @property
    def spec(self) -> StreamSpec:
        """The description of the stream, with added columns and with its operator in the newest version."""
        if self.state.added is not self._told.added or self.state.revised != self._told.revised:
            self._spec, self._told = self._spec.changed(self.state.added, self.state.revised), self.state
        return self._spec

    # ------------------------------------------------------------------ opening

    @classmethod
    def create(cls, storage: Storage, stream: StreamSpec, clock: Clock = SYSTEM_CLOCK) -> Log:
        """Opens the stream at this place, or makes it; raises if a stream with other settings is there."""
        with contextlib.suppress(StreamNotFoundError):
            return cls._open_same(storage, stream, clock)
        try:
            create_once(storage, spec.KEY, stream.to_json())
        except KeyExistsError:  # another process was faster
            return cls._open_same(storage, stream, clock)
        return cls(storage, stream, clock)

    @classmethod
    def _open_same(cls, storage: Storage, stream: StreamSpec, clock: Clock) -> Log:
        log = cls.open(storage, clock)
        log.spec.require_same(stream, storage.url)
        return log

    @classmethod
    def open(cls, storage: Storage, clock: Clock = SYSTEM_CLOCK) -> Log:
        """Opens the stream at this place; the error says what is there instead if there is none."""
        with concerning(storage.url):
            log = cls.unread(storage, clock)
            log.reload()
        return log

    @classmethod
    def unread(cls, storage: Storage, clock: Clock = SYSTEM_CLOCK) -> Log:
        """Opens the stream without reading its commits: `open` stops at the first rotten one."""
        try:
            data = storage.read(spec.KEY)
        except KeyMissingError:
            raise log_errors.no_stream(storage) from None
        return cls(storage, StreamSpec.from_json(data, f"{storage.url}/{spec.KEY}"), clock)

    def reload(self) -> None:
        """Takes in what was published since, and stands on the snapshot that lies at the root now."""
        if (snapshot := index.load_snapshot(self.storage, self.spec.id) or self.commits.snapshot()) is not None:
            self._stand_on(snapshot)
        self.refresh()
        while self.commits.has_later(self.state.seq + 1):
            self.refresh()

    def refresh(self) -> bool:
        """Takes in what was published since; whether there was anything."""
        before = self.state.seq
        while True:
            try:
                fresh = self.commits.from_(self.state.seq + 1, index.FOLD_EVERY)
            except DroppedError:
                self._stand_on(index.load_snapshot(self.storage, self.spec.id) or self.snapshot)
                continue
            if not fresh:
                break
            # A manifest is visible an instant before its folder entry is on the disk: what we go on to show must be.
            self.storage.settle("commits")
            for m in fresh:
                self._apply(m)
            if len(self.tail) >= 2 * index.FOLD_EVERY:
                self.fold(at_least=index.FOLD_EVERY)
            if len(fresh) < index.FOLD_EVERY:
                break
        return self.state.seq != before

    @property
    def kept(self) -> int:
        """The first commit that is kept, as far as this handle knows."""
        return self.commits.kept

    def commit(self, seq: int) -> Commit:
        """Returns one commit; raises `DroppedError` if it is no longer kept."""
        return self.commits.some([seq])[0]

    def after(self, seq: int) -> Iterator[Commit]:
        """Yields the commits after `seq`, as of the last refresh, some read at a time. Raises `DroppedError`."""
        in_tail = self.tail.after(seq)
        first = in_tail[0].seq if in_tail else self.state.seq + 1
        for start in range(seq + 1, first, index.FOLD_EVERY):
            yield from self.commits.some(range(start, min(start + index.FOLD_EVERY, first)))
        yield from in_tail

    def before(self, seq: int) -> Iterator[Commit]:
        """Yields the kept commits before `seq`, newest first, each read when it is asked for."""
        in_tail = {m.seq: m for m in self.tail.commits}
        with contextlib.suppress(KeyMissingError, DroppedError):
            for s in range(seq - 1, -1, -1):
                yield in_tail.get(s) or self.commit(s)

    def _stand_on(self, snapshot: Snapshot) -> None:
        """Keeps the commits after this snapshot as the tail, whether it is newer or older than the one we stood on.

        Should some of them be dropped, the newest milestone takes the snapshot's place.
        """
        self.commits.note(snapshot.state.milestone)
        if max(snapshot.state.seq, self.state.seq) + 1 < self.kept:
            snapshot = self.commits.snapshot() or snapshot
        while True:
            try:
                later = list(self.after(snapshot.state.seq))
                break
            except DroppedError:
                snapshot = self.commits.snapshot() or snapshot
        if snapshot.state.seq > self.state.seq:
            self.state = snapshot.state
        self.snapshot, self.tail = snapshot, Tail(later)

    def _apply(self, m: Commit, after: LogState | None = None) -> None:
        if m.stream != self.spec.id:
            raise log_errors.another_stream(m.seq, m.stream, self.storage.url)
        with concerning(self.storage.url):
            self.state = after or self.state.apply(m)
        self.tail.append(m)
        if isinstance(m, MilestoneCommit):
            self.commits.note(m.milestone)

    # ------------------------------------------------------------------ finding and reading

    def blocks(
        self,
        partition: int,
        first: int = 0,
        end: int = END,
        time_from: int | None = None,
        time_until: int | None = None,
    ) -> Iterator[Block]:
        """Yields blocks of a partition with an offset in [first, end) and perhaps a time in [time_from, time_until)."""
        shown_until = 0
        for block in self._walk(partition, first, end, time_from, time_until):
            if block.first < shown_until:
                raise log_errors.compacted_meanwhile(partition, shown_until, self.storage.url)
            yield block
            shown_until = block.end

    def _walk(
        self, partition: int, first: int, end: int, time_from: int | None = None, time_until: int | None = None
    ) -> Iterator[Block]:
        """Yields what `blocks` yields; if the index had to be mended, blocks may overlap."""
        first, end = max(first, self.state.starts[partition]), min(end, self.state.ends[partition])
        if first >= end:
            return
        mended = 0
        while True:
            try:
                # One moment's children and tail, should this handle move on while we walk.
                indexed = self._index.blocks(self.snapshot.children, partition, first, end, time_from, time_until)
                appended = self.tail.blocks(partition, first, end, time_from, time_until)
                for block in self.tail.replaced(itertools.chain(indexed, appended), partition):
                    yield block
                    first, mended = block.end, 0
                return
            except (KeyMissingError, CorruptManifestError):
                if mended == 2:
                    raise
                self._mend_index(anew=mended == 1)
                mended += 1
                self.require_kept(partition, first)  # mending may have brought in a truncation

    def _mend_index(self, *, anew: bool = False) -> None:
        """Replaces an index of which a file is gone or rotten: by a newer snapshot's, or by one derived anew."""
        newer = None if anew else index.load_snapshot(self.storage, self.spec.id)
        if newer is None or newer.children == self.snapshot.children:
            newer = self.commits.rebuilt(self.spec, self._index, self.state.seq)
            with contextlib.suppress(StorageError):
                self.storage.put(index.ROOT_KEY, newer.encode())
        self._stand_on(newer)

    def read_block(self, block: Block, columns: list[str] | None = None) -> pa.Table:
        """Returns the tuples of one block; raises if its checksum is wrong."""
        data = blocks_.verified(self.storage.read(block.file), block, self.storage.url)
        return blocks_.decode(data, self.spec, block.first, columns)

    def read(
        self, partition: int, first: int | None = None, end: int = END, columns: list[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yields the tuples [first, end) of a partition in order, control columns included, a table per block."""
        return (table for _, table in self.read_blocks(partition, first, end, columns, (None, None), False))

    def read_blocks(
        self, partition: int, first: int | None, end: int, columns: list[str] | None, times: Times, results: bool
    ) -> Iterator[tuple[Block, pa.Table]]:
        """Yields blocks of a partition in order, each with its tuples in [first, end), control columns included.

        Leaves out blocks without a time from the first of `times` up to the second, and with `results` those without
        results. Readers in flight outlive compaction: should a file be gone, the same offsets are looked up again.
        """
        first, end = self.state.starts[partition] if first is None else first, min(end, self.state.ends[partition])
        self.require_kept(partition, first)
        is_dense = times == (None, None)
        missing: Block | None = None
        while first < end:
            before, missing_before = first, missing
            for block in self._walk(partition, first, end, *times):
                if is_dense and block.first > first:
                    break
                if block.has_results or not results:
                    try:
                        table = self.read_block(block, columns)
                    except KeyMissingError as problem:
                        if missing == block:
                            raise log_errors.lost_block(block, self.storage.url) from problem
                        missing = block
                        break
                    cut = max(0, first - block.first)
                    yield block, table.slice(cut, min(end, block.end) - block.first - cut)
                first = block.end
            else:
                if not is_dense:
                    return
            if first < end:  # compacted, truncated, or worse
                self.refresh()
                self.require_kept(partition, first)
                if first == before and missing is missing_before:
                    raise log_errors.unindexed(partition, first, self.storage.url)

    def require_kept(self, partition: int, first: int) -> None:
        """Raises if the offset was dropped by retention."""
        start = self.state.starts[partition]
        if first < start:
            raise log_errors.truncated(partition, first, start, self.storage.url)

    def index_files(self) -> set[str]:
        """Returns the files of the index that this handle uses."""
        with contextlib.suppress(KeyMissingError, CorruptManifestError):
            return set(self._index.files(self.snapshot.children))
        self._mend_index(anew=True)
        return set(self._index.files(self.snapshot.children))

    # ------------------------------------------------------------------ publishing

    def append(self, batch: Append, base: LogState | None = None) -> AppendCommit:
        """Publishes the blocks of one batch, over all partitions at once.

        The blocks were made for the state `base` (by default the newest seen): if another writer has published since,
        this raises and publishes nothing.
        """
        base = base or self.state
        blocks, spec = sorted(batch.blocks, key=lambda b: (b.partition, b.first)), self.spec
        ends = list(base.ends)
        for b in blocks:
            ends[b.partition] = max(ends[b.partition], b.end)
        time_max = latest(base.time_max, *(b.time_max for b in blocks if b.partition != spec.late and b.has_results))
        boundary = None if time_max is None or spec.lateness is None else earlier(time_max, spec.lateness)
        known = (END_OF_TIME,) * spec.partitions if batch.finished else batch.boundaries

        def make(state: LogState, seen: Sequence[Commit]) -> AppendCommit:
            if base.finished:
                raise log_errors.finished(self.storage.url)
            for m in seen:
                if isinstance(m, AppendCommit | SchemaCommit):
                    raise log_errors.second_writer(m.seq, getattr(m, "writer", None), self.storage.url)
            made = AppendCommit(
                *self.stamp(state),
                blocks=tuple(blocks),
                ends=tuple(ends),
                boundaries=base.boundaries_until(boundary) if known is None else tuple(known),
                standings=tuple(batch.standings),
                writer=batch.writer,
                durability=batch.durability,
                source=batch.source,
                time_max=time_max,
                finished=batch.finished,
                retention=None if self.retention == spec.retention else self.retention,
                revised=batch.revised or None,
                outage=batch.outage,
            )
            if gone := made.named & announced(seen):
                raise log_errors.collected(gone, self.storage.url)
            return require_forward(base, made)

        failpoint("before-manifest")
        published = self.publish(make, since=base.seq)
        assert published is not None
        failpoint("after-manifest")
        return published

    def stamp(self, state: LogState) -> tuple[int, str, int]:
        """Returns the fields that all kinds of commits begin with, of the one behind `state`: number, stream, time."""
        return state.seq + 1, self.spec.id, self.clock.now_us()

    def publish(self, make: Callable[[LogState, Sequence[Commit]], C | None], since: int) -> C | None:
        """Creates the next commit. `make` gets the newest state and the commits after `since`; it may give none."""
        while True:
            while self.commits.has_later(self.state.seq + 1, is_near=self._published == self.state.seq):
                self.refresh()  # a lost commit would be taken for the next one, and filled
            state = self.state
            if (made := make(state, list(self.after(since)))) is None:
                return None
            data = commit_kinds.encode(replace(made, before=state.tip))
            if self.state is not state:
                continue  # to make it the index had to be mended, which brought in newer commits
            m = commit_kinds.decode(data, f"{self.storage.url}, about to be published")
            after = state.apply(m)  # never write what could not be read back
            assert isinstance(m, type(made))
            try:
                create_once(self.storage, commit_key(m.seq), data)
            except (KeyExistsError, KeyMissingError):  # another writer's commit, which may even be dropped by now
                self.refresh()
                continue
            # Was it the next number, or one that is free again since its commit was dropped?
            self.commits.require_kept(m.seq)
            self._apply(m, after)
            self._published = m.seq
            if len(self.tail) >= index.FOLD_EVERY:
                self.fold(at_least=index.FOLD_EVERY)
            return m

    def fold(self, *, at_least: int = 1) -> None:
        """Folds the commits since the snapshot at the root into a new one, if there are at least so many.

        It is only a shortcut: what goes wrong here must not look as if publishing had failed.
        """
        with contextlib.suppress(StorageError, CorruptionError):
            # All go on from the root: it may have been mended, and the files of any other snapshot are collected.
            if (root := index.load_snapshot(self.storage, self.spec.id)) is not None:
                self._stand_on(root)
            if len(self.tail) < at_least:
                return
            try:
                snapshot = self._index.fold(self.snapshot, self.tail.commits)
            except (CorruptionError, KeyMissingError):
                snapshot = self.commits.rebuilt(self.spec, self._index, self.state.seq)
            self.storage.put(index.ROOT_KEY, snapshot.encode())
            self._stand_on(snapshot)
