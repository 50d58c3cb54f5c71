"""Compaction as a stream grows: few blocks, tuples written anew a few times, work that follows what was appended."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from strandline.clock import ManualClock
from strandline.errors import CorruptBlockError
from strandline.log.audit.stream_audit import verify
from strandline.log.index import index
from strandline.log.stream import log as log_module
from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.log.upkeep.levels import Levels
from strandline.log.upkeep.retention import collect, truncate
from strandline.testing import MemoryStorage
from tests.support.items import append_items, item_spec, read_items, write_items
from tests.support.plain_codec import plain_codec

BATCHES = 1_500
TARGET = 12_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def _plain() -> Iterator[None]:
    with plain_codec():
        yield


@pytest.fixture
def log(clock: ManualClock) -> Log:
    return Log.create(MemoryStorage(clock), item_spec(2, lateness=1_000_000), clock)


def grow(log: Log, batches: int, tuples: int = 2, every: int = 64, levels: Levels | None = None) -> tuple[int, int]:
    """Appends small batches with what housekeeping does every so often; tuples and blocks that were written anew."""
    written = joined = 0
    start = log.state.seq + 1
    for n in range(start, start + batches):
        append_items(log, {p: [(p, n, n)] * tuples for p in range(2)}, f"batch{n}")
        if levels is not None and n % every == every - 1:
            while (done := levels.step()).blocks_after:
                written += done.tuples
                joined += done.blocks_after
    log.refresh()
    return written, joined


def blocks(log: Log) -> int:
    return sum(1 for p in range(2) for _ in log.blocks(p))


@pytest.mark.usefixtures("_plain")
def test_a_stream_of_many_small_batches_has_few_blocks_and_reads_as_before(log: Log, clock: ManualClock) -> None:
    plain = Log.create(MemoryStorage(clock), item_spec(2, lateness=1_000_000), clock)
    written, _ = grow(log, BATCHES, levels=Levels(Log.open(log.storage, clock), target_bytes=TARGET))
    grow(plain, BATCHES)
    assert [read_items(log, p) for p in range(2)] == [read_items(plain, p) for p in range(2)]
    assert blocks(plain) == 2 * BATCHES
    assert blocks(log) < 2 * BATCHES / 12
    assert written <= 4 * 2 * 2 * BATCHES, "each tuple is written anew a few times"


def test_nothing_is_wrong_with_the_stream_and_its_index(log: Log, clock: ManualClock) -> None:
    grow(log, 200, levels=Levels(Log.open(log.storage, clock), target_bytes=8_000), every=16)
    log.fold()
    assert blocks(log) < 60
    assert verify(log).problems == ()


@pytest.mark.usefixtures("_plain")
@pytest.mark.parametrize("sizes", [[1], [1, 50], [50, 1, 1, 1, 1, 1, 1, 1], [3, 17, 1, 90, 2]])
def test_a_tuple_is_written_anew_a_few_times_whatever_the_sizes(log: Log, clock: ManualClock, sizes: list[int]) -> None:
    levels = Levels(Log.open(log.storage, clock), target_bytes=10**9)
    written = 0
    for n in range(700):
        append_items(log, {0: [(0, n, n)] * sizes[n % len(sizes)]}, f"batch{n}")
        while (done := levels.step()).blocks_after:
            written += done.tuples
    log.refresh()
    tuples = log.state.ends[0]
    assert written <= tuples * math.log2(tuples)
    assert blocks(log) <= 8 * math.log2(tuples)


@pytest.mark.usefixtures("_plain")
@pytest.mark.parametrize("large", [9, 48, 60, 500, 3_000])
def test_a_block_that_is_too_large_for_its_neighbours_does_not_keep_them_apart(
    log: Log, clock: ManualClock, large: int
) -> None:
    append_items(log, {0: [(0, 0, 0)] * large}, "large")
    for n in range(47):
        append_items(log, {0: [(0, n, n)]}, f"batch{n}")
    levels = Levels(Log.open(log.storage, clock))
    while levels.step().blocks_after:
        pass
    log.refresh()
    assert blocks(log) <= 8


@pytest.mark.usefixtures("_plain")
def test_large_blocks_are_not_looked_at_again(log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Log.open(log.storage, clock)
    levels = Levels(own, target_bytes=2_000)
    grow(log, 1_280, levels=levels)
    looked: list[int] = []
    walk = log_module.Log.blocks

    def counted(self: Log, *args: int, **kwargs: int) -> Iterator[object]:
        for block in walk(self, *args, **kwargs):
            looked.append(block.first)
            yield block

    monkeypatch.setattr(log_module.Log, "blocks", counted)
    levels.step()
    assert blocks(log) > 30
    looked.clear()
    levels.step()
    assert len(looked) <= 2 * (8 + 8 * 3)


@pytest.mark.usefixtures("_plain")
def test_one_commit_serves_all_partitions_and_a_piece_is_bounded(log: Log, clock: ManualClock) -> None:
    grow(log, 63)
    seq = log.state.seq
    levels = Levels(Log.open(log.storage, clock), target_bytes=10**6)
    done = levels.step()
    assert (done.blocks_before, done.blocks_after) == (126, 2)
    log.refresh()
    assert log.state.seq == seq + 1
    assert levels.step().blocks_after == 0
    grow(log, 200)
    small = Levels(Log.open(log.storage, clock), target_bytes=2_000)
    assert 0 < small.step().bytes_before <= 6 * 2_000
    assert 0 < small.step().bytes_before <= 6 * 2_000


@pytest.mark.usefixtures("_plain")
def test_one_that_starts_late_gets_through_a_long_past(log: Log, clock: ManualClock) -> None:
    grow(log, 900)
    levels = Levels(Log.open(log.storage, clock), target_bytes=TARGET)
    pieces = 0
    while levels.step().blocks_after:
        pieces += 1
    log.refresh()
    assert pieces < 60
    assert blocks(log) < 60
    again = Levels(Log.open(log.storage, clock), target_bytes=TARGET)
    assert again.step().blocks_after == 0, "a new process finds nothing left to do"


@pytest.mark.usefixtures("_plain")
def test_what_others_dropped_or_joined_meanwhile_is_left_alone(log: Log, clock: ManualClock) -> None:
    grow(log, 60)
    other = Log.open(log.storage, clock)
    names = iter(range(100))

    def interfered() -> str:
        truncate(other, before_offset={0: 20})
        return f"slow{next(names)}"

    levels = Levels(Log.open(log.storage, clock), unique=interfered)
    assert levels.step().blocks_after == 1
    log.refresh()
    assert log.state.starts[0] == 20
    assert [offset for offset, _ in read_items(log, 0)] == list(range(20, 120))
    first, second = (Levels(Log.open(log.storage, clock)) for _ in range(2))
    assert first.step().blocks_after
    assert second.step().blocks_after == 0


def test_a_rotten_block_is_left_to_those_who_read_it(log: Log, clock: ManualClock) -> None:
    grow(log, 20)
    rotten = next(b for b in log.blocks(0, first=10))
    log.storage.put(rotten.file, b"rotten")
    levels = Levels(Log.open(log.storage, clock))
    assert levels.step().blocks_after == 1, "the other partition's"
    assert levels.failure is not None
    assert rotten.file in levels.failure.where
    assert levels.step().blocks_after == 0
    assert levels.failure is None, "it is told once"


@pytest.mark.parametrize("is_busy", [False, True], ids=["quiet", "busy"])
def test_a_lost_block_is_left_to_those_who_read_it(log: Log, clock: ManualClock, is_busy: bool) -> None:
    grow(log, 20)
    lost = next(b for b in log.blocks(0, first=10))
    log.storage.delete(lost.file)

    def meanwhile() -> str:
        if is_busy:
            append_items(log, {1: [(1, 99, 99)]}, f"batch{log.state.seq + 1}")
        return f"joined{log.state.seq}"

    levels = Levels(Log.open(log.storage, clock), unique=meanwhile)
    assert levels.step().blocks_after == 1, "the other partition's"
    assert isinstance(levels.failure, CorruptBlockError)
    assert lost.file in levels.failure.where
    assert levels.step().blocks_after == 0
    assert levels.failure is None


@pytest.mark.usefixtures("_plain")
def test_the_index_stays_small_with_the_stream(log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FOLD_EVERY", 8)
    monkeypatch.setattr(index, "FANOUT", 4)
    levels = Levels(Log.open(log.storage, clock), target_bytes=TARGET)
    grow(log, 800, every=8, levels=levels)
    log.fold()
    assert sum(c.entries for c in log.snapshot.children) == blocks(log) < 80
    clock.advance(10)
    collect(log, grace_us=0)
    clock.advance(10)
    collect(log, grace_us=0)
    assert len(list(log.storage.list("blocks"))) == blocks(log)
    assert len(read_items(log, 0)) == 1_600


@pytest.mark.usefixtures("_plain")
def test_tuples_set_aside_for_different_reasons_stay_apart(log: Log, clock: ManualClock) -> None:
    late = log.spec.late
    for n in range(40):
        base = log.state
        reason = "ahead" if n < 20 else None
        block = write_items(log.storage, log.spec, late, base.ends[late], [(0, n, n)], f"batch{n}")
        renamed = log.spec.file(late, block.first, f"named{n}", reason)
        log.storage.create(renamed, log.storage.read(block.file))
        log.append(Append([replace(block, file=renamed)]), base=base)
    levels = Levels(Log.open(log.storage, clock))
    while levels.step().blocks_after:
        pass
    log.refresh()
    assert [(b.reason, b.first, b.end) for b in log.blocks(late)] == [("ahead", 0, 20), ("late", 20, 40)]
