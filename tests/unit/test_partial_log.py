"""A task's share of a log: read without a look at the rest, and still right if a block has been compacted meanwhile."""

from collections.abc import Iterator

import pytest

from strandline.clock import ManualClock
from strandline.errors import StorageError, TruncatedError
from strandline.log.stream.log import Log
from strandline.log.stream.partial_log import PartialLog
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import collect, truncate
from strandline.testing import MemoryStorage
from tests.support.items import append_items, item_spec, read_items
from tests.support.plain_codec import plain_codec


class CountingStorage(MemoryStorage):
    """Notes every key that is read."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.reads: list[str] = []

    def read(self, key: str) -> bytes:
        self.reads.append(key)
        return super().read(key)


@pytest.fixture(autouse=True)
def _plain_codec() -> Iterator[None]:
    with plain_codec():
        yield


@pytest.fixture
def storage() -> CountingStorage:
    return CountingStorage(ManualClock(5))


@pytest.fixture
def log(storage: CountingStorage) -> Log:
    log = Log.create(storage, item_spec(3), storage.clock)
    for i in range(10):
        append_items(log, {p: [(p, i, i), (p, i, i)] for p in range(3)}, f"batch{i}")
    return log


def share_of(log: Log, partition: int, first: int, end: int) -> PartialLog:
    return PartialLog(log.storage, log.spec, list(log.blocks(partition, first, end)))


def test_a_share_of_a_stream_that_is_gone_says_so_instead_of_being_empty(log: Log, storage: CountingStorage) -> None:
    share = share_of(log, 1, 5, 9)
    for listed in list(storage.list("")):
        storage.delete(listed.key)
    with pytest.raises(StorageError, match="not at this path any more"):
        read_items(share, 1, 5)


def test_a_share_reads_its_blocks_and_nothing_else(log: Log, storage: CountingStorage) -> None:
    share = share_of(log, 1, 5, 9)
    storage.reads.clear()
    assert read_items(share, 1, 5) == read_items(log, 1, 5)[:5]
    assert sorted(set(storage.reads[:3])) == [b.file for b in log.blocks(1, 5, 9)]
    assert not [key for key in storage.reads if key.startswith(("commits", "snapshots"))]


def test_a_share_whose_blocks_were_compacted_and_collected_looks_at_the_whole_log(log: Log) -> None:
    share = share_of(log, 1, 5, 9)
    expected = read_items(log, 1, 5)
    compact(log, target_bytes=1_000_000)
    assert isinstance(log.clock, ManualClock)
    for _ in range(2):
        log.clock.advance(10)
        collect(log, grace_us=1)
    assert not any(log.storage.exists(b.file) for b in list(share.blocks(1)))
    tables = share.read(1, 5, 9)
    assert [row for table in tables for row in table] == expected[:4]
    assert share.state == log.state


def test_a_share_goes_on_with_what_is_published_once_it_has_become_whole(log: Log) -> None:
    share = share_of(log, 1, 5, 9)
    assert share.refresh()
    assert share.state == log.state
    append_items(log, {0: [(0, 10, 10)]}, "later")
    assert share.refresh()
    assert not share.refresh()
    assert share.state == log.state


def test_a_share_whose_tuples_were_dropped_says_so(log: Log) -> None:
    share = share_of(log, 1, 5, 9)
    truncate(log, before_offset=20)
    assert isinstance(log.clock, ManualClock)
    for _ in range(2):
        log.clock.advance(10)
        collect(log, grace_us=1)
    with pytest.raises(TruncatedError):
        list(share.read(1, 5, 9))


def test_a_share_without_blocks_knows_where_to_write(log: Log, storage: CountingStorage) -> None:
    storage.reads.clear()
    share = PartialLog(storage, log.spec)
    assert share.spec is log.spec
    assert list(share.blocks(0)) == []
    assert storage.reads == []
