"""A commit file that is lost is an error, or the truth can still be read; it is never a shorter stream."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from strandline.clock import ManualClock
from strandline.errors import CorruptionError, CorruptManifestError, KeyMissingError
from strandline.log import index
from strandline.log.audit.stream_audit import open_unread, verify
from strandline.log.commits import PROBES
from strandline.log.compaction import compact
from strandline.log.dropping import drop_commits
from strandline.log.log import Log
from strandline.log.manifest import commit_key
from strandline.testing import MemoryStorage
from strandline.testing.items import append_items, item_spec, read_items

ITEMS = 3
COMMITS = 6


def written(commits: int = COMMITS) -> Log:
    """Returns a stream of one partition with so many appends."""
    log = Log.create(MemoryStorage(ManualClock()), item_spec(1), ManualClock())
    for batch in range(commits):
        append(log, batch)
    return log


def append(log: Log, batch: int) -> None:
    append_items(log, {0: [(0, batch * ITEMS + n, batch) for n in range(ITEMS)]}, f"{batch}-{log.state.seq}")


def without(log: Log, *keys: str) -> MemoryStorage:
    storage = log.storage
    assert isinstance(storage, MemoryStorage)
    for key in keys:
        storage.delete(key)
    return storage


def test_a_reader_does_not_take_a_lost_commit_for_the_end() -> None:
    storage = without(written(), commit_key(3))
    with pytest.raises(CorruptManifestError, match="commit 3 is missing, and commit 4 is there") as caught:
        Log.open(storage)
    assert "restore" in str(caught.value)


@pytest.mark.parametrize("lost", range(COMMITS - 1))
def test_any_lost_commit_but_the_last_is_noticed_without_an_index(lost: int) -> None:
    with pytest.raises(CorruptManifestError, match=f"commit {lost} is missing"):
        Log.open(without(written(), commit_key(lost)))


@pytest.mark.parametrize("lost", range(2, 40))
def test_lost_commits_in_a_row_are_noticed_if_as_many_follow(lost: int) -> None:
    log = written(2 * lost + 1)
    with pytest.raises(CorruptManifestError, match="commit 1 is missing"):
        Log.open(without(log, index.ROOT_KEY, *map(commit_key, range(1, lost + 1))))


def test_a_writer_that_was_open_before_fills_no_hole() -> None:
    log = written(2)
    writer = Log.open(log.storage)
    for batch in range(2, COMMITS):
        append(log, batch)
    without(log, commit_key(2))
    with pytest.raises(CorruptManifestError, match="commit 2 is missing, and commit 3 is there"):
        append(writer, 2)
    assert not log.storage.exists(commit_key(2))


def test_a_commit_that_was_put_into_a_hole_is_noticed_by_the_one_behind_it() -> None:
    log = written(2)
    other = Log.open(log.storage)
    for batch in range(2, COMMITS):
        append(log, batch)
    files = {seq: log.storage.read(commit_key(seq)) for seq in (2, 3)}
    without(log, *map(commit_key, range(2, COMMITS)))
    append(other, 20)
    assert log.storage.read(commit_key(2)) != files[2]
    log.storage.create(commit_key(3), files[3])
    with pytest.raises(CorruptManifestError, match="its writer had seen another commit 2"):
        Log.open(log.storage)


def test_an_old_stream_gets_links_from_its_next_commit_but_one_on() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strandline.log.log_state.link_to", lambda m: "")
        log = written(3)
        log.fold()
    log = Log.open(log.storage)
    append(log, 3)
    append(log, 4)
    assert [bool(log.commit(seq).before) for seq in range(5)] == [False, False, False, False, True]
    assert len(read_items(Log.open(log.storage), 0)) == 5 * ITEMS


def test_a_commit_that_comes_while_a_reader_probes_is_no_hole() -> None:
    log = written(2)

    class Meanwhile(MemoryStorage):
        """Publishes two more commits while the first probe is under way."""

        def exists(self, key: str) -> bool:
            if key == commit_key(3) and log.state.seq == 1:
                append(log, 2)
                append(log, 3)
            return super().exists(key)

    storage = log.storage
    assert isinstance(storage, MemoryStorage)
    storage.__class__ = Meanwhile
    assert Log.open(storage).state.seq == 3


def test_opening_asks_for_a_bounded_number_of_later_commits() -> None:
    log = written(2)
    asked: list[str] = []

    class Counting(MemoryStorage):
        def exists(self, key: str) -> bool:
            asked.append(key)
            return super().exists(key)

    storage = log.storage
    storage.__class__ = Counting
    opened = Log.open(storage)
    assert sum(key.startswith("commits/") for key in asked) == len(PROBES)
    asked.clear()
    opened.refresh()
    assert not any(key.startswith("commits/") for key in asked)


@pytest.mark.parametrize("seed", range(150))
def test_the_loss_of_any_single_file_is_an_error_or_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deletes one file of a stream with every kind of file. Only the newest commit can be lost without a trace."""
    rng = Random(seed)
    monkeypatch.setattr(index, "FOLD_EVERY", rng.randint(2, 4))
    monkeypatch.setattr(index, "FANOUT", 2)
    clock = ManualClock()
    storage = MemoryStorage(clock)
    log = Log.create(storage, item_spec(1), clock)
    for batch in range(rng.randint(4, 20)):
        append(log, batch)
        clock.advance(1)
        if rng.random() < 0.3:
            compact(log, target_bytes=100_000, blocks_min=2)
        if rng.random() < 0.2:
            drop_commits(log, keep_commits=2, keep_us=0, every=1)
    expected = read_items(log, 0)
    if rng.random() < 0.5:
        for listed in list(storage.list("snapshots")):
            storage.delete(listed.key)
    newest = commit_key(log.state.seq)
    keys = [listed.key for listed in storage.list("") if listed.key not in (newest, "stream.json")]
    key = rng.choice(keys)
    storage.delete(key)
    with suppress(CorruptionError, KeyMissingError):
        found = Log.open(storage, clock)
        assert read_items(found, 0) == expected, f"{key} is lost, and {len(expected)} tuples read otherwise"
        append(found, 100)
        again = Log.open(storage, clock)
        assert read_items(again, 0)[: len(expected)] == expected, f"after {key} was lost, the writer changed the past"
    # Whatever happened, `verify` does not call a stream good that reads otherwise.
    if verify(open_unread(storage, clock)).is_good:
        assert read_items(Log.open(storage, clock), 0)[: len(expected)] == expected
