"""Sealing a file that Spark has written: what the disk says about it is heard."""

import errno
import os
from pathlib import Path

import pytest

from strandline.errors import NoSpaceError, StorageError
from strandline.log.storage import durable_file
from strandline.spark.entry.native_blocks import _seal, _Written
from strandline.spark.session.place import Place
from tests.support.items import encode, item_spec, item_table

SPEC = item_spec(1)
KEY = SPEC.file(0, 0, "batch")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "stream"))


@pytest.fixture
def written(tmp_path: Path) -> _Written:
    staged = tmp_path / "stream" / "staging" / "part-00000.parquet"
    staged.parent.mkdir(parents=True)
    staged.write_bytes(encode(item_table(SPEC, 0, [(1, 2, 3)]), SPEC))
    return _Written(str(staged), KEY, 0, 0)


def failing_once(number: int) -> tuple[list[str], object]:
    """As Linux has it: a failed write-back is told to whoever syncs first, and to nobody after."""
    told: list[str] = []

    def sync(path: str) -> None:
        if not told:
            told.append(path)
            raise OSError(number, os.strerror(number))

    return told, sync


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, StorageError), (errno.ENOSPC, NoSpaceError)])
def test_a_block_that_the_disk_could_not_keep_is_not_sealed(
    number: int, kind: type[StorageError], place: Place, written: _Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, sync = failing_once(number)
    monkeypatch.setattr(durable_file, "sync_file", sync)
    with pytest.raises(kind):
        _seal(written, place, SPEC)
    assert told
    assert not place.storage().exists(KEY)


def test_a_retried_task_does_not_take_such_a_file_for_durable(
    place: Place, written: _Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sync = failing_once(errno.EIO)
    monkeypatch.setattr(durable_file, "sync_file", sync)
    for _ in range(2):
        with pytest.raises(StorageError):
            _seal(written, place, SPEC)
    assert not place.storage().exists(KEY)


def test_a_good_file_is_sealed_and_a_retried_task_finds_it_at_its_place(place: Place, written: _Written) -> None:
    block = _seal(written, place, SPEC)
    assert (block.first, block.end, block.file) == (0, 1, KEY)
    assert _seal(written, place, SPEC) == block
