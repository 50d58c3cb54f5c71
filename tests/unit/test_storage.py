"""One behaviour suite over every storage: what `strandline.log.storage.storage.Storage` promises."""

import multiprocessing
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import KeyExistsError, KeyMissingError, OptionError
from strandline.log.storage.fsspec_storage import FsspecStorage
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage import Storage, create_once
from strandline.log.storage.time_limited_storage import TimeLimitedStorage
from strandline.testing import FaultyStorage, MemoryStorage
from tests.support.machine import patience

KINDS = [
    *("local-fsync", "local-os", "memory", "faulty", "fsspec-memory", "fsspec-s3", "fsspec-webhdfs"),
    *("limited", "limited-s3"),
]
# Those that several processes can share.
SHARED_KINDS = ["local-fsync", "local-os", "fsspec-s3", "limited", "limited-s3"]
BAD_KEYS = ["", "/a", "a/", "a//b", "..", "a/../b", "../a", "a/..", ".", "./a", "a/./b", "a\0b", "/"]


def new_storage(kind: str, folder: Path, request: pytest.FixtureRequest) -> Storage:
    if kind.startswith("limited"):
        inner = new_storage("fsspec-s3" if kind.endswith("s3") else "local-os", folder, request)
        return TimeLimitedStorage(inner, 60.0)
    if kind == "local-fsync":
        return LocalStorage(folder / "stream")
    if kind == "local-os":
        return LocalStorage(folder / "stream", durability="os")
    if kind == "memory":
        return MemoryStorage()
    if kind == "faulty":
        return FaultyStorage(MemoryStorage(), Random(1))
    if kind == "fsspec-memory":
        return FsspecStorage(f"memory://{uuid4().hex}")
    if kind == "fsspec-s3":
        return FsspecStorage(f"s3://tests/{uuid4().hex}", endpoint_url=request.getfixturevalue("s3_endpoint"))
    return FsspecStorage(f"{request.getfixturevalue('webhdfs_url')}/{uuid4().hex}")


@pytest.fixture(params=KINDS)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return new_storage(request.param, tmp_path, request)


@pytest.fixture(params=SHARED_KINDS)
def shared_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return new_storage(request.param, tmp_path, request)


def keys_of(storage: Storage, prefix: str = "") -> list[str]:
    return [listed.key for listed in storage.list(prefix)]


def test_names_are_those_of_one_level(storage: Storage) -> None:
    if not isinstance(storage, LocalStorage | FsspecStorage):
        pytest.skip("only stores that a user names have folders of streams")
    for key in ("a/b/c", "a/b.json", "a/b/d/e", "f"):
        storage.create(key, b"")
    assert list(storage.names("")) == ["a/", "f"]
    assert list(storage.names("a")) == ["b.json", "b/"]
    for folder in ("a/b.json", "nowhere"):
        with pytest.raises(KeyMissingError):
            storage.names(folder)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.mark.parametrize("data", [b"", b"\0", b"value", bytes(range(256)) * 20_000], ids=["0", "1", "5", "5MB"])
def test_what_was_created_is_read_back(storage: Storage, data: bytes) -> None:
    storage.create("commits/1.json", data)
    assert storage.read("commits/1.json") == data
    assert [listed.size_bytes for listed in storage.list("")] == [len(data)]


def test_a_range_is_read_back(storage: Storage) -> None:
    data = bytes(range(256)) * 10
    storage.create("a/b", data)
    for begin, end in ((0, 2560), (0, 1), (300, 1234), (2559, 2560), (0, 2561), (2559, 5000), (2550, 1 << 26)):
        assert storage.read_range("a/b", begin, end) == data[begin:end], "fewer where it ends before"
    with pytest.raises(KeyMissingError):
        storage.read_range("a/c", 0, 1)


def test_what_was_put_is_read_back_and_replaced(storage: Storage) -> None:
    for data in (b"first", b"", b"a longer one", bytes(5_000_000)):
        storage.put("a/b", data)
        assert storage.read("a/b") == data
    assert keys_of(storage) == ["a/b"]


def test_a_key_is_created_once(storage: Storage) -> None:
    storage.create("a", b"first")
    with pytest.raises(KeyExistsError):
        storage.create("a", b"second")
    assert storage.read("a") == b"first"


def test_what_was_put_cannot_be_created(storage: Storage) -> None:
    storage.put("a", b"")
    with pytest.raises(KeyExistsError):
        storage.create("a", b"second")


def test_a_deleted_key_can_be_created_again(storage: Storage) -> None:
    storage.create("a/b", b"first")
    storage.delete("a/b")
    storage.create("a/b", b"second")
    assert storage.read("a/b") == b"second"


def test_a_missing_key_is_not_there(storage: Storage) -> None:
    storage.create("folder/a", b"")
    for key in ("b", "folder/b", "other/folder/b"):
        assert not storage.exists(key)
        with pytest.raises(KeyMissingError) as caught:
            storage.read(key)
        assert key in str(caught.value)


def test_a_folder_is_not_a_key(storage: Storage) -> None:
    storage.create("folder/below/a", b"")
    for key in ("folder", "folder/below"):
        assert not storage.exists(key)
        with pytest.raises(KeyMissingError):
            storage.read(key)


def test_a_key_that_was_written_exists(storage: Storage) -> None:
    storage.create("a", b"")
    storage.put("folder/b", b"")
    assert storage.exists("a")
    assert storage.exists("folder/b")


def test_deleting_twice_is_no_error(storage: Storage) -> None:
    storage.create("folder/a", b"")
    for key in ("folder/a", "folder/a", "folder/b", "never/there"):
        storage.delete(key)
    assert not storage.exists("folder/a")
    assert keys_of(storage) == []


def test_a_listing_is_recursive_and_in_the_order_of_the_keys(storage: Storage) -> None:
    keys = ["b", "a/c", "a-b", "a.b", "a/b/d", "a/b/c", "p=1/x", "p=10/x", "p=2/x", "Z", "ä", "a0"]
    for key in keys:
        storage.create(key, key.encode())
    assert keys_of(storage) == sorted(keys)
    assert [listed.size_bytes for listed in storage.list("")] == [len(key.encode()) for key in sorted(keys)]


def test_a_prefix_is_a_folder_and_not_the_start_of_a_name(storage: Storage) -> None:
    for key in ("block/1", "block/2/3", "blocks/1", "block.json", "block-1/1"):
        storage.create(key, b"")
    assert keys_of(storage, "block") == ["block/1", "block/2/3"]
    assert keys_of(storage, "block/2") == ["block/2/3"]


def test_a_listing_of_what_is_no_folder_is_empty(storage: Storage) -> None:
    assert keys_of(storage) == []
    storage.create("a", b"")
    assert keys_of(storage, "a") == []
    assert keys_of(storage, "b") == []


@pytest.mark.parametrize("storage", [kind for kind in KINDS if kind != "fsspec-webhdfs"], indirect=True)
def test_a_listing_says_when_a_key_was_written(storage: Storage) -> None:
    before_us = SYSTEM_CLOCK.now_us()
    storage.create("a/b", b"")
    [listed] = storage.list("a")
    # S3 counts in seconds, and a filesystem's clock may be a tick behind.
    assert before_us - 1_100_000 <= listed.modified_us <= SYSTEM_CLOCK.now_us() + 1_100_000


@pytest.mark.parametrize("key", BAD_KEYS)
def test_a_key_that_could_lead_elsewhere_is_refused(storage: Storage, key: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: storage.create(key, b""),
        lambda: storage.put(key, b""),
        lambda: storage.read(key),
        lambda: storage.exists(key),
        lambda: storage.delete(key),
        lambda: storage.local_path(key),
    ]
    if key:
        calls += [lambda: list(storage.list(key)), lambda: storage.settle(key)]
    for call in calls:
        with pytest.raises(OptionError, match="is not a key"):
            call()


@pytest.mark.parametrize("key", ["...", "..a/b", "a/.b", "a b/ü?#%20&=+", "-", "~", "a" * 200, "a\\b", "{x}*[y]"])
def test_any_other_name_is_a_key(storage: Storage, key: str) -> None:
    storage.create(key, b"1")
    storage.put(key, b"12")
    assert storage.exists(key)
    assert storage.read(key) == b"12"
    assert keys_of(storage) == [key]
    storage.delete(key)
    assert keys_of(storage) == []


def test_settling_any_folder_is_allowed(storage: Storage) -> None:
    storage.settle("")
    storage.settle("nothing/there")
    storage.create("a/b/c", b"value")
    for prefix in ("", "a", "a/b"):
        storage.settle(prefix)
    assert storage.read("a/b/c") == b"value"


def test_a_pickled_storage_reads_the_same_keys(storage: Storage) -> None:
    storage.create("a/b", b"value")
    copy = pickle.loads(pickle.dumps(storage))
    assert copy.url == storage.url
    assert copy.read("a/b") == b"value"
    copy.create("c", b"")
    with pytest.raises(KeyExistsError):
        copy.create("a/b", b"")


def test_of_many_threads_that_create_a_key_one_wins(storage: Storage) -> None:
    winners: list[tuple[str, bytes]] = []
    start = threading.Barrier(6)

    def race(number: int) -> None:
        for round_ in range(5):
            start.wait(patience(30))
            key, data = f"commits/{round_}", str(number).encode()
            try:
                storage.create(key, data)
                winners.append((key, data))
            except KeyExistsError:
                pass

    in_threads(6, race)
    assert sorted(key for key, _ in winners) == [f"commits/{round_}" for round_ in range(5)]
    assert [storage.read(key) for key, _ in winners] == [data for _, data in winners]
    assert keys_of(storage) == sorted(key for key, _ in winners)


def test_a_reader_sees_all_of_a_value_while_it_is_replaced(storage: Storage) -> None:
    values = [bytes([number]) * (50_000 + number * 1_000) for number in range(20)]
    storage.put("a", values[0])
    done = threading.Event()

    def work(number: int) -> None:
        if number == 0:
            for value in values:
                storage.put("a", value)
            done.set()
            return
        while not done.is_set():
            assert storage.read("a") in values
            assert storage.exists("a")

    in_threads(3, work)
    assert storage.read("a") == values[-1]


def test_of_many_processes_that_create_a_key_one_wins(shared_storage: Storage) -> None:
    # Forked, as Spark forks its Python workers, after the parent has used the storage and has threads for it.
    shared_storage.put("before", b"seen by all")
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(4), context.Queue()

    def race(number: int) -> None:
        assert shared_storage.read("before") == b"seen by all"
        won = []
        for round_ in range(10):
            start.wait(patience(30))
            try:
                shared_storage.create(f"commits/{round_}", str(number).encode())
                won.append(round_)
            except KeyExistsError:
                pass
        results.put((number, won))

    processes = [context.Process(target=race, args=(number,)) for number in range(4)]
    for process in processes:
        process.start()
    won = dict(results.get(timeout=patience(60)) for _ in processes)
    for process in processes:
        process.join(patience(30))
        assert process.exitcode == 0
    assert sorted(round_ for rounds in won.values() for round_ in rounds) == list(range(10))
    for number, rounds in won.items():
        assert {shared_storage.read(f"commits/{round_}") for round_ in rounds} <= {str(number).encode()}


def test_who_finds_its_own_bytes_has_made_them(storage: Storage) -> None:
    storage.create("blocks/a", b"mine")
    create_once(storage, "blocks/a", b"mine")
    with pytest.raises(KeyExistsError):
        create_once(storage, "blocks/a", b"theirs")
    create_once(storage, "blocks/b", b"mine")
    assert storage.read("blocks/a") == storage.read("blocks/b") == b"mine"
