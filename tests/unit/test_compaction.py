"""Compaction changes files, and nothing that a reader could see."""

from dataclasses import replace

import pyarrow as pa
import pytest

from strandline.clock import ManualClock
from strandline.control_columns import KIND, OFFSET
from strandline.errors import OptionError
from strandline.log.stream import block as blocks_
from strandline.log.stream.column_types import block_schema
from strandline.log.stream.log import Log
from strandline.log.upkeep import compaction
from strandline.log.upkeep.compaction import Compacted, compact
from strandline.log.upkeep.retention import collect, truncate
from strandline.testing import MemoryStorage
from tests.support.items import append_items, encode, item_spec, read_items

LATE = 2


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def storage(clock: ManualClock) -> MemoryStorage:
    return MemoryStorage(clock)


@pytest.fixture
def log(storage: MemoryStorage, clock: ManualClock) -> Log:
    log = Log.create(storage, item_spec(lateness=2), clock)
    for i in range(4):
        append_items(log, {0: [(0, i, 10 * i), (0, i, 10 * i + 1)], 1: [(1, i, 10 * i)]}, f"batch{i}")
    return log


def content(log: Log) -> list[object]:
    return [read_items(log, p) for p in range(3)]


def test_offsets_order_and_tuples_stay_as_they_were(log: Log, storage: MemoryStorage) -> None:
    append_items(log, {LATE: [(0, 7, 3)]}, "late1")
    append_items(log, {LATE: [(0, 8, 1)]}, "late2")
    before = content(log)
    done = compact(log, blocks_min=2)
    assert (done.blocks_before, done.blocks_after, done.tuples) == (10, 3, 14)
    assert content(log) == content(Log.open(storage)) == before
    assert [(b.first, b.end, b.time_min, b.time_max) for b in log.blocks(0)] == [(0, 8, 0, 31)]
    assert [(b.first, b.end, b.time_min, b.time_max) for b in log.blocks(LATE)] == [(0, 2, 1, 3)]


def test_a_second_compaction_finds_nothing_to_do(log: Log) -> None:
    compact(log, blocks_min=2)
    assert compact(log, blocks_min=2) == Compacted(0, 0, 0, 0, 0)


def test_fewer_blocks_than_asked_for_are_left_alone(log: Log) -> None:
    assert compact(log, blocks_min=5).blocks_after == 0


def test_blocks_are_joined_up_to_the_target(log: Log) -> None:
    sizes = [b.size_bytes for b in log.blocks(0)]
    compact(log, target_bytes=2 * max(sizes), blocks_min=2)
    assert max(sizes) < 2 * min(sizes)
    assert [b.tuples for b in log.blocks(0)] in ([4, 4], [6, 2])


def test_large_blocks_are_left_alone_and_part_the_small_ones(log: Log) -> None:
    append_items(log, {0: [(0, i, 100) for i in range(2_000)]}, "large")
    for i in range(2):
        append_items(log, {0: [(0, i, 100 + i)]}, f"after{i}")
    large = max(b.size_bytes for b in log.blocks(0))
    compact(log, target_bytes=2 * large - 1, blocks_min=2)
    assert [(b.first, b.end) for b in log.blocks(0)] == [(0, 8), (8, 2_008), (2_008, 2_010)]


def test_progress_is_told(log: Log) -> None:
    told: list[Compacted] = []
    total = compact(log, blocks_min=2, progress=told.append)
    assert [done.blocks_after for done in told] == [1, 2]
    assert told[-1] == total


@pytest.mark.parametrize(("target_bytes", "blocks_min"), [(0, 2), (-1, 2), (100, 1), (100, 0)])
def test_settings_that_cannot_work_are_refused(log: Log, target_bytes: int, blocks_min: int) -> None:
    with pytest.raises(OptionError, match="target_bytes="):
        compact(log, target_bytes=target_bytes, blocks_min=blocks_min)


def test_of_two_at_once_one_wins_and_the_other_lets_it(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    other = Log.open(storage, clock)
    before = content(log)

    def interfered() -> str:
        compact(other, blocks_min=2)
        return "slow"

    done = compact(log, blocks_min=2, unique=interfered)
    assert done.blocks_after == 0
    assert content(log) == content(Log.open(storage)) == before
    assert [(b.first, b.end) for b in log.blocks(0)] == [(0, 8)]


def test_blocks_that_were_compacted_and_collected_under_its_hands_are_no_error(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    other = Log.open(storage, clock)
    before = content(log)

    def interfered() -> str:
        compact(other, blocks_min=2)
        clock.advance(10)
        collect(other, grace_us=0)
        return "slow"

    assert compact(log, blocks_min=2, unique=interfered).blocks_after == 0
    assert content(log) == before


def test_blocks_that_were_dropped_meanwhile_are_not_brought_back(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    other = Log.open(storage, clock)

    def interfered() -> str:
        truncate(other, before_offset={0: 4})
        return "slow"

    compact(log, blocks_min=2, unique=interfered)
    assert log.state.starts == (4, 0, 0)
    assert [offset for offset, _ in read_items(Log.open(storage), 0)] == [4, 5, 6, 7]


def test_a_joined_file_that_was_collected_before_it_was_published_stays_unpublished(
    log: Log, storage: MemoryStorage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Log.open(storage, clock)
    before = content(log)

    def collected(name: str) -> None:
        clock.advance(10)
        collect(other, grace_us=0)

    monkeypatch.setattr(compaction, "failpoint", collected)
    assert compact(log, blocks_min=2).blocks_after == 0
    assert content(log) == content(Log.open(storage)) == before


def test_results_and_control_tuples_stay_apart_in_the_joined_block(log: Log) -> None:
    runs = list(log.blocks(0))
    tables = [log.read_block(b) for b in runs]
    schema = block_schema(log.spec.arrow)
    log = Log(log.storage, replace(log.spec, format=1))  # with offsets and kinds in its files, as operators' have them
    kinds = [pa.table({**{n: t.column(n) for n in t.column_names}, KIND: [0, 1]}, schema=schema) for t in tables]
    files = []
    for b, table in zip(runs, kinds, strict=True):
        data = encode(table, log.spec)
        log.storage.put(b.file, data)
        files.append(
            blocks_.Block(
                **{
                    **{f: getattr(b, f) for f in ("partition", "file", "first", "end", "time_min", "time_max")},
                    "rows": {"result": 1, "g_open": 1},
                    "size_bytes": len(data),
                    "checksum": blocks_.checksum(data),
                }
            )
        )
    joined = compaction.join(log, files, "joined")
    assert joined is not None
    assert joined.rows == {"result": 4, "g_open": 4}
    parts = [t for kind in blocks_.Kind for t in compaction._tables(log, files, kind)]
    assert [t.column(OFFSET).to_pylist() for t in parts] == [[0], [2], [4], [6], [1], [3], [5], [7]]
