"""Compaction: many small blocks of the past become one large block, offset for offset.

The new block takes the place of the old ones with one commit. Readers that hold the old files go on with them until
`collect` deletes those, a grace period later.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import KIND
from strandline.errors import KeyMissingError, OptionError
from strandline.failpoint import failpoint
from strandline.log.index.profile import profile_of
from strandline.log.storage.storage import create_once
from strandline.log.stream import block as blocks_
from strandline.log.stream.block import Block
from strandline.log.stream.commit import Commit
from strandline.log.stream.commit_kinds import CompactCommit, announced
from strandline.log.stream.kinds import Kind
from strandline.log.stream.log import Log
from strandline.log.stream.log_errors import lost_block
from strandline.log.stream.log_state import LogState

TARGET_BYTES = 128 << 20
BLOCKS_MIN = 8


@dataclass(frozen=True, slots=True)
class Compacted:
    """The outcome of one compaction."""

    blocks_before: int
    blocks_after: int
    tuples: int
    bytes_before: int
    bytes_after: int

    def plus(self, run: Sequence[Block], joined: Block) -> Compacted:
        """Returns the sum of this and a run of blocks that became one."""
        return Compacted(
            self.blocks_before + len(run),
            self.blocks_after + 1,
            self.tuples + joined.tuples,
            self.bytes_before + sum(b.size_bytes for b in run),
            self.bytes_after + joined.size_bytes,
        )


NOTHING = Compacted(0, 0, 0, 0, 0)


def compact(
    log: Log,
    *,
    target_bytes: int = TARGET_BYTES,
    blocks_min: int = BLOCKS_MIN,
    progress: Callable[[Compacted], None] | None = None,
    unique: Callable[[], str] | None = None,
) -> Compacted:
    """Joins runs of at least `blocks_min` neighbouring small blocks into blocks of about `target_bytes`."""
    if target_bytes < 1 or blocks_min < 2:
        raise OptionError(
            f"target_bytes={target_bytes} or blocks_min={blocks_min} is too small",
            todo="use a target_bytes of 1 or more, and a blocks_min of 2 or more",
        )
    log.refresh()
    total = NOTHING
    for partition in range(log.spec.partitions + 1):
        for base_seq, run in _runs(log, partition, target_bytes, blocks_min):
            joined = join(log, run, unique and unique())
            if joined is None or not publish(log, [joined], base_seq):
                continue
            total = total.plus(run, joined)
            if progress:
                progress(total)
    return total


def _runs(log: Log, partition: int, target_bytes: int, blocks_min: int) -> Iterator[tuple[int, list[Block]]]:
    """Yields neighbouring blocks, each under half of the target, together about the target, and their commit."""
    run: list[Block] = []
    size = 0
    first = log.state.starts[partition]
    while True:
        # The iterator is begun anew after each run, because publishing changes what it walks over.
        base_seq = log.state.seq
        for block in log.blocks(partition, first=first):
            if run and block.reason != run[-1].reason:
                break  # in the side log: its name says one reason for all tuples of a block
            first = block.end
            small = block.size_bytes * 2 <= target_bytes
            if small:
                run.append(block)
                size += block.size_bytes
            if run and (size >= target_bytes or not small):
                break
        else:
            if len(run) >= blocks_min:
                yield base_seq, run
            return
        if len(run) >= blocks_min:
            yield base_seq, run
        run, size = [], 0


def join(log: Log, run: Sequence[Block], unique: str | None = None) -> Block | None:
    """Writes a block with the tuples of neighbours and does not publish it; None if they were replaced meanwhile.

    `unique` makes its name; by default a random number and its profile do.

    Raises `CorruptBlockError` if the file of one is gone that still belongs to the stream. The bytes of the new block
    are held in memory, of the old ones a row group at a time.
    """
    try:
        return _joined(log, run, unique)
    except KeyMissingError as problem:
        log.refresh()
        for block in run:
            if not log.storage.exists(block.file) and block in log.blocks(block.partition, block.first, block.end):
                raise lost_block(block, log.storage.url) from problem
        return None  # they have been compacted or dropped, and their files collected


def _joined(log: Log, run: Sequence[Block], unique: str | None) -> Block:
    sink = io.BytesIO()
    with blocks_.block_writer(sink, log.spec) as writer:
        for kind in Kind:
            for table in _row_groups(_tables(log, run, kind)):
                writer.write_table(table.select(log.spec.stored.names), row_group_size=blocks_.rows_per_group(table))
    data = sink.getvalue()
    first, end, partition = run[0].first, run[-1].end, run[0].partition
    name = unique or f"{uuid.uuid4().hex}-{profile_of(run)}"
    file = log.spec.file(partition, first, f"{end:020d}-{name}", run[0].reason)
    block = blocks_.describe(data, log.spec, partition, first, file)
    create_once(log.storage, file, data)
    failpoint("compaction-before-manifest")
    return block


def _tables(log: Log, run: Sequence[Block], kind: Kind) -> Iterator[pa.Table]:
    """Yields the tuples of one kind, in order."""
    for block in run:
        wanted = block.rows.get(kind.name.lower(), 0)
        if wanted == 0:
            continue
        table = log.read_block(block)
        yield table if wanted == block.tuples else table.filter(pc.equal(table.column(KIND), int(kind)))


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yields tables gathered until they fill a row group."""
    waiting: list[pa.Table] = []
    rows = size_bytes = 0
    for table in tables:
        waiting.append(table)
        rows, size_bytes = rows + len(table), size_bytes + table.nbytes
        if rows >= blocks_.ROWS_PER_GROUP or size_bytes >= blocks_.BYTES_PER_GROUP:
            yield pa.concat_tables(waiting)
            waiting, rows, size_bytes = [], 0, 0
    if waiting:
        yield pa.concat_tables(waiting)


def publish(log: Log, joined: Sequence[Block], base_seq: int) -> Sequence[Block]:
    """Puts the blocks in the place of those that they stand for as of `base_seq`, in one commit.

    Leaves out those that another process compacted or dropped in the meantime; returns the others.
    """

    def make(state: LogState, seen: Sequence[Commit]) -> CompactCommit | None:
        kept = tuple(b for b in joined if not _is_superseded(b, state, seen))
        return CompactCommit(*log.stamp(state), blocks=kept) if kept else None

    published = log.publish(make, since=base_seq)
    return published.blocks if published else ()


def _is_superseded(joined: Block, state: LogState, seen: Sequence[Commit]) -> bool:
    overlapped = any(
        b.partition == joined.partition and b.first < joined.end and joined.first < b.end
        for m in seen
        if isinstance(m, CompactCommit)
        for b in m.blocks
    )
    collected = joined.file in announced(seen)
    return overlapped or collected or state.starts[joined.partition] > joined.first
