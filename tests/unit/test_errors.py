from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import CorruptBlockError, CorruptManifestError, StorageError, StrandlineError, concerning
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.storage_url import open_storage
from strandline.log.storage.time_limited_storage import TimeLimitedStorage
from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import commit_key
from tests.support.items import append_items, item_spec


def test_an_error_keeps_its_stream_when_it_travels() -> None:
    error = pickle.loads(pickle.dumps(StorageError("no answer", where="s/a/commits/1", todo="wait", stream="s/a")))
    assert (error.what, error.where, error.todo, error.stream) == ("no answer", "s/a/commits/1", "wait", "s/a")
    assert error.lies_in("s/a/")
    assert not error.lies_in("s")
    assert not error.lies_in("s/a/b")


def test_an_error_that_says_no_more_of_its_place_names_the_stream() -> None:
    assert str(StorageError("gone", stream="s/a")) == "gone\n  where: s/a"
    assert not StorageError("gone").lies_in("")


def test_an_error_keeps_the_stream_it_has() -> None:
    for stream, expected in (("", "s/outer"), ("s/inner", "s/inner")):
        with pytest.raises(StorageError) as raised, concerning("s/outer"):
            raise StorageError("no answer", stream=stream)
        assert raised.value.stream == expected


@pytest.mark.parametrize("kind", ["local", "memory", "limited"])
def test_errors_of_storages_name_their_stream(kind: str, tmp_path: Path) -> None:
    """Also of a stream that lies in another one: no text would tell them apart."""
    url = f"memory://{tmp_path.name}/outer/inner" if kind == "memory" else str(tmp_path / "outer/inner")
    storage = open_storage(url)
    storage = TimeLimitedStorage(storage, 9.0) if kind == "limited" else storage
    storage.create("a", b"1")

    def raised(method: str, *args: Any) -> StrandlineError:
        with pytest.raises(StorageError) as raised:
            getattr(storage, method)(*args)
        return raised.value

    for problem in (raised("read", "b"), raised("read_range", "b", 0, 1), raised("create", "a", b"2")):
        assert problem.stream == storage.url
        assert problem.where.startswith(f"{storage.url}/")


def test_an_error_of_a_disk_names_its_stream(tmp_path: Path) -> None:
    (tmp_path / "stream").write_text("a file where a folder should be")
    with pytest.raises(StorageError) as raised:
        LocalStorage(tmp_path / "stream").put("commits/a", b"1")
    assert raised.value.stream == str(tmp_path / "stream")


def test_errors_of_a_log_name_its_stream(tmp_path: Path) -> None:
    log = Log.create(LocalStorage(tmp_path / "stream", "os"), item_spec(1))
    append_items(log, {0: [(1, 1, 0)]})
    log.append(Append())
    (block,) = log.blocks(0)
    (tmp_path / "stream" / block.file).write_bytes(b"rotten")
    with pytest.raises(CorruptBlockError) as rotten:
        log.read_block(block)
    (tmp_path / "stream" / block.file).unlink()
    with pytest.raises(CorruptBlockError) as lost:
        list(log.read(0))
    (tmp_path / "stream" / commit_key(0)).write_bytes(b"rotten")
    with pytest.raises(CorruptManifestError) as torn:
        log.commit(0)
    (tmp_path / "stream" / commit_key(0)).unlink()
    with pytest.raises(CorruptManifestError) as missing:
        Log.open(log.storage)
    for raised in (rotten, lost, torn, missing):
        assert raised.value.stream == log.storage.url == str(tmp_path / "stream")
