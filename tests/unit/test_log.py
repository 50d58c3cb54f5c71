"""The stream without Spark: opening, publishing, reading on, and what is said when something is wrong."""

import json
from pathlib import Path
from random import Random

import pytest

from strandline.clock import ManualClock
from strandline.errors import (
    CollectedError,
    ConflictError,
    CorruptBlockError,
    CorruptManifestError,
    FormatVersionError,
    KeyMissingError,
    NotAStreamError,
    SecondWriterError,
    StorageError,
    StreamMismatchError,
    StreamNotFoundError,
    TruncatedError,
)
from strandline.log.index import index
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer, commit_key, seal
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.retention import collect, truncate
from strandline.testing import FaultyStorage, MemoryStorage
from tests.support.items import append_items, item_spec, items_of, read_items, write_items

A, B, C = (1, 10, 100), (2, 20, 101), (3, 30, 102)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def storage(clock: ManualClock) -> MemoryStorage:
    return MemoryStorage(clock)


@pytest.fixture
def log(storage: MemoryStorage, clock: ManualClock) -> Log:
    return Log.create(storage, item_spec(), clock)


# ---------------------------------------------------------------------- opening


def test_an_empty_place_holds_no_stream(storage: MemoryStorage) -> None:
    with pytest.raises(StreamNotFoundError) as refused:
        Log.open(storage)
    assert refused.value.where == storage.url


def test_a_place_that_holds_something_else_is_left_alone(storage: MemoryStorage) -> None:
    storage.create("holiday/photo.jpg", b"")
    for opens in (lambda: Log.open(storage), lambda: Log.create(storage, item_spec())):
        with pytest.raises(NotAStreamError, match=r"holiday/photo\.jpg"):
            opens()
    assert not storage.exists("stream.json")


def test_what_a_crash_left_of_the_very_first_write_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".tmp-0123").write_bytes(b"{")
    Log.create(LocalStorage(tmp_path), item_spec())
    assert Log.open(LocalStorage(tmp_path)).spec == item_spec()


def test_a_stream_of_a_newer_format_is_refused(storage: MemoryStorage, log: Log) -> None:
    body = json.loads(storage.read("stream.json")) | {"format": 99}
    storage.put("stream.json", json.dumps(body).encode())
    with pytest.raises(FormatVersionError, match="version 99"):
        Log.open(storage)


def test_a_commit_of_a_newer_format_is_refused(storage: MemoryStorage, log: Log) -> None:
    storage.create(commit_key(0), seal({"format": 99, "kind": "?"}))
    with pytest.raises(FormatVersionError, match="version 99"):
        Log.open(storage)


def test_creating_a_stream_again_opens_it_if_the_settings_are_the_same(storage: MemoryStorage, log: Log) -> None:
    append_items(log, {0: [A]})
    assert Log.create(storage, item_spec()).state == log.state
    with pytest.raises(StreamMismatchError, match="partitions=2, this program says partitions=3"):
        Log.create(storage, item_spec(partitions=3))


def test_two_who_create_at_once_get_one_stream(storage: MemoryStorage) -> None:
    class Slow(MemoryStorage):
        def create(self, key: str, data: bytes) -> None:
            storage.create("stream.json", item_spec(name="first").to_json())
            storage.create(key, data)

        def read(self, key: str) -> bytes:
            return storage.read(key)

        def exists(self, key: str) -> bool:
            return storage.exists(key)

    assert Log.create(Slow(), item_spec(name="second")).spec.id == "first"


def test_a_commit_of_another_stream_is_noticed(storage: MemoryStorage, log: Log) -> None:
    other = Log.create(MemoryStorage(), item_spec(name="other"))
    append_items(other, {0: [A]})
    storage.create(commit_key(0), other.storage.read(commit_key(0)))
    with pytest.raises(NotAStreamError, match="belongs to another stream"):
        log.refresh()


# ---------------------------------------------------------------------- publishing


def test_what_is_appended_is_read_back_in_order(log: Log) -> None:
    append_items(log, {0: [A], 1: [B]})
    append_items(log, {0: [B, C]})
    assert read_items(log, 0) == [(0, A), (1, B), (2, C)]
    assert read_items(log, 1) == [(0, B)]
    assert read_items(log, 0, first=1) == [(1, B), (2, C)]
    assert log.state.ends == (3, 1, 0)


def test_the_writer_holds_what_any_reader_holds(log: Log, storage: MemoryStorage) -> None:
    append_items(log, {0: [A]}, writer=Writer("query", "run", 4))
    other = Log.open(storage)
    assert other.state == log.state
    assert list(other.blocks(0)) == list(log.blocks(0))
    assert next(log.blocks(0)).published_us == 1_000_000


def test_a_second_writer_is_stopped_and_publishes_nothing(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    zombie = Log.open(storage, clock)
    append_items(log, {0: [A]}, "first", Writer("query-1", "run", 4))
    with pytest.raises(SecondWriterError, match=r"commit 0 \(query query-1, run run, batch 4\)"):
        append_items(zombie, {0: [B]}, "second")
    assert read_items(Log.open(storage), 0) == [(0, A)]
    append_items(zombie, {0: [B]}, "third")  # it has seen the other's commit by now, and begins behind it
    assert read_items(Log.open(storage), 0) == [(0, A), (1, B)]


def test_compaction_and_truncation_do_not_stop_a_writer(log: Log, storage: MemoryStorage, clock: ManualClock) -> None:
    for i, item in enumerate((A, B)):
        append_items(log, {0: [item]}, f"batch{i}")
    other = Log.open(storage, clock)
    base = log.state
    block = write_items(storage, log.spec, 0, 2, [C], "slow")
    compact(other, blocks_min=2)
    truncate(other, before_offset={0: 2})
    log.append(Append([block]), base=base)
    assert read_items(log, 0) == [(2, C)]


def test_a_batch_whose_files_were_collected_cannot_be_published(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    block = write_items(storage, log.spec, 0, 0, [A], "slow")
    clock.advance(10)
    collect(Log.open(storage, clock), grace_us=1_000_000)
    with pytest.raises(CollectedError, match=r"slow\.parquet"):
        log.append(Append([block]))
    assert log.state.ends == (0, 0, 0)


def test_a_repeated_request_that_finds_its_own_bytes_has_published_them() -> None:
    """As a client of an object store does that repeats a request whose answer was lost."""
    settled: list[str] = []

    class Repeating(MemoryStorage):
        def create(self, key: str, data: bytes) -> None:
            super().create(key, data)
            if key.startswith("commits/"):
                super().create(key, data)

        def settle(self, prefix: str) -> None:
            settled.append(prefix)

    log = Log.create(Repeating(), item_spec())
    append_items(log, {0: [A]}, "a")
    append_items(log, {0: [B]}, "b")
    assert read_items(Log.open(log.storage), 0) == [(0, A), (1, B)]
    assert settled[:2] == ["commits", "commits"]


def test_a_block_that_does_not_follow_is_never_published(log: Log, storage: MemoryStorage) -> None:
    block = write_items(storage, log.spec, 0, 5, [A], "gap")
    with pytest.raises(CorruptManifestError, match="not dense"):
        log.append(Append([block]))
    assert not storage.exists(commit_key(0))


def test_a_tuple_before_the_boundary_is_never_published(log: Log) -> None:
    append_items(log, {0: [C]})
    with pytest.raises(CorruptManifestError, match="before the boundary"):
        append_items(log, {0: [A]})


def test_a_commit_that_was_published_does_not_fail_because_the_index_cannot_be_written(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "FOLD_EVERY", 1)
    log = Log.create(storage, item_spec())

    def full(key: str, data: bytes) -> None:
        raise StorageError("no space for snapshots")

    monkeypatch.setattr(storage, "put", full)
    append_items(log, {0: [A]})
    assert read_items(Log.open(storage), 0) == [(0, A)]


# ---------------------------------------------------------------------- reading


def test_a_reader_catches_up_with_a_live_stream(log: Log, storage: MemoryStorage) -> None:
    reader = Log.open(storage)
    append_items(log, {0: [A]})
    assert read_items(reader, 0) == []
    assert reader.refresh()
    assert not reader.refresh()
    assert read_items(reader, 0) == [(0, A)]


def test_a_reader_in_flight_outlives_compaction_and_collection(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    for i, item in enumerate((A, B, C)):
        append_items(log, {0: [item]}, f"batch{i}")
    reader = Log.open(storage, clock)
    tables = reader.read(0)
    found = items_of(next(tables))
    compact(log, blocks_min=2)
    clock.advance(10)
    assert len(collect(log, grace_us=0)) >= 3
    for table in tables:
        found += items_of(table)
    assert found == [(0, A), (1, B), (2, C)]


def test_a_reader_whose_handle_was_refreshed_meanwhile_outlives_it_too(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    for i, item in enumerate((A, B, C)):
        append_items(log, {0: [item]}, f"batch{i}")
    tables = log.read(0)
    found = items_of(next(tables))
    compact(log, blocks_min=2)  # by the same handle, so that a refresh brings nothing new
    clock.advance(10)
    collect(log, grace_us=0)
    for table in tables:
        found += items_of(table)
    assert found == [(0, A), (1, B), (2, C)]


def test_a_reader_in_flight_is_told_when_its_tuples_were_dropped(
    log: Log, storage: MemoryStorage, clock: ManualClock
) -> None:
    for i, item in enumerate((A, B, C)):
        append_items(log, {0: [item]}, f"batch{i}")
    tables = log.read(0)
    next(tables)
    truncate(log, before_offset={0: 3})
    clock.advance(10)
    collect(log, grace_us=0)
    with pytest.raises(TruncatedError, match="offset 1 was dropped, the partition begins at 3"):
        next(tables)


def test_reading_what_was_dropped_is_an_error_that_says_where_to_begin(log: Log) -> None:
    append_items(log, {0: [A]}, "a")
    append_items(log, {0: [B]}, "b")
    truncate(log, before_offset={0: 1})
    assert read_items(log, 0) == [(1, B)]
    with pytest.raises(TruncatedError, match="begins at 1") as refused:
        read_items(log, 0, first=0)
    assert "start at offset 1" in refused.value.todo


def test_blocks_folded_while_they_are_listed_are_not_left_out(log: Log) -> None:
    for i, item in enumerate((A, B, C)):
        append_items(log, {0: [item]}, f"batch{i}")
    blocks = log.blocks(0)
    firsts = [next(blocks).first]
    log.fold()
    assert firsts + [b.first for b in blocks] == [0, 1, 2]


def test_blocks_compacted_under_a_listing_with_a_lost_index_are_a_conflict_and_not_a_double(
    storage: MemoryStorage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "FOLD_EVERY", 1)
    monkeypatch.setattr(index, "LEAF_ENTRIES_MAX", 1)
    log = Log.create(storage, item_spec(), clock)
    for i in range(4):
        append_items(log, {0: [(i, i, 100 + i)]}, f"batch{i}")
    reader = Log.open(storage, clock)
    blocks = reader.blocks(0)
    next(blocks)
    compact(log, blocks_min=2)
    clock.advance(10)
    collect(log, grace_us=0)
    with pytest.raises(ConflictError, match="read again"):
        list(blocks)
    assert [(b.first, b.end) for b in reader.blocks(0)] == [(0, 4)]


# ---------------------------------------------------------------------- damage


def test_a_rotten_block_is_named_and_the_rest_stays_readable(log: Log, storage: MemoryStorage) -> None:
    append_items(log, {0: [A], 1: [B]}, "a")
    append_items(log, {0: [C]}, "b")
    file = next(log.blocks(0)).file
    storage.put(file, b"rotten")
    with pytest.raises(CorruptBlockError, match=rf"{file}, partition 0, offsets 0 to 0"):
        read_items(log, 0)
    assert read_items(log, 0, first=1) == [(1, C)]
    assert read_items(log, 1) == [(0, B)]


def test_a_block_that_is_gone_is_named_and_the_rest_stays_readable(log: Log, storage: MemoryStorage) -> None:
    append_items(log, {0: [A]}, "a")
    append_items(log, {0: [B]}, "b")
    file = next(log.blocks(0)).file
    storage.delete(file)
    with pytest.raises(CorruptBlockError, match=rf"{file}, partition 0, offsets 0 to 0"):
        read_items(log, 0)
    assert read_items(log, 0, first=1) == [(1, B)]


def test_a_rotten_manifest_is_named(log: Log, storage: MemoryStorage) -> None:
    append_items(log, {0: [A]})
    storage.put(commit_key(0), storage.read(commit_key(0)).replace(b'"end":1', b'"end":2'))
    with pytest.raises(CorruptManifestError, match="checksum does not match") as refused:
        Log.open(storage)
    assert commit_key(0) in refused.value.where
    assert read_items(log, 0) == [(0, A)]  # who had read it before goes on


def test_a_snapshot_that_is_ahead_of_the_commits_is_not_believed(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a copy that was made, folder by folder, while somebody wrote."""
    monkeypatch.setattr(index, "FOLD_EVERY", 2)
    log = Log.create(storage, item_spec())
    for i, item in enumerate((A, B, C)):
        append_items(log, {0: [item]}, f"batch{i}")
    log.fold()
    storage.delete(commit_key(2))
    copy = Log.open(storage)
    assert copy.state.seq == 1
    assert read_items(copy, 0) == [(0, A), (1, B)]
    append_items(copy, {0: [C]}, "again")
    assert read_items(Log.open(storage), 0) == [(0, A), (1, B), (2, C)]


def test_what_is_shown_was_settled_first(storage: MemoryStorage) -> None:
    """A manifest can be visible before its name is on the disk: a reader settles it before it believes it."""
    faulty = FaultyStorage(storage, Random(1))
    log = Log.create(faulty, item_spec())
    append_items(log, {0: [A]})
    calls: list[str] = []

    class Watched(FaultyStorage):
        def settle(self, prefix: str) -> None:
            calls.append(prefix)
            raise StorageError("the disk is sick")

    reader = Log(Watched(storage, Random(1)), item_spec())
    for _ in range(2):
        with pytest.raises(StorageError, match="sick"):
            reader.refresh()
        assert reader.state.seq == -1
    assert calls == ["commits", "commits"]


def test_reading_stops_with_an_error_where_the_index_has_a_hole(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    append_items(log, {0: [A]}, "a")
    append_items(log, {0: [B]}, "b")
    monkeypatch.setattr(Log, "_walk", lambda *_: iter(()))
    with pytest.raises(CorruptManifestError, match="no block with offset 0"):
        read_items(log, 0)


def test_a_missing_commit_is_not_there(log: Log) -> None:
    with pytest.raises(KeyMissingError):
        log.commit(0)
