"""A commit file that is lost is an error, or the truth can still be read; it is never a shorter stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.clock import ManualClock
from strandline.errors import CorruptManifestError
from strandline.log.audit.stream_audit import verify
from strandline.log.index import index
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.stream.commits import POLLS, PROBES
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import commit_key
from strandline.log.stream.milestone import mark_key
from strandline.log.upkeep.compaction import compact
from strandline.log.upkeep.dropping import drop_commits
from strandline.testing import MemoryStorage
from tests.support.items import append_items, item_spec, read_items

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


def test_a_writer_that_published_before_the_others_fills_no_hole() -> None:
    log = written(3)
    compactor = Log.open(log.storage)
    assert compact(compactor, blocks_min=2).blocks_after == 1
    log.refresh()
    for batch in range(3, COMMITS):
        append(log, batch)
    compactor.refresh()
    for batch in range(COMMITS, COMMITS + 3):
        append(log, batch)
    lost = compactor.state.seq + 1
    without(log, commit_key(lost))
    with pytest.raises(CorruptManifestError, match=f"commit {lost} is missing, and commit {lost + 1} is there"):
        compact(compactor, blocks_min=2)
    assert not log.storage.exists(commit_key(lost))


def test_a_follower_that_polls_notices_a_lost_commit_after_some_polls() -> None:
    log = written(2)
    follower = Log.open(log.storage)
    for batch in range(2, COMMITS):
        append(log, batch)
    without(log, commit_key(2))
    with pytest.raises(CorruptManifestError, match="commit 2 is missing"):
        for _ in range(POLLS):
            assert not follower.refresh()


@pytest.mark.parametrize("lost", [1, 3, 7, 25, 64])
def test_on_a_file_system_lost_commits_in_a_row_are_noticed_if_one_follows(lost: int, tmp_path: Path) -> None:
    log = Log.create(LocalStorage(tmp_path, durability="os"), item_spec(1))
    for batch in range(lost + 2):
        append(log, batch)
    for seq in range(1, lost + 1):
        log.storage.delete(commit_key(seq))
    with pytest.raises(CorruptManifestError, match="commit 1 is missing"):
        Log.open(log.storage)


def with_milestones(many: int) -> Log:
    """Returns a stream of which so many milestones hold all but the newest commits, and that has lost its index."""
    log = written(3)
    for milestone in range(1, many + 1):
        for more in range(9):
            append(log, 10 * milestone + more)
        log.fold()
        drop_commits(log, keep_commits=1, keep_us=0, every=1)
    append(log, 100)
    for listed in list(log.storage.list("snapshots")):
        log.storage.delete(listed.key)
    return log


@pytest.mark.parametrize("lost", range(6))
def test_a_stream_that_has_lost_a_mark_is_read_whole_without_an_index(lost: int) -> None:
    log = with_milestones(6)
    expected = read_items(log, 0)
    found = Log.open(without(log, mark_key(lost)))
    (problem,) = verify(Log.unread(log.storage)).problems
    assert problem.file == mark_key(lost)
    assert read_items(found, 0) == expected
    append(found, 200)
    assert read_items(Log.open(log.storage), 0)[: len(expected)] == expected


def test_the_file_that_keeps_the_first_commits_number_is_written_again_if_it_is_lost() -> None:
    log = with_milestones(2)
    without(log, commit_key(0))
    drop_commits(log, keep_commits=1, keep_us=0, every=1)
    assert log.storage.exists(commit_key(0))


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
        patch.setattr("strandline.log.stream.log_state.link_to", lambda m: "")
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

        is_probed = False

        def exists(self, key: str) -> bool:
            if key == commit_key(3) and not self.is_probed:
                self.is_probed = True
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
