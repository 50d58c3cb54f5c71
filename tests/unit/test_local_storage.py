"""What the local filesystem adds to the behaviour suite: durability, full disks, crashes, foreign files."""

import errno
import fcntl
import multiprocessing
import os
import shutil
import signal
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import KeyExistsError, KeyMissingError, NoSpaceError, OptionError, StorageError
from strandline.log.storage import durable_file
from strandline.log.storage.local_storage import LocalStorage
from tests.support.machine import patience


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "stream")


def keys_of(storage: LocalStorage) -> list[str]:
    return [listed.key for listed in storage.list("")]


def failing(number: int) -> Callable[..., Any]:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def record_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is synced and named, in the order in which it happens."""
    calls: list[str] = []
    fsync, link, replace, unlink = os.fsync, os.link, os.replace, os.unlink

    def name_of(path: str) -> str:
        name = os.path.basename(path)
        return "temporary" if name.startswith(".tmp-") else name

    def recorded_fsync(descriptor: int) -> None:
        calls.append(f"sync {name_of(os.readlink(f'/proc/self/fd/{descriptor}'))}")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    for name, call in (("link", link), ("replace", replace)):
        monkeypatch.setattr(
            os, name, lambda a, b, name=name, call=call: (calls.append(f"{name} {name_of(b)}"), call(a, b))
        )
    monkeypatch.setattr(os, "unlink", lambda path: (calls.append(f"unlink {name_of(path)}"), unlink(path)))
    return calls


def test_a_value_is_synced_before_it_has_its_name_and_the_name_before_the_call_returns(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.create("commits/0", b"")
    calls = record_calls(monkeypatch)
    storage.create("commits/1", b"value")
    assert calls == ["sync temporary", "link 1", "unlink temporary", "sync commits"]
    calls.clear()
    storage.put("commits/1", b"value")
    assert calls == ["sync temporary", "replace 1", "sync commits"]
    calls.clear()
    storage.delete("commits/1")
    assert calls == ["unlink 1", "sync commits"]


def test_new_folders_are_durable_up_to_the_one_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    storage = LocalStorage(tmp_path / "there" / "new" / "stream")
    calls = record_calls(monkeypatch)
    storage.create("a/b/key", b"value")
    written = calls.index("sync temporary")
    assert {"sync there", "sync new", "sync stream", "sync a"} <= set(calls[:written])
    assert calls[-1] == "sync b"


def test_a_folder_of_another_process_is_made_durable_at_first_use(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.local_path("commits").mkdir(parents=True)
    calls = record_calls(monkeypatch)
    storage.create("commits/1", b"")
    assert "sync stream" in calls[: calls.index("sync temporary")]


def test_settle_makes_the_names_of_a_folder_durable_and_its_own(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.create("commits/1", b"")
    calls = record_calls(monkeypatch)
    storage.settle("commits")
    assert calls[:2] == ["sync commits", "sync stream"]
    calls.clear()
    storage.settle("")
    assert calls[0] == "sync stream"


def test_durability_os_never_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    storage = LocalStorage(tmp_path / "stream", durability="os")
    storage.create("a/b", b"1")
    storage.put("a/b", b"2")
    (tmp_path / "file").write_bytes(b"3")
    storage.adopt(tmp_path / "file", "c/d")
    storage.settle("a")
    storage.delete("a/b")
    assert keys_of(storage) == ["c/d"]


def test_another_durability_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="durability"):
        LocalStorage(tmp_path, durability="maybe")  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write", "fsync", "open", "mkdir"])
def test_a_full_disk_leaves_what_was_there_and_no_leftovers(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    storage.put("commits/1", b"old")
    folder = "other" if call == "mkdir" else "commits"
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(number))
        for write in (storage.create, storage.put):
            with pytest.raises(NoSpaceError, match="no space left") as caught:
                write(f"{folder}/2", b"new")
            assert isinstance(caught.value.__cause__, OSError)
    assert keys_of(storage) == ["commits/1"]
    storage.create(f"{folder}/2", b"new")


def test_a_full_disk_half_way_through_a_value_leaves_nothing(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = os.write, []

    def half(descriptor: int, data: memoryview) -> int:
        if written:
            raise OSError(errno.ENOSPC, "full")
        written.append(write(descriptor, data[: len(data) // 2]))
        return written[0]

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(NoSpaceError):
        storage.create("a", bytes(1_000))
    assert written == [500]
    assert keys_of(storage) == []


def test_a_value_that_the_system_takes_in_pieces_is_written_whole(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    storage.create("a", bytes(range(100)))
    assert storage.read("a") == bytes(range(100))


def test_a_disk_that_cannot_sync_is_an_error_and_shows_no_key(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.create("a", b"")
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    with pytest.raises(StorageError, match="Input/output error") as caught:
        storage.create("b", b"")
    assert str(storage.local_path("b")) in str(caught.value)
    assert "to do" in str(caught.value)
    assert keys_of(storage) == ["a"]


def test_a_key_that_cannot_be_looked_up_is_an_error_and_not_missing(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.create("a", b"")
    monkeypatch.setattr(os, "stat", failing(errno.EACCES))
    with pytest.raises(StorageError) as caught:
        storage.exists("a")
    assert not isinstance(caught.value, KeyMissingError)


def test_a_killed_writer_leaves_an_old_unnamed_file_and_no_key(storage: LocalStorage) -> None:
    def die_before_the_name() -> None:
        os.link = os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        storage.create("commits/1", b"value")

    process = multiprocessing.get_context("fork").Process(target=die_before_the_name)
    process.start()
    process.join(patience(30))
    assert process.exitcode == -signal.SIGKILL
    assert not storage.exists("commits/1")
    [leftover] = keys_of(storage)
    assert leftover.startswith("commits/.tmp-")
    storage.create("commits/1", b"value")
    storage.delete(leftover)
    assert keys_of(storage) == ["commits/1"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_filesystem_without_hard_links_still_creates_exclusively(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "link", failing(number))
    won: list[bytes] = []
    start = threading.Barrier(6)

    def race(data: bytes) -> None:
        start.wait(patience(30))
        try:
            storage.create("commits/1", data)
            won.append(data)
        except KeyExistsError:
            pass

    threads = [threading.Thread(target=race, args=(bytes([thread]),)) for thread in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [storage.read("commits/1")]
    assert keys_of(storage) == ["commits/1"]


def test_a_filesystem_that_cannot_create_exclusively_is_refused(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    monkeypatch.setattr(durable_file.ctypes, "CDLL", lambda *args, **kwargs: object())
    with pytest.raises(StorageError, match="neither link nor rename") as caught:
        storage.create("a", b"")
    assert "hard links" in caught.value.todo
    assert keys_of(storage) == []


def test_a_link_that_was_made_twice_for_a_lost_reply_is_a_success(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_twice(source: str, target: str) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", link_twice)
    storage.create("a", b"value")
    assert storage.read("a") == b"value"
    with pytest.raises(KeyExistsError):
        storage.create("a", b"other")


def test_a_file_of_somebody_else_is_adopted(storage: LocalStorage, tmp_path: Path) -> None:
    source = tmp_path / "part-0.parquet"
    source.write_bytes(b"rows")
    storage.adopt(source, "p=0/block.parquet")
    assert storage.read("p=0/block.parquet") == b"rows"
    assert not source.exists()
    assert storage.local_path("p=0/block.parquet").stat().st_nlink == 1


def test_an_adopted_file_is_durable_under_its_key_before_it_loses_its_name(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.create("p=0/other", b"")
    (tmp_path / "part").write_bytes(b"rows")
    calls = record_calls(monkeypatch)
    storage.adopt(tmp_path / "part", "p=0/block")
    assert calls == ["sync part", "link block", "sync p=0", "unlink part"]


def test_a_taken_key_is_not_adopted_over(storage: LocalStorage, tmp_path: Path) -> None:
    storage.create("block", b"first")
    source = tmp_path / "part"
    source.write_bytes(b"second")
    with pytest.raises(KeyExistsError):
        storage.adopt(source, "block")
    assert storage.read("block") == b"first"
    assert source.read_bytes() == b"second"


def test_an_adoption_that_a_crash_cut_off_can_be_repeated(storage: LocalStorage, tmp_path: Path) -> None:
    storage.create("other", b"")
    source = tmp_path / "part"
    source.write_bytes(b"rows")
    os.link(source, storage.local_path("block"))
    storage.adopt(source, "block")
    assert storage.read("block") == b"rows"
    assert not source.exists()


def test_a_file_is_not_adopted_onto_itself(storage: LocalStorage, tmp_path: Path) -> None:
    storage.create("block", b"rows")
    (tmp_path / "alias").symlink_to(tmp_path / "stream")
    for source in (tmp_path / "stream" / "block", tmp_path / "alias" / "block"):
        with pytest.raises(KeyExistsError):
            storage.adopt(source, "block")
    assert storage.read("block") == b"rows"


def test_a_missing_file_and_one_on_another_filesystem_are_not_adopted(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyMissingError, match="no file"):
        storage.adopt(tmp_path / "part", "block")
    (tmp_path / "part").write_bytes(b"rows")
    monkeypatch.setattr(os, "link", failing(errno.EXDEV))
    with pytest.raises(StorageError) as caught:
        storage.adopt(tmp_path / "part", "block")
    assert "filesystem that holds the stream" in caught.value.todo
    assert (tmp_path / "part").read_bytes() == b"rows"


def test_a_stream_that_was_removed_can_be_written_again(storage: LocalStorage, tmp_path: Path) -> None:
    storage.create("commits/1", b"")
    shutil.rmtree(tmp_path / "stream")
    storage.create("commits/1", b"")
    assert keys_of(storage) == ["commits/1"]


def test_files_and_folders_in_the_wrong_place_are_errors(storage: LocalStorage) -> None:
    storage.create("a/b", b"")
    for write in (storage.create, storage.put):
        with pytest.raises(StorageError, match="Is a directory"):
            write("a", b"")
        with pytest.raises(StorageError, match="Not a directory"):
            write("a/b/c", b"")
    assert keys_of(storage) == ["a/b"]
    storage.delete("a")
    assert storage.exists("a/b")


def test_nothing_is_written_before_the_first_key(storage: LocalStorage, tmp_path: Path) -> None:
    assert keys_of(storage) == []
    assert not storage.exists("a")
    storage.delete("a")
    storage.settle("commits")
    assert list(tmp_path.iterdir()) == []


def test_files_have_the_rights_that_the_user_asks_for(storage: LocalStorage) -> None:
    before = os.umask(0o027)
    try:
        storage.create("a", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE(storage.local_path("a").stat().st_mode) == 0o640


def test_a_relative_root_is_fixed_when_the_storage_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    storage = LocalStorage("stream")
    monkeypatch.chdir("/")
    storage.create("a", b"value")
    assert (tmp_path / "stream" / "a").read_bytes() == b"value"
    assert storage.url == str(tmp_path / "stream")
    assert storage.local_path("b/c") == tmp_path / "stream" / "b" / "c"


@pytest.mark.parametrize(("number", "is_told"), [(errno.EIO, True), (errno.ENOSPC, True), (errno.ENOTSUP, False)])
def test_on_macos_an_error_of_the_disk_is_told_and_a_filesystem_without_full_syncs_is_synced_as_it_can_be(
    number: int, is_told: bool, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", failing(number))
    if is_told:
        with pytest.raises(StorageError):
            storage.create("a", b"1")
        assert keys_of(storage) == []
    else:
        storage.create("a", b"1")
        assert storage.read("a") == b"1"
