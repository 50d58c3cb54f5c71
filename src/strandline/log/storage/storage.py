"""The calls that the log needs from a store: a handful, on keys below one root.

A key is a relative path with `/` between its parts. Nothing in the log depends on listings being up to
date: the newest manifest is found by asking for the next key, never by listing, so a store whose
listings lag behind its writes is as good as any other. Listings serve garbage collection only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from strandline.errors import KeyExistsError

Durability = Literal["fsync", "os"]

TEMPORARY_PREFIX = ".tmp-"
"""Of the names of files that a write goes through; a crash may leave one behind."""


def is_temporary(key: str) -> bool:
    """Returns whether a key is such a file."""
    return key.rpartition("/")[2].startswith(TEMPORARY_PREFIX)


def first_key(storage: Storage) -> str | None:
    """Returns a key that is there; None if there is none, or only what a crash left of a first write."""
    return next((listed.key for listed in storage.list("") if not is_temporary(listed.key)), None)


@dataclass(frozen=True, slots=True)
class Listed:
    """One key of a listing."""

    key: str
    size_bytes: int
    modified_us: int


class Storage(Protocol):
    """Keys and bytes below one root.

    A call that returns has taken effect, durably (unless `durability="os"` was asked for). A call
    that raises or dies may or may not have taken effect, but never partly: a key holds all of the
    bytes of one `create` or `put`, or does not exist.
    """

    url: str

    def create(self, key: str, data: bytes) -> None:
        """Writes a key that does not exist; `KeyExistsError` if it does."""

    def put(self, key: str, data: bytes) -> None:
        """Writes a key, replacing what was there."""

    def read(self, key: str) -> bytes:
        """Returns the bytes of a key; raises `KeyMissingError` if there is none."""

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        """Returns, like `read`, the bytes [begin, end) of a key that has the first of them; fewer if it ends before."""

    def exists(self, key: str) -> bool:
        """Returns whether the key is there."""

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yields every key below the folder `prefix` (`""`: the root), at any depth, in order. May lag behind."""

    def delete(self, key: str) -> None:
        """Removes a key; no error if it is not there."""

    def settle(self, prefix: str) -> None:
        """Returns when every key of the folder `prefix` that this process has seen will survive a power loss."""

    def local_path(self, key: str) -> Path | None:
        """Returns the path of the key in the local filesystem, there or not; None if the store is elsewhere."""


def create_once(storage: Storage, key: str, data: bytes) -> None:
    """Writes a key that does not exist; `KeyExistsError` if it holds other bytes than these.

    Clients of stores repeat a request whose reply was lost, and the second one finds the key that the first one made.
    So a key that holds the very bytes was made by us, or by a process that made the same of it.
    """
    try:
        storage.create(key, data)
    except KeyExistsError:
        if storage.read(key) != data:
            raise
        storage.settle(key.rpartition("/")[0])
