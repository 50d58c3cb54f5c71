"""What is dropped and what is deleted, and who may object."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from strandline.cli.collect import collect as collect_command
from strandline.clock import ManualClock
from strandline.errors import ConsumerError, OptionError
from strandline.log.audit.stream_audit import verify
from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import commit_key
from strandline.log.stream.spec import StreamSpec
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.consumer_registry import register, unregister
from strandline.log.upkeep.grace import GRACE, GRACE_US
from strandline.log.upkeep.retention import apply_retention, collect, truncate
from strandline.spark.operator import housekeeping
from strandline.spark.read.stream import Stream
from strandline.testing import MemoryStorage
from strandline.units import duration_us
from tests.support.items import append_items, item_spec, read_items, write_items
from tests.support.plain_codec import plain_codec

LATE = 2
SECOND_US = 1_000_000


@pytest.fixture(autouse=True)
def _plain_codec() -> Iterator[None]:
    with plain_codec():
        yield


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SECOND_US)


@pytest.fixture
def log(clock: ManualClock) -> Log:
    """Two partitions with blocks of two tuples, at the times 0 1, 10 11, 20 21."""
    log = Log.create(MemoryStorage(clock), item_spec(lateness=5), clock)
    for i in range(3):
        append_items(log, {p: [(p, i, 10 * i), (p, i, 10 * i + 1)] for p in range(2)}, f"batch{i}")
    return log


# ---------------------------------------------------------------------- truncate


@pytest.mark.parametrize(
    ("before", "start"), [(-5, 0), (0, 0), (1, 0), (2, 2), (10, 2), (11, 2), (12, 4), (21, 4), (22, 6), (99, 6)]
)
def test_blocks_all_of_whose_tuples_lie_before_a_time_are_dropped(log: Log, before: int, start: int) -> None:
    assert truncate(log, before_time=before) == (start, start, 0)
    assert [offset for offset, _ in read_items(log, 0)] == list(range(start, 6))


@pytest.mark.parametrize(("before", "start"), [(0, 0), (1, 0), (2, 2), (3, 2), (5, 4), (6, 6), (99, 6)])
def test_blocks_all_of_whose_tuples_lie_before_an_offset_are_dropped(log: Log, before: int, start: int) -> None:
    assert truncate(log, before_offset=before) == (start, start, 0)
    assert truncate(log, before_offset={1: 0}) == (start, start, 0), "what is dropped stays dropped"


def test_partitions_can_be_truncated_apart(log: Log) -> None:
    assert truncate(log, before_offset={1: 4}) == (0, 4, 0)


def test_late_tuples_go_by_their_time(log: Log) -> None:
    append_items(log, {LATE: [(0, 0, 3)]}, "late1")
    append_items(log, {LATE: [(0, 0, 12)]}, "late2")
    assert truncate(log, before_time=12) == (4, 4, 1)


def test_a_truncation_that_drops_nothing_is_no_commit(log: Log) -> None:
    seq = log.state.seq
    truncate(log, before_time=0)
    assert log.state.seq == seq


def test_a_truncation_needs_one_kind_of_bound(log: Log) -> None:
    with pytest.raises(OptionError, match="a time or an offset"):
        truncate(log)
    with pytest.raises(OptionError, match="a time or an offset"):
        truncate(log, before_time=1, before_offset=1)
    with pytest.raises(OptionError, match="no partition 2"):
        truncate(log, before_offset={2: 1})


def test_a_consumer_that_still_needs_the_tuples_is_named(log: Log) -> None:
    register(log, "billing", [2, 3])
    with pytest.raises(ConsumerError, match="consumer 'billing' still needs partition 0 from offset 2") as refused:
        truncate(log, before_offset=4)
    assert "unregister" in refused.value.todo
    assert log.state.starts == (0, 0, 0)
    assert truncate(log, before_offset=2) == (2, 2, 0)


def test_a_truncation_can_yield_to_consumers(log: Log) -> None:
    register(log, "billing", [2, 5])
    register(log, "audit", [3, 4])
    assert truncate(log, before_offset=6, yield_to_consumers=True) == (2, 4, 0)
    unregister(log, "billing")
    assert truncate(log, before_offset=6, yield_to_consumers=True) == (2, 4, 0)
    unregister(log, "audit")
    assert truncate(log, before_offset=6, yield_to_consumers=True) == (6, 6, 0)


def test_a_consumer_has_no_say_about_other_partitions(log: Log) -> None:
    register(log, "billing", [0, 6])
    assert truncate(log, before_offset={1: 6}) == (0, 6, 0)


def test_retention_drops_what_is_older_than_it_says_as_far_as_consumers_allow(log: Log) -> None:
    register(log, "billing", [2, 6])
    apply_retention(log, keep=5)
    assert log.state.starts == (2, 4, 0)


def test_retention_has_nothing_to_drop_of_an_empty_stream(clock: ManualClock) -> None:
    log = Log.create(MemoryStorage(clock), item_spec(), clock)
    apply_retention(log, keep=0)
    assert log.state.seq == -1


# ---------------------------------------------------------------------- collect


def test_a_live_file_is_never_announced(log: Log, clock: ManualClock) -> None:
    log.fold()
    seq = log.state.seq
    clock.advance(10_000)
    assert collect(log, grace_us=0) == []
    assert log.state.seq == seq


def test_files_of_a_crashed_attempt_are_announced_and_deleted_a_grace_later(log: Log, clock: ManualClock) -> None:
    orphan = write_items(log.storage, log.spec, 0, 6, [(0, 0, 99)], "crashed").file
    clock.advance(GRACE_US / SECOND_US - 1)
    assert collect(log) == []
    assert log.state.announced == (), "it may belong to a batch that is under way"
    clock.advance(2)
    assert collect(log) == []
    assert log.storage.exists(orphan), "announced, and somebody may be reading it"
    clock.advance(GRACE_US / SECOND_US + 1)
    assert collect(log) == [orphan]
    assert not log.storage.exists(orphan)
    assert log.state.announced == ()


def test_blocks_that_no_commit_can_name_again_are_deleted_one_grace_after_the_next_call(
    log: Log, clock: ManualClock
) -> None:
    replaced = {b.file for p in range(2) for b in log.blocks(p)}
    taken = write_items(log.storage, log.spec, 0, 3, [(0, 0, 99)], "zombie").file
    compact(log, blocks_min=3)
    truncate(log, before_offset={1: 6})
    stale = f"{log.spec.folder(0)}/{0:020d}-{4:020d}-another-compactor.parquet"
    log.storage.create(stale, b"of a compaction that another one was faster than")
    clock.advance(1)
    assert collect(log) == []
    clock.advance(GRACE_US / SECOND_US - 1)
    assert collect(log) == [], "a reader may have planned with them"
    clock.advance(1)
    assert set(collect(log)) >= {*replaced, taken, stale}


def test_blocks_that_may_yet_be_published_are_not_announced_within_the_grace(log: Log, clock: ManualClock) -> None:
    state, folder = log.state, log.spec.folder(0)
    blocks = list(log.blocks(0))
    files = [
        write_items(log.storage, log.spec, 0, state.ends[0], [(0, 0, 99)], "next").file,
        write_items(log.storage, log.spec, 0, state.ends[0] + 1, [(0, 0, 99)], "next-but-one").file,
        write_items(log.storage, log.spec, LATE, state.ends[LATE], [(0, 0, 1)], "late").file,
        f"{folder}/{blocks[0].first:020d}-{blocks[1].end:020d}-compactor.parquet",
        f"{folder}/{blocks[1].first:020d}-{state.ends[0]:020d}-compactor.parquet",
        f"{folder}/written-by-hand.parquet",
    ]
    for file in files[3:]:
        log.storage.create(file, b"")
    clock.advance(GRACE_US / SECOND_US - 1)
    collect(log)
    assert log.state.announced == ()


def test_compacted_and_truncated_blocks_are_collected(log: Log, clock: ManualClock) -> None:
    files = {b.file for p in range(2) for b in log.blocks(p)}
    compact(log, blocks_min=3)
    truncate(log, before_offset={1: 6})
    dropped = {b.file for b in Log.open(log.storage, clock).blocks(0)}
    clock.advance(1)
    deleted = set(collect(log, grace_us=0))
    assert files <= deleted
    assert not dropped & deleted
    assert len(read_items(log, 0)) == 6


def test_leftovers_of_writes_are_collected_but_never_a_commit_or_a_consumer(log: Log, clock: ManualClock) -> None:
    register(log, "billing", [0, 0])
    stray = ["commits/.tmp-1", "consumers/.tmp-2", "blocks/p00000/.tmp-3", "snapshots/.tmp-4", "staging/run/part-0"]
    stray += [".tmp-5", "losses/.tmp-6", "milestones/.tmp-7", "late/.tmp-8", "blocks/p00009/of-another-life.parquet"]
    others = ["notes.txt", "spark_checkpoint/.tmp-9", "spark_checkpoint/offsets/0"]
    for key in [*stray, *others]:
        log.storage.create(key, b"")
    clock.advance(1)
    report = verify(log)
    assert report.unreferenced is not None
    assert sorted(report.unreferenced.names) == sorted(stray)
    assert sorted(collect(log, grace_us=0)) == sorted(stray)
    assert all(log.storage.exists(key) for key in others), "what Strandline did not write is not touched"
    assert log.storage.exists(commit_key(0))
    assert log.storage.exists("consumers/billing.json")


def test_the_work_of_collect_and_verify_goes_with_the_partitions_not_with_their_square(clock: ManualClock) -> None:
    def asked(work: Callable[[Log], object], partitions: int) -> int:
        log = Log.create(MemoryStorage(clock), item_spec(partitions), clock)
        append_items(log, {p: [(p, 0, 0)] for p in range(partitions)}, "all")
        with mock.patch.object(StreamSpec, "folder", autospec=True, side_effect=StreamSpec.folder) as folder:
            work(log)
        return int(folder.call_count)

    for work in (collect, verify):
        assert asked(work, 40) <= 2 * asked(work, 20) + 10


def test_a_collector_that_died_half_way_is_finished_by_the_next(log: Log, clock: ManualClock) -> None:
    first = write_items(log.storage, log.spec, 0, 6, [(0, 0, 99)], "one").file
    clock.advance(10)
    collect(log, grace_us=5 * SECOND_US)
    second = write_items(log.storage, log.spec, 0, 6, [(0, 0, 99)], "two").file
    log.storage.delete(first)  # and here it died, before it could say so
    clock.advance(10)
    collect(log, grace_us=5 * SECOND_US)
    clock.advance(10)
    assert collect(log, grace_us=5 * SECOND_US) == [second]
    assert log.state.announced == ()


def test_progress_is_told(log: Log, clock: ManualClock) -> None:
    write_items(log.storage, log.spec, 0, 6, [(0, 0, 99)], "crashed")
    clock.advance(1)
    told: list[tuple[str, int]] = []
    collect(log, grace_us=0, progress=lambda what, n: told.append((what, n)))
    assert told == [("deleted", 1)]


def test_what_is_published_while_the_collector_looks_is_not_announced(log: Log, clock: ManualClock) -> None:
    """The collector lists a block that no manifest names; before it can announce it, the block is published."""
    block = write_items(log.storage, log.spec, 0, 6, [(0, 0, 99)], "slow")
    clock.advance(10)
    writer = Log.open(log.storage, clock)
    storage = log.storage
    assert isinstance(storage, MemoryStorage)
    listing = storage.list

    def slow_list(prefix: str) -> Iterator[object]:
        found = list(listing(prefix))
        if prefix == "late":
            writer.append(Append([block]))
        return iter(found)

    storage.list = slow_list  # type: ignore[method-assign,assignment]
    assert collect(log, grace_us=0) == []
    assert read_items(log, 0)[-1] == (6, (0, 0, 99))


def test_the_docs_state_the_grace_that_writers_the_command_and_the_method_use() -> None:
    """Programs that trust the page hold files for so long: one constant, and the page has it."""
    assert duration_us(inspect.signature(collect_command).parameters["grace"].default, "--grace") == GRACE_US
    assert duration_us(inspect.signature(Stream.collect).parameters["grace"].default, "grace") == GRACE_US
    assert inspect.signature(collect).parameters["grace_us"].default == duration_us(GRACE, "grace") == GRACE_US
    assert "grace_us=GRACE_US" in inspect.getsource(housekeeping.Housekeeping)
    docs = Path(__file__).parents[2] / "docs"
    operating = (docs / "operating.md").read_text()
    section = operating[operating.index("## Collection and grace") : operating.index("## Verify")]
    assert f"**The grace is {GRACE}**" in section
    for other in ("one hour", "grace of one day", "a day, if a writer is at work", "that time is a day"):
        assert other not in operating, other
    reference = (docs / "reference.md").read_text()
    assert f'`stream.collect(*, grace="{GRACE}")`' in reference
    assert f"`--grace TIME` (`{GRACE}`)" in reference
