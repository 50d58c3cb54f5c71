"""The merged order against sorting everything in memory, and reading while others change the stream."""

import random

import pyarrow as pa
import pytest

from strandline.clock import ManualClock
from strandline.errors import CorruptBlockError, TruncatedError
from strandline.log.reading.merge import BlockRun, merged
from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import truncate
from strandline.testing import MemoryStorage
from tests.support.items import append_items, item_spec, read_items


def stream(seed: int, partitions: int = 3, commits: int = 20, lateness: int = 300) -> Log:
    """Times go back within the lateness, and many are equal."""
    rng = random.Random(seed)
    clock = ManualClock(1_000_000)
    log = Log.create(MemoryStorage(clock), item_spec(partitions, lateness=lateness), clock)
    time = 1_000
    for i in range(commits):
        time += rng.choice([0, 0, 10, 100])
        batch = {
            p: sorted((rng.randrange(9), i, time + 10 * rng.randrange(20)) for _ in range(rng.randrange(6)))
            for p in range(partitions)
        }
        append_items(log, {p: sorted(rows, key=lambda r: r[2]) for p, rows in batch.items()})
    return log


def places(runs: list[BlockRun]) -> list[tuple[int, int]]:
    tables = [run.table.select(["_partition", "_offset"]).to_pylist() for run in runs]
    return [(row["_partition"], row["_offset"]) for table in tables for row in table]


def expected(log: Log, partitions: range, since: int | None = None, until: int | None = None) -> list[tuple[int, int]]:
    """Sorted by (largest time of the partition so far, partition, offset)."""
    keyed = []
    for p in partitions:
        latest = -(1 << 63)
        for offset, (_, _, t) in read_items(log, p):
            if (since is None or t >= since) and (until is None or t < until):
                latest = max(latest, t)
                keyed.append((latest, p, offset))
    return [(p, offset) for _, p, offset in sorted(keyed)]


@pytest.mark.parametrize("seed", range(8))
def test_partitions_are_merged_by_time_and_each_keeps_its_order(seed: int) -> None:
    log = stream(seed)
    runs = list(merged(log, range(3)))
    assert places(runs) == expected(log, range(3))
    times = [int(t) for run in runs for t in run.times]
    assert times == sorted(times)


@pytest.mark.parametrize("seed", range(5))
def test_bounds_in_time_cut_exactly(seed: int) -> None:
    log = stream(seed)
    compact(log, target_bytes=4_000, blocks_min=2)
    assert places(list(merged(log, range(3), since=1_200, until=1_500))) == expected(log, range(3), 1_200, 1_500)


def test_one_partition_from_an_offset_on() -> None:
    log = stream(1)
    found = places(list(merged(log, [1], firsts={1: 7})))
    assert found == [(1, offset) for offset in range(7, log.state.ends[1])]


def test_a_time_that_never_changes_is_merged_a_block_at_a_time() -> None:
    clock = ManualClock(0)
    log = Log.create(MemoryStorage(clock), item_spec(2), clock)
    for i in range(50):
        append_items(log, {p: [(0, i, 5)] * 10 for p in (0, 1)})
    runs = list(merged(log, [0, 1]))
    assert places(runs) == [(p, offset) for p in (0, 1) for offset in range(500)]
    assert max(len(run.times) for run in runs) <= 20


def test_columns_are_those_asked_for_and_the_place() -> None:
    run = next(merged(stream(2), range(3), columns=["v"]))
    assert run.table.column_names == ["v", "_partition", "_offset"]


def test_the_late_side_log_has_no_partition() -> None:
    log = stream(3)
    append_items(log, {3: [(1, 2, 5), (1, 2, 6)]})
    (run,) = merged(log, [3])
    assert run.table.column("_partition").null_count == 2
    assert run.table.column("t").cast(pa.int64()).to_pylist() == [5, 6]


def test_compaction_and_deletion_meanwhile_do_not_disturb_it() -> None:
    log = stream(4, commits=40)
    whole = expected(log, range(3))
    reader = Log.open(log.storage, log.clock)
    runs = merged(reader, range(3))
    found = places([next(runs)])
    old = [b.file for p in range(3) for b in log.blocks(p)]
    compact(log, blocks_min=2)
    for file in old:
        log.storage.delete(file)
    assert found + places(list(runs)) == whole


def test_a_lost_block_is_an_error_that_names_it() -> None:
    log = stream(5)
    lost = list(log.blocks(1))[2]
    log.storage.delete(lost.file)
    with pytest.raises(CorruptBlockError) as caught:
        list(merged(log, range(3)))
    assert lost.file in caught.value.where
    assert f"offsets {lost.first} to {lost.end - 1}" in caught.value.where


def test_what_was_dropped_cannot_be_asked_for() -> None:
    log = stream(6, commits=30)
    truncate(log, before_offset=20)
    with pytest.raises(TruncatedError, match="offset 0 was dropped"):
        list(merged(log, [0], firsts={0: 0}))
