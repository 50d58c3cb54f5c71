"""Commits that are folded into a milestone go, and nobody is led astray by their absence."""

import itertools
import os
import pickle
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import ClassVar

import pytest

from strandline.clock import ManualClock
from strandline.errors import CorruptManifestError, DroppedError
from strandline.log.audit.stream_audit import verify
from strandline.log.index import cuts, index
from strandline.log.index.index import ROOT_KEY
from strandline.log.storage import durable_file
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream import milestone, quiet
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.appends import appends_after
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer, commit_key
from strandline.log.stream.milestone import mark_key
from strandline.log.upkeep import dropping
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.dropping import Dropped, drop_commits
from strandline.log.upkeep.retention import collect, truncate
from strandline.testing import Crash, FaultPlan, FaultyStorage, MemoryStorage
from tests.support.inputs_over import inputs_over
from tests.support.items import append_items, item_spec, read_items

HOUR_US = 3_600_000_000


class Storage(MemoryStorage):
    """In memory, and remembers what was read."""

    reads: ClassVar[list[str]] = []

    def read(self, key: str) -> bytes:
        self.reads.append(key)
        return super().read(key)


@pytest.fixture(autouse=True)
def _small_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "FOLD_EVERY", 4)
    monkeypatch.setattr(index, "FANOUT", 3)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def storage(clock: ManualClock) -> Storage:
    return Storage(clock)


@pytest.fixture
def log(storage: Storage, clock: ManualClock) -> Log:
    log = Log.create(storage, item_spec(lateness=5), clock)
    write(log, 40)
    return log


def write(log: Log, batches: int) -> None:
    for _ in range(batches):
        i = log.state.seq + 1
        append_items(log, {0: [(0, i, i), (0, i, i + 1)], 1: [(1, i, i)] if i % 3 else []}, f"{i}", Writer("q", "r", i))


def drop(log: Log, keep_commits: int = 6, deletes_max: int | None = None) -> Dropped:
    return drop_commits(log, keep_commits=keep_commits, keep_us=0, every=1, deletes_max=deletes_max)


def content(log: Log) -> list[object]:
    return [read_items(log, p) for p in range(3)]


def numbers(storage: MemoryStorage) -> list[int]:
    return [int(listed.key[8:-5]) for listed in storage.list("commits")]


def lose_the_index(storage: MemoryStorage) -> None:
    for listed in list(storage.list("snapshots")):
        storage.delete(listed.key)


# ---------------------------------------------------------------------- what is kept


@pytest.mark.parametrize("made_before", [False, True], ids=["at once", "by another"])
def test_nothing_is_deleted_before_what_replaces_it_would_survive_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_before: bool
) -> None:
    storage = LocalStorage(tmp_path / "stream", "os")
    log = Log.create(storage, item_spec(lateness=5))
    write(log, 40)
    durable: set[str] = set()
    at_mark: set[str] = set()
    at_delete: set[str] = set()
    sync_file, sync_folder, create, delete = (
        durable_file.sync_file,
        durable_file.sync_folder,
        LocalStorage.create,
        LocalStorage.delete,
    )

    def synced(path: str) -> None:
        (sync_folder if os.path.isdir(path) else sync_file)(path)
        durable.add(os.path.relpath(path, storage.url))

    def creates(self: LocalStorage, key: str, data: bytes) -> None:
        if milestone.is_mark(key):
            at_mark.update(durable)
        create(self, key, data)

    def deletes(self: LocalStorage, key: str) -> None:
        if not at_delete:
            at_delete.update(durable)
        delete(self, key)

    if made_before:
        dropping._make(log, log.clock.now_us(), 6, "unique")
    monkeypatch.setattr(durable_file, "sync_file", synced)
    monkeypatch.setattr(durable_file, "sync_folder", synced)
    monkeypatch.setattr(LocalStorage, "create", creates)
    monkeypatch.setattr(LocalStorage, "delete", deletes)
    log = Log.open(storage)
    assert drop_commits(log, keep_commits=6, keep_us=0, every=1 << 40 if made_before else 1).commits > 30
    made = log.state.milestone
    assert made is not None
    recent = {commit_key(seq) for seq in range(made.folded + 1, 41)}
    assert commit_key(40) in recent, "the milestone's own"
    assert log.commits.files(made) | recent | {"milestones", "commits", "."} <= at_mark
    assert at_mark | {mark_key(0), commit_key(0)} <= at_delete
    assert verify(Log.open(storage)).problems == ()


def test_commits_before_a_milestone_are_deleted_and_everything_reads_as_before(log: Log, storage: Storage) -> None:
    before = content(log)
    assert drop(log).commits == 33
    # The first number stays taken, for the sake of readers that know no milestones.
    assert numbers(storage) == [0, *range(34, 41)]
    assert content(log) == content(Log.open(storage)) == before
    assert verify(Log.open(storage)).problems == ()


def test_an_index_that_is_lost_is_rebuilt_from_the_milestone(log: Log, storage: Storage) -> None:
    drop(log)
    write(log, 3)
    before = content(log)
    lose_the_index(storage)
    storage.reads.clear()
    anew = Log.open(storage)
    assert content(anew) == before
    assert anew.state == log.state
    folded = log.state.milestone.folded if log.state.milestone else -1
    commits = {key for key in storage.reads if key.startswith("commits/")}
    # The first one's file says which milestone counts, should a mark be lost.
    assert commits <= {commit_key(seq) for seq in (0, *range(folded + 1, 50))}


def test_what_is_dropped_later_rests_on_what_was_dropped_before(log: Log, storage: Storage, clock: ManualClock) -> None:
    for _ in range(5):
        write(log, 7)
        compact(log, blocks_min=3)
        truncate(log, before_offset=log.state.ends[0] // 3)
        log.fold()
        drop(log, keep_commits=3)
        clock.advance(7_200)
        collect(log, grace_us=HOUR_US)
        lose_the_index(storage)
        assert content(Log.open(storage)) == content(log)
        assert verify(Log.open(storage)).problems == ()
    assert log.state.milestone is not None
    assert log.state.milestone.number == 4


def test_young_commits_and_the_newest_are_kept(storage: Storage, clock: ManualClock) -> None:
    log = Log.create(storage, item_spec(), clock)
    write(log, 10)
    clock.advance(3_600)
    write(log, 10)
    log.fold()
    assert drop_commits(log, keep_commits=0, keep_us=1_000_000, every=1).commits == 9
    assert numbers(storage) == [0, *range(10, 21)]
    assert drop_commits(log, keep_commits=0, keep_us=0, every=100).milestone is None


def test_commits_that_announce_files_are_kept_until_those_are_deleted(
    log: Log, storage: Storage, clock: ManualClock
) -> None:
    compact(log, blocks_min=2)
    log.fold()
    clock.advance(7_200)
    collect(log, grace_us=HOUR_US)
    announcement = log.state.announced[0]
    write(log, 8)
    log.fold()
    drop(log, keep_commits=0)
    assert log.kept <= announcement
    clock.advance(7_200)
    assert collect(log, grace_us=HOUR_US) != []


def test_who_goes_back_through_the_commits_comes_to_those_that_are_kept(log: Log, storage: Storage) -> None:
    drop(log)
    assert [m.seq for m in Log.open(storage).before(log.state.seq + 1)] == [*range(log.state.seq, log.kept - 1, -1)]


def test_few_commits_are_deleted_at_a_time(log: Log, storage: Storage) -> None:
    assert [drop(log, deletes_max=10).commits for _ in range(2)] == [10, 10]
    assert numbers(storage) == [0, *range(21, log.state.seq + 1)]
    assert content(Log.open(storage)) == content(log)


# ---------------------------------------------------------------------- those who stood still


def test_a_frozen_writer_does_not_take_a_number_that_is_free_again_for_the_next_one(
    log: Log, storage: Storage, clock: ManualClock
) -> None:
    frozen = Log(storage, log.spec, clock)
    for seq in range(20):
        frozen._apply(log.commit(seq))
    frozen._published = frozen.state.seq  # so it does not look for later commits again
    drop(log)
    with pytest.raises(DroppedError, match="20 was dropped"):
        append_items(frozen, {0: [(0, 99, 99)]}, "late")
    assert 20 in numbers(storage)  # it did create it
    assert content(Log.open(storage)) == content(log)
    frozen.refresh()
    assert content(frozen) == content(log)
    write(log, 8)
    drop(log)
    assert 20 not in numbers(storage)


def test_a_frozen_reader_is_not_led_astray_by_what_a_frozen_writer_left(
    log: Log, storage: Storage, clock: ManualClock
) -> None:
    frozen, writer = Log(storage, log.spec, clock), Log(storage, log.spec, clock)
    for seq in range(20):
        frozen._apply(log.commit(seq))
        writer._apply(log.commit(seq))
    drop(log)
    with suppress(DroppedError):
        append_items(writer, {0: [(0, 99, 99)]}, "late")
    with pytest.raises(DroppedError):
        frozen.commit(20)
    assert frozen.refresh()
    assert frozen.state == log.state
    assert content(frozen) == content(log)


def test_a_root_that_a_frozen_process_has_put_back_is_not_used(log: Log, storage: Storage) -> None:
    old = storage.read(ROOT_KEY)
    write(log, 20)
    drop(log)
    storage.put(ROOT_KEY, old)
    assert content(Log.open(storage)) == content(log)
    assert Log.open(storage).state == log.state


@pytest.mark.parametrize("seed", range(6))
def test_a_mark_that_is_seen_survives_a_power_loss(seed: int, storage: Storage, clock: ManualClock, log: Log) -> None:
    call = 0
    while True:  # until one dies that has just created the mark, and not synced it
        call += 1
        disk = pickle.loads(pickle.dumps(storage))
        faulty = FaultyStorage(disk, Random(seed), clock=clock)
        with pytest.raises(Crash):
            drop(Log.open(faulty.other_process(FaultPlan(crash_at_call=call, crash_after=True)), clock))
        if disk.exists(mark_key(0)):
            break
    other = Log.open(faulty.other_process(), clock)
    assert drop_commits(other, every=1_000).commits > 0  # and writes nothing beside the mark
    faulty.power_loss()
    assert disk.exists(mark_key(0))
    assert content(Log.open(disk)) == content(other)


def test_a_strandline_that_knows_no_milestones_does_not_take_the_stream_for_empty(log: Log, storage: Storage) -> None:
    drop(log)
    assert b'"format":2' in storage.read(commit_key(0))
    log.fold()
    assert b'"format":2' in storage.read(ROOT_KEY)
    assert b'"format":2' in storage.read(commit_key(40))


# ---------------------------------------------------------------------- operators


def test_an_operator_takes_in_dropped_commits_in_steps_of_bounded_size(
    log: Log, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuts, "TUPLES_MAX", 10)
    monkeypatch.setattr(cuts, "TUPLES_MAX_PER_PARTITION", 0)
    every = {m.seq: (m.ends, m.boundaries) for m in log.after(-1) if isinstance(m, AppendCommit)}
    drop(log)
    write(log, 3)
    found = list(appends_after(log, -1))
    assert all((m.ends, m.boundaries) == every.get(m.seq, (m.ends, m.boundaries)) for m in found)
    assert found[-1].ends == log.state.ends
    steps = [sum(b.ends) - sum(a.ends) for a, b in itertools.pairwise(found)]
    assert sum(found[0].ends) <= 10
    assert 0 < max(steps) <= 10
    assert [m.seq for m in appends_after(log, 37)] == [38, 39, 41, 42, 43]
    fresh = Log.open(storage)
    empty = Log.create(MemoryStorage(), item_spec()).state
    taken = inputs_over([fresh]).next(empty, tuples_max=15)
    assert taken is not None
    assert 0 < sum(one.end or 0 for one in taken.slices) <= 15


def test_cuts_go_with_the_tuples(log: Log) -> None:
    drop(log)
    assert len(log.commits.cut_files()) == 1
    truncate(log, before_offset=log.state.ends[0])
    write(log, 12)
    log.fold()
    drop(log)
    (file,) = log.commits.cut_files()
    assert all(m.seq > 39 for m in cuts.read(log.storage, file, log.spec.id))


# ---------------------------------------------------------------------- damage


def test_the_end_of_a_stream_stays_known_when_its_tuples_and_its_commits_are_gone(log: Log) -> None:
    # An operator may have taken in every tuple and not yet learnt that nothing follows.
    last = log.state.seq
    quiet.finish(log, "r")
    for _ in range(2):
        truncate(log, before_offset=1 << 40)
        log.fold()
        drop(log, keep_commits=0)
    [end] = appends_after(log, last)
    assert end.finished


def test_verify_names_what_is_wrong_with_a_milestone(log: Log, storage: Storage) -> None:
    drop(log)
    write(log, 8)
    drop(log)
    assert log.state.milestone is not None
    leaf = next(file for file in sorted(log.commits.files(log.state.milestone)) if file.endswith(".parquet"))
    for key in (mark_key(0), leaf, log.state.milestone.file, commit_key(log.kept)):
        data = storage.read(key)
        storage.delete(key)
        problems = verify(Log.unread(storage)).problems
        assert key in [p.file for p in problems], (key, problems)
        storage.put(key, data)
        assert verify(Log.unread(storage)).problems == ()


def test_a_rotten_milestone_is_an_error_that_says_what_to_do(log: Log, storage: Storage) -> None:
    drop(log)
    assert log.state.milestone is not None
    storage.put(log.state.milestone.file, b"?")
    assert content(Log.open(storage)) == content(log)  # the index is there
    lose_the_index(storage)
    with pytest.raises(CorruptManifestError, match="milestone 0") as refused:
        Log.open(storage)
    assert "restore" in refused.value.todo


def test_files_of_milestones_that_are_no_longer_the_newest_are_collected(
    log: Log, storage: Storage, clock: ManualClock
) -> None:
    for _ in range(3):
        write(log, 12)
        compact(log, blocks_min=2)
        log.fold()
        drop(log)
    for _ in range(2):
        clock.advance(7_200)
        collect(log, grace_us=HOUR_US)
    left = {listed.key for listed in storage.list(milestone.FOLDER)}
    assert left == log.commits.files(log.state.milestone) | {mark_key(n) for n in range(3)}


def test_files_of_the_newest_milestone_that_has_a_mark_are_not_garbage(
    storage: Storage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process may die between a milestone's commit and its mark; one that drops no commit gets its mark later anyway.
    monkeypatch.setattr(index, "FOLD_EVERY", 1)
    log = Log.create(storage, item_spec(), clock)
    append_items(log, {0: [(1, 2, 3)]}, "a")
    for _ in range(2):
        drop_commits(log, keep_commits=9, keep_us=0, every=1)
    assert storage.exists(mark_key(0))
    assert not storage.exists(mark_key(1))
    clock.advance(1.0)
    for _ in range(2):
        collect(log, grace_us=0)
    storage.delete(ROOT_KEY)
    assert read_items(Log.open(storage, clock), 0) == [(0, (1, 2, 3))]
