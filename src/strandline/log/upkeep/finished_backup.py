"""A backup as of its last finished run: what a later run has begun to add does not show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from strandline.errors import KeyMissingError, NoAccessError
from strandline.log.storage.storage import Listed, Storage
from strandline.log.stream.manifest import commit_key
from strandline.log.stream.milestone import is_mark, mark_key

_INDEX = "snapshots/"


class FinishedBackup:
    """Shows the storage of a backup up to one commit and one milestone; refuses to change it.

    Opening a stream may fold an index. It is kept in memory here, and the one that lies in the folder is not used.
    """

    def __init__(self, storage: Storage, commit: int, milestone: int) -> None:
        self._storage = storage
        self._last_commit = commit_key(commit)
        self._last_mark = mark_key(milestone) if milestone >= 0 else ""
        self._index: dict[str, bytes] = {}
        self.url = storage.url

    def _is_hidden(self, key: str) -> bool:
        if key.startswith("commits/"):
            return key > self._last_commit
        return is_mark(key) and key > self._last_mark

    def create(self, key: str, data: bytes) -> None:
        raise self._refusal(key)

    def put(self, key: str, data: bytes) -> None:
        if not key.startswith(_INDEX):
            raise self._refusal(key)
        self._index[key] = data

    def read(self, key: str) -> bytes:
        if key.startswith(_INDEX) and key in self._index:
            return self._index[key]
        if key.startswith(_INDEX) or self._is_hidden(key):
            raise KeyMissingError(
                "there is no such key in the finished part of the backup", where=f"{self.url}/{key}", stream=self.url
            )
        return self._storage.read(key)

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        return self.read(key)[begin:end]

    def exists(self, key: str) -> bool:
        if key.startswith(_INDEX):
            return key in self._index
        return not self._is_hidden(key) and self._storage.exists(key)

    def list(self, prefix: str) -> Iterator[Listed]:
        for listed in self._storage.list(prefix):
            if not listed.key.startswith(_INDEX) and not self._is_hidden(listed.key):
                yield listed

    def delete(self, key: str) -> None:
        if self._index.pop(key, None) is None:
            raise self._refusal(key)

    def settle(self, prefix: str) -> None:
        self._storage.settle(prefix)

    def local_path(self, key: str) -> Path | None:
        return None if key.startswith(_INDEX) else self._storage.local_path(key)

    def _refusal(self, key: str) -> NoAccessError:
        return NoAccessError(
            "a backup is only read here", where=f"{self.url}/{key}", todo="restore it to a new place", stream=self.url
        )
