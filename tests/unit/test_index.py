"""The index gives the blocks that the manifests give, also after compactions and truncations across its leaves."""

from collections.abc import Iterator

import pytest

from strandline.clock import ManualClock
from strandline.errors import StorageError
from strandline.log.index import index
from strandline.log.index.leaf import Leaf
from strandline.log.stream.block import Block
from strandline.log.stream.commit_kinds import announced
from strandline.log.stream.log import Log
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import collect, truncate
from strandline.testing import MemoryStorage
from tests.support.items import append_items, item_spec, read_items
from tests.support.plain_codec import plain_codec


@pytest.fixture(autouse=True)
def _small_index(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every commit is a leaf."""
    monkeypatch.setattr(index, "FOLD_EVERY", 1)
    monkeypatch.setattr(index, "FANOUT", 100)
    monkeypatch.setattr(index, "LEAF_ENTRIES_MAX", 1)
    with plain_codec():
        yield


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage(ManualClock(1_000_000))


def stream(storage: MemoryStorage, commits: int) -> Log:
    """Both partitions get one tuple a commit, with the number of the commit as its time."""
    log = Log.create(storage, item_spec(), ManualClock(1_000_000))
    for i in range(commits):
        append_items(log, {0: [(0, i, i)], 1: [(1, i, i)]})
    return log


def bounds(blocks: Iterator[Block]) -> list[tuple[int, int]]:
    return [(b.first, b.end) for b in blocks]


def compact_partition(log: Log, partition: int, first: int, end: int, name: str) -> None:
    """Joins exactly these blocks, whatever lies around them."""
    others = [b for p in range(3) for b in log.blocks(p) if p != partition or not first <= b.first < end]

    class Only(Log):
        def blocks(self, p: int, first: int = 0, *_: object, **__: object) -> Iterator[Block]:
            return (b for b in list(super().blocks(p, first)) if b not in others)

    only = Only(log.storage, log.spec, log.clock)
    only.reload()
    compact(only, blocks_min=2, unique=lambda: name)
    log.refresh()


def test_an_offset_in_a_block_that_was_joined_over_several_leaves_is_found(storage: MemoryStorage) -> None:
    log = stream(storage, 4)
    compact_partition(log, 0, 0, 4, "joined")  # the later leaves keep their entries of partition 1
    for offset in range(4):
        assert bounds(Log.open(storage).blocks(0, offset, offset + 1)) == [(0, 4)]
        assert bounds(Log.open(storage).blocks(1, offset, offset + 1)) == [(offset, offset + 1)]


def test_a_time_in_a_block_that_was_joined_over_several_leaves_is_found(storage: MemoryStorage) -> None:
    log = stream(storage, 4)
    compact_partition(log, 0, 0, 4, "joined")
    for time in range(4):
        assert bounds(Log.open(storage).blocks(0, time_from=time, time_until=time + 1)) == [(0, 4)]


def test_a_block_that_is_joined_again_before_the_next_fold_is_listed_once(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = stream(storage, 4)
    monkeypatch.setattr(index, "FOLD_EVERY", 100)
    compact_partition(log, 0, 2, 4, "inner")
    compact_partition(log, 0, 0, 4, "outer")
    assert bounds(log.blocks(0)) == [(0, 4)]
    log.fold()
    assert bounds(Log.open(storage).blocks(0)) == [(0, 4)]


def test_leaves_without_entries_are_dropped(storage: MemoryStorage) -> None:
    log = stream(storage, 4)
    truncate(log, before_offset=3)
    assert [child.entries for child in Log.open(storage).snapshot.children] == [2]
    truncate(log, before_offset=4)
    assert Log.open(storage).snapshot.children == ()
    append_items(log, {0: [(0, 9, 9)]}, "later")
    assert read_items(Log.open(storage), 0) == [(4, (0, 9, 9))]


def test_a_leaf_that_was_cut_once_is_not_written_again(storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FOLD_EVERY", 4)
    log = stream(storage, 4)
    truncate(log, before_offset={0: 1})
    log.fold()
    written = [listed.key for listed in storage.list("snapshots")]
    truncate(log, before_offset={0: 2})
    append_items(log, {0: [(0, 9, 9)]}, "later")
    log.fold()
    again = [listed.key for listed in storage.list("snapshots")]
    assert len(again) == len(written) + 2  # the leaf that is cut further, and the new one
    compact_partition(log, 1, 2, 4, "other")
    assert bounds(Log.open(storage).blocks(0)) == [(2, 3), (3, 4), (4, 5)]


def test_nodes_are_searched_and_edited_like_leaves(storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FANOUT", 2)
    log = stream(storage, 8)
    assert not all(child.is_leaf for child in log.snapshot.children)
    compact_partition(log, 0, 1, 6, "joined")
    truncate(log, before_offset={1: 3})
    fresh = Log.open(storage)
    assert bounds(fresh.blocks(0)) == [(0, 1), (1, 6), (6, 7), (7, 8)]
    assert bounds(fresh.blocks(0, time_from=5, time_until=6)) == [(1, 6)]
    assert bounds(fresh.blocks(1)) == [(i, i + 1) for i in range(3, 8)]


def test_folding_goes_on_from_the_root_whoever_made_it(storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    log = stream(storage, 2)
    other = Log.open(storage, log.clock)
    for i in (2, 3):
        append_items(log, {0: [(0, i, i)]}, "more")
    monkeypatch.setattr(index, "FOLD_EVERY", 100)
    other.refresh()
    assert len(other.tail) == 2
    other.fold()
    assert other.snapshot.children == log.snapshot.children  # it found nothing to add to what the first one had folded


def test_an_index_that_is_lost_is_made_anew_and_everybody_goes_on_with_it(storage: MemoryStorage) -> None:
    log = stream(storage, 4)
    lost = log.snapshot.children[0].file
    storage.delete(lost)
    assert [offset for offset, _ in read_items(Log.open(storage), 0)] == [0, 1, 2, 3]
    assert storage.exists(lost), "named by its content, so it came back under its name"
    storage.put(lost, b"rotten")
    append_items(log, {0: [(0, 9, 9)]}, "more")
    assert [offset for offset, _ in read_items(Log.open(storage), 0)] == [0, 1, 2, 3, 4]


def test_a_file_of_the_index_that_came_back_is_not_deleted(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = stream(storage, 2)
    clock = log.clock
    assert isinstance(clock, ManualClock)
    root, files = storage.read(index.ROOT_KEY), log.index_files()
    compact(log, blocks_min=2)
    assert not files & log.index_files()
    monkeypatch.setattr(index, "FOLD_EVERY", 100)
    clock.advance(10)
    collect(log, grace_us=5_000_000)
    assert files <= announced(map(log.commit, log.state.announced))
    storage.put(index.ROOT_KEY, root)  # by somebody who began to fold before the compaction, and was slow
    clock.advance(10)
    collect(log, grace_us=5_000_000)
    assert all(storage.exists(file) for file in files)
    assert [offset for offset, _ in read_items(Log.open(storage), 0)] == [0, 1]


def test_a_store_that_fails_is_not_taken_for_a_lost_index(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = stream(storage, 2)
    original = storage.read

    def sick(key: str) -> bytes:
        if key.endswith(".parquet") and key.startswith("snapshots"):
            raise StorageError("the store is sick")
        return original(key)

    monkeypatch.setattr(storage, "read", sick)
    before = original(index.ROOT_KEY)
    with pytest.raises(StorageError, match="sick"):
        list(Log.open(storage, log.clock).blocks(0))
    assert original(index.ROOT_KEY) == before


def test_what_compactions_replaced_is_found_without_comparing_all_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    covers = index.covers

    def counted(outer: Block, inner: Block) -> bool:
        calls.append(1)
        return covers(outer, inner)

    def compacted(partition: int, first: int, end: int, name: str) -> Block:
        rows = {"result": end - first}
        return Block(partition, f"blocks/{partition}-{first}-{name}", first, end, rows, 0, 0, 1, f"xxh3:{0:016x}")

    small = [compacted(p, first, first + 8, "small") for first in range(0, 64, 8) for p in range(50)]
    large = [compacted(p, 0, 32, "large") for p in range(0, 50, 2)]
    again = [compacted(7, 40, 48, "again")]
    monkeypatch.setattr(index, "covers", counted)
    found = index.outermost([*small, *large, *again])
    assert len(calls) <= 2 * len(small)
    left = [b for b in small if (b.partition % 2 or b.first >= 32) and (b.partition, b.first) != (7, 40)]
    assert found == sorted([*left, *large, *again], key=lambda b: (b.partition, b.first))
    leaf = Leaf.of([compacted(p, first, first + 4, "appended") for p in range(51) for first in range(0, 80, 4)])
    covered = [any(covers(r, b) for r in found) for b in leaf.all()]
    assert leaf.covered_by(found).tolist() == covered
    assert not Leaf.of([]).covered_by(found).any()
