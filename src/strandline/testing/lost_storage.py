"""A stream that a test has lost, as operators see it: they know what it held, and cannot read any of it."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.errors import StorageError
from strandline.log.storage.storage import Listed, Storage
from strandline.log.stream.log import Log
from strandline.testing.memory_storage import MemoryStorage


class LostStorage(MemoryStorage):
    """A copy of a storage. Every read raises `StorageError` once it `is_lost`."""

    def __init__(self, of: Storage) -> None:
        assert isinstance(of, MemoryStorage)
        self.__setstate__(of.__getstate__())
        self.is_lost = False

    def read(self, key: str) -> bytes:
        self._require_there(key)
        return super().read(key)

    def exists(self, key: str) -> bool:
        self._require_there(key)
        return super().exists(key)

    def list(self, prefix: str) -> Iterator[Listed]:
        self._require_there(prefix)
        return super().list(prefix)

    def _require_there(self, key: str) -> None:
        if self.is_lost:
            raise StorageError(
                "the stream is lost: its test has called lose()", where=key, todo="call come_back() on the feed"
            )


def lost_log(log: Log) -> Log:
    """Returns a stream that is lost from now on."""
    storage = LostStorage(log.storage)
    lost = Log.open(storage, log.clock)
    storage.is_lost = True
    return lost
