"""Storage in a dictionary: what every other storage has to be like, and fast enough for simulations."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from strandline.clock import SYSTEM_CLOCK, Clock
from strandline.errors import KeyExistsError, KeyMissingError, StorageError
from strandline.log.storage.storage import Listed, Storage
from strandline.log.storage.storage_key import checked_key, checked_prefix
from strandline.log.stream.log import Log


class MemoryStorage:
    """Keys and bytes of this object; a pickled copy has a life of its own.

    >>> storage = MemoryStorage()
    >>> storage.create("a/b", b"value")
    >>> storage.read("a/b")
    b'value'
    """

    url = "in-memory"

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._values: dict[str, tuple[bytes, int]] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> tuple[Clock, dict[str, tuple[bytes, int]]]:
        with self._lock:
            return self._clock, dict(self._values)

    def __setstate__(self, state: tuple[Clock, dict[str, tuple[bytes, int]]]) -> None:
        self._clock, self._values = state
        self._lock = threading.Lock()

    def create(self, key: str, data: bytes) -> None:
        value = bytes(data), self._clock.now_us()
        with self._lock:
            if self._values.setdefault(checked_key(key), value) is not value:
                raise KeyExistsError("the key is taken", where=key)

    def put(self, key: str, data: bytes) -> None:
        value = bytes(data), self._clock.now_us()
        with self._lock:
            self._values[checked_key(key)] = value

    def read(self, key: str) -> bytes:
        value = self._values.get(checked_key(key))
        if value is None:
            raise KeyMissingError("there is no such key", where=key)
        return value[0]

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        return self.read(key)[begin:end]

    def exists(self, key: str) -> bool:
        return checked_key(key) in self._values

    def list(self, prefix: str) -> Iterator[Listed]:
        below = checked_prefix(prefix) + "/" if prefix else ""
        with self._lock:
            found = [(key, *value) for key, value in self._values.items() if key.startswith(below)]
        return iter([Listed(key, len(data), modified_us) for key, data, modified_us in sorted(found)])

    def delete(self, key: str) -> None:
        with self._lock:
            self._values.pop(checked_key(key), None)

    def settle(self, prefix: str) -> None:
        checked_prefix(prefix)

    def local_path(self, key: str) -> Path | None:
        checked_key(key)
        return None


class _LostStorage(MemoryStorage):
    """A copy of a storage. Every read raises `StorageError` once it `is_lost`: a stream that a test has lost."""

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
    """Returns a stream that is lost from now on: it knows what it held, and cannot read any of it."""
    storage = _LostStorage(log.storage)
    lost = Log.open(storage, log.clock)
    storage.is_lost = True
    return lost
