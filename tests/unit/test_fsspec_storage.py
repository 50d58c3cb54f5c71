"""What remote stores add to the behaviour suite: their answers, lost answers, other processes, other servers."""

import errno
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import pytest

from strandline.clock import ManualClock
from strandline.errors import KeyExistsError, KeyMissingError, NoAccessError, NoSpaceError, OptionError, StorageError
from strandline.log.storage import fsspec_backends, fsspec_storage
from strandline.log.storage.fsspec_backends import BACKENDS, S3Backend
from strandline.log.storage.fsspec_storage import FsspecStorage
from tests.support.machine import patience


@pytest.fixture
def s3_storage(s3_endpoint: str) -> FsspecStorage:
    return FsspecStorage(f"s3://tests/{uuid4().hex}", endpoint_url=s3_endpoint)


class ScriptedFilesystem:
    """Answers each write with the next of its answers: an error to raise, or None for a success."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.calls: list[dict[str, Any]] = []

    def pipe_file(self, path: str, data: bytes, **options: Any) -> None:
        self.calls.append(options)
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer


def s3_answer(code: str, status: int) -> OSError:
    """An error as s3fs makes it: of any kind, with botocore's answer as its cause."""
    cause = Exception(code)
    cause.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}  # type: ignore[attr-defined]
    error = OSError(errno.EIO, code)
    error.__cause__ = cause
    return error


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr(fsspec_backends, "SYSTEM_CLOCK", clock)
    return clock


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted"])
def test_s3_create_is_repeated_after_a_conflict(clock: ManualClock, code: str) -> None:
    filesystem = ScriptedFilesystem(s3_answer(code, 409), s3_answer(code, 409), None)
    S3Backend().create(filesystem, "bucket/key", b"")
    assert len(filesystem.calls) == 3
    assert all(call["mode"] == "create" for call in filesystem.calls)
    assert clock.now_us() > 0


def test_s3_create_gives_up_when_the_conflict_does_not_end(clock: ManualClock) -> None:
    filesystem = ScriptedFilesystem(*[s3_answer("ConditionalRequestConflict", 409)] * 20)
    with pytest.raises(OSError, match="ConditionalRequestConflict"):
        S3Backend().create(filesystem, "bucket/key", b"")
    assert 5 <= len(filesystem.calls) < 20


@pytest.mark.parametrize("answer", [s3_answer("PreconditionFailed", 412), s3_answer("", 412)])
def test_s3_create_knows_a_taken_key_however_the_server_says_it(clock: ManualClock, answer: OSError) -> None:
    filesystem = ScriptedFilesystem(s3_answer("ConditionalRequestConflict", 409), answer)
    with pytest.raises(FileExistsError):
        S3Backend().create(filesystem, "bucket/key", b"")


def test_s3_create_does_not_repeat_other_errors(clock: ManualClock) -> None:
    filesystem = ScriptedFilesystem(s3_answer("InternalError", 500))
    with pytest.raises(OSError, match="InternalError"):
        S3Backend().create(filesystem, "bucket/key", b"")


@pytest.mark.parametrize(
    ("protocol", "option", "value"),
    [("gs", "mode", "create"), ("abfs", "overwrite", False), ("abfss", "overwrite", False), ("az", "overwrite", False)],
)
def test_gcs_and_azure_are_asked_for_an_exclusive_create(protocol: str, option: str, value: object) -> None:
    filesystem = ScriptedFilesystem(None, FileExistsError())
    BACKENDS[protocol].create(filesystem, "bucket/key", b"")
    assert filesystem.calls[0][option] == value
    with pytest.raises(FileExistsError):
        BACKENDS[protocol].create(filesystem, "bucket/key", b"")


def test_a_server_that_ignores_the_condition_is_refused(
    s3_storage: FsspecStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec_storage, "_exclusive_servers", set())
    monkeypatch.setattr(S3Backend, "create", S3Backend.put)
    with pytest.raises(OptionError, match="If-None-Match"):
        s3_storage.create("a", b"")
    assert list(s3_storage.list("")) == []


def test_a_server_is_tried_out_once_and_nothing_stays_of_it(
    s3_storage: FsspecStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec_storage, "_exclusive_servers", set())
    created: list[str] = []
    create = S3Backend.create

    def recorded(self: S3Backend, filesystem: Any, path: str, data: bytes) -> None:
        created.append(path.rpartition("/")[2][:5])
        create(self, filesystem, path, data)

    monkeypatch.setattr(S3Backend, "create", recorded)
    for key in ("a", "b"):
        s3_storage.create(key, b"")
    assert created == [".tmp-", ".tmp-", "a", "b"]
    assert [listed.key for listed in s3_storage.list("")] == ["a", "b"]


def test_a_lost_answer_is_an_error_and_not_a_success_and_not_a_conflict(
    s3_storage: FsspecStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = S3Backend.create
    s3_storage.create("other", b"")

    def lose_the_answer(self: S3Backend, filesystem: Any, path: str, data: bytes) -> None:
        create(self, filesystem, path, data)
        raise TimeoutError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(S3Backend, "create", lose_the_answer)
        with pytest.raises(StorageError, match="no answer") as caught:
            s3_storage.create("a", b"mine")
        assert not isinstance(caught.value, KeyExistsError)
    # The caller tries again, and finds its own bytes.
    with pytest.raises(KeyExistsError):
        s3_storage.create("a", b"mine")
    assert s3_storage.read("a") == b"mine"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "full"),
        OSError(errno.EDQUOT, "full"),
        s3_answer("QuotaExceeded", 403),
        s3_answer("XMinioStorageFull", 507),
        RuntimeError("The DiskSpace quota of /user/x is exceeded: quota = 1 B"),
    ],
)
def test_a_full_store_is_no_space_left(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FsspecStorage(f"memory://{uuid4().hex}")
    monkeypatch.setattr(type(storage._backend), "put", lambda *args: ScriptedFilesystem(error).pipe_file("", b""))
    with pytest.raises(NoSpaceError) as caught:
        storage.put("a", b"")
    assert caught.value.__cause__ is error
    assert storage.url in caught.value.where


@pytest.mark.parametrize("error", [PermissionError("denied"), ValueError("odd"), RuntimeError("odd"), KeyError("odd")])
def test_whatever_a_package_raises_is_a_storage_error_with_its_cause(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FsspecStorage(f"memory://{uuid4().hex}")
    monkeypatch.setattr(type(storage._backend), "read", lambda *args: ScriptedFilesystem(error).pipe_file("", b""))
    with pytest.raises(StorageError) as caught:
        storage.read("a")
    assert not isinstance(caught.value, KeyMissingError)
    assert isinstance(caught.value, NoAccessError) == isinstance(error, PermissionError)
    assert caught.value.__cause__ is error
    assert caught.value.todo


def test_a_missing_bucket_is_named_when_writing(s3_endpoint: str) -> None:
    storage = FsspecStorage("s3://no-such-bucket/stream", endpoint_url=s3_endpoint)
    for write in (storage.create, storage.put):
        with pytest.raises(StorageError) as caught:
            write("a", b"")
        assert "bucket" in caught.value.todo
        assert not isinstance(caught.value, KeyMissingError)
    assert not storage.exists("a")


def test_what_another_process_writes_is_listed_at_once(s3_storage: FsspecStorage) -> None:
    s3_storage.create("a", b"")
    assert [listed.key for listed in s3_storage.list("")] == ["a"]
    program = (
        "import pickle, sys; storage = pickle.load(sys.stdin.buffer); assert storage.read('a') == b'';"
        "storage.create('b', b'from elsewhere'); storage.delete('a')"
    )
    subprocess.run([sys.executable, "-c", program], input=pickle.dumps(s3_storage), check=True, timeout=patience(60))
    assert [listed.key for listed in s3_storage.list("")] == ["b"]
    assert not s3_storage.exists("a")
    assert s3_storage.read("b") == b"from elsewhere"


def test_nothing_is_answered_from_a_cache_of_listings(s3_storage: FsspecStorage) -> None:
    assert s3_storage._connect().dircache.use_listings_cache is False


def test_reading_and_looking_for_a_key_is_one_request_each(
    s3_storage: FsspecStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs.core

    requests: list[str] = []
    send = s3fs.core._error_wrapper

    async def recorded(method: Callable[..., Any], **options: Any) -> Any:
        if not method.__name__.startswith("_"):
            requests.append(method.__name__)
        return await send(method, **options)

    s3_storage.create("there", b"")
    monkeypatch.setattr(s3fs.core, "_error_wrapper", recorded)
    assert s3_storage.read("there") == b""
    assert s3_storage.exists("there")
    assert not s3_storage.exists("missing")
    with pytest.raises(KeyMissingError):
        s3_storage.read("missing")
    s3_storage.create("new", b"")
    assert requests == ["get_object", "head_object", "head_object", "get_object", "put_object"]


@pytest.mark.parametrize(
    "info",
    [
        {"LastModified": datetime(2024, 1, 1, 12, tzinfo=UTC)},
        {"last_modified": datetime(2024, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))},
        {"mtime": datetime(2024, 1, 1, 12)},
        {"modificationTime": 1_704_110_400_000},
        {"created": 1_704_110_400.0},
    ],
)
def test_each_store_has_its_own_way_to_say_when(info: dict[str, Any]) -> None:
    assert fsspec_storage._modified_us(info) == 1_704_110_400_000_000


def test_a_store_that_does_not_say_when_is_an_error() -> None:
    with pytest.raises(StorageError, match="does not say when"):
        fsspec_storage._modified_us({"name": "a"})
