"""Storage in any fsspec filesystem that can create a key exclusively: S3, GCS, Azure, HDFS, memory.

A value is one put, which such a store makes durable and visible at once. Which filesystems are accepted,
and what is relied on for each, is said in `fsspec_backends`. Needs rights to read, write, list and delete.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec

from strandline.errors import (
    KeyExistsError,
    KeyMissingError,
    NoAccessError,
    NoSpaceError,
    OptionError,
    StorageError,
    StrandlineError,
)
from strandline.log.storage.fsspec_backends import BACKENDS, Backend, s3_error
from strandline.log.storage.redaction import Redaction, require_no_secret
from strandline.log.storage.storage import Listed
from strandline.log.storage.storage_key import checked_key, checked_prefix

# What stores say when they are full: Ceph, MinIO, HDFS, and HTTP's own status.
_FULL_CODES = ("QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded")
_FULL_WORDS = ("NameSpace quota", "DiskSpace quota", "No space left")
_FULL_STATUS = 507

_MODIFIED_FIELDS = ("LastModified", "last_modified", "mtime", "modificationTime", "created")

# Connections of a parent process: closing them here would wait for threads that only the parent has.
_inherited: list[Any] = []

# Servers that have refused to create a key twice.
_exclusive_servers: set[str] = set()


class FsspecStorage:
    """Keys below a URL such as `s3://bucket/folder`; the options go to the fsspec filesystem.

    `OptionError` if no exclusive create is known for the protocol, or if its package is not installed.
    """

    def __init__(self, url: str, **storage_options: Any) -> None:
        require_no_secret(url)
        self.url = url.rstrip("/")
        self._options = storage_options
        self._redaction = Redaction(storage_options)
        self._backend = _backend_of(url)
        self._process = -1
        self._filesystem: Any = None
        self._root = ""
        self._connect()

    def __repr__(self) -> str:
        return f"FsspecStorage({self.url!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(FsspecStorage, self.url, **self._options), ())

    def create(self, key: str, data: bytes) -> None:
        with self._call_on("create", checked_key(key)) as (filesystem, path):
            self._try_out_exclusive_create(filesystem)
            try:
                self._backend.create(filesystem, path, data)
            except FileExistsError as error:
                raise KeyExistsError("the key is taken", where=self._where(key), stream=self.url) from error

    def put(self, key: str, data: bytes) -> None:
        with self._call_on("write", checked_key(key)) as (filesystem, path):
            self._backend.put(filesystem, path, data)

    def read(self, key: str) -> bytes:
        return self._read(key, self._backend.read)

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        return self._read(key, lambda filesystem, path: self._backend.read_range(filesystem, path, begin, end))

    def _read(self, key: str, read: Callable[[Any, str], bytes]) -> bytes:
        with self._call_on("read", checked_key(key)) as (filesystem, path):
            try:
                return read(filesystem, path)
            except (FileNotFoundError, IsADirectoryError) as error:
                raise KeyMissingError("there is no such key", where=self._where(key), stream=self.url) from error

    def exists(self, key: str) -> bool:
        with self._call_on("look for", checked_key(key)) as (filesystem, path):
            return self._backend.exists(filesystem, path)

    def list(self, prefix: str) -> Iterator[Listed]:
        with self._call_on("list", checked_prefix(prefix)) as (filesystem, path):
            found = filesystem.find(path, detail=True)
            if not isinstance(found, dict):
                return iter(())
            below = f"{path}/"
            cut = len(self._root) + 1
            keys = [
                Listed(name[cut:], int(info["size"]), _modified_us(info))
                for name, info in found.items()
                if name.startswith(below) and not name.endswith("/") and info["type"] == "file"
            ]
        return iter(sorted(keys, key=lambda listed: listed.key))

    def names(self, prefix: str) -> Sequence[str]:
        """Returns the names in a folder, in order, those of folders with a slash: one listing, of this level alone.

        Raises `KeyMissingError` if there is no key below it.
        """
        with self._call_on("list", checked_prefix(prefix)) as (filesystem, path):
            found: Any = []
            with suppress(FileNotFoundError, NotADirectoryError):
                found = filesystem.ls(path, detail=True)
            infos = [(info["name"].rstrip("/"), info["type"]) for info in found]
        below = f"{path}/"
        named = [(name.removeprefix(below), kind) for name, kind in infos if name.startswith(below)]
        if not named:  # a file is listed as itself
            raise KeyMissingError("there is no key in this folder", where=self._where(prefix), stream=self.url)
        return sorted(name + "/" if kind == "directory" else name for name, kind in named)

    def delete(self, key: str) -> None:
        with self._call_on("delete", checked_key(key)) as (filesystem, path):
            self._backend.delete(filesystem, path)

    def settle(self, prefix: str) -> None:
        """Returns at once: what such a store shows is durable."""
        checked_prefix(prefix)

    def local_path(self, key: str) -> Path | None:
        checked_key(key)
        return None

    def _where(self, key: str) -> str:
        return f"{self.url}/{key}"

    def _connect(self) -> Any:
        # fsspec's connections and its thread do not survive a fork, and Spark forks its Python workers.
        if self._process != os.getpid():
            if self._filesystem is not None:
                _inherited.append(self._filesystem)
            self._filesystem, self._root = _connected(self.url, self._backend, self._options, self._redaction)
            self._process = os.getpid()
        return self._filesystem

    @contextmanager
    def _call_on(self, verb: str, key: str) -> Iterator[tuple[Any, str]]:
        filesystem = self._connect()
        try:
            yield filesystem, f"{self._root}/{key}" if key else self._root
        except StrandlineError:
            raise
        # Every package raises errors of its own, from OSError to those of HTTP libraries.
        except Exception as error:
            raise self._storage_error(error, verb, key) from self._redaction.cause(error)

    def _storage_error(self, error: Exception, verb: str, key: str) -> StorageError:
        where, told = self._where(key), self._redaction.text(error)
        code, status = s3_error(error)
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or code in _FULL_CODES or status == _FULL_STATUS or any(word in told for word in _FULL_WORDS):
            return NoSpaceError(
                f"no space left to {verb} a key: {told}",
                where=where,
                stream=self.url,
                todo="free or add space or quota, then start again; what was published is safe",
            )
        if isinstance(error, FileNotFoundError):
            todo = "create the bucket or container first"
        elif isinstance(error, PermissionError):
            todo = "give these credentials the right to read, write, list and delete there"
        else:
            todo = "see the cause; when the store works again, start again"
        kind = NoAccessError if isinstance(error, PermissionError) else StorageError
        return kind(f"could not {verb} a key: {type(error).__name__}: {told}", where=where, todo=todo, stream=self.url)

    def _try_out_exclusive_create(self, filesystem: Any) -> None:
        server = self._backend.server(filesystem, self._root)
        if server is None or server in _exclusive_servers:
            return
        # Without a lock, which a fork could leave locked for ever: it does no harm to try a server out twice.
        probe = f"{self._root}/.tmp-probe-{uuid4().hex}"
        try:
            self._backend.create(filesystem, probe, b"first")
            self._backend.create(filesystem, probe, b"second")
        except FileExistsError:
            _exclusive_servers.add(server)
        finally:
            with suppress(Exception):
                self._backend.delete(filesystem, probe)
        if server not in _exclusive_servers:
            raise OptionError(
                "the server ignores If-None-Match and let the same key be created twice",
                stream=self.url,
                todo="use a server with conditional writes, and the newest s3fs",
            )


def _backend_of(url: str) -> Backend:
    protocol, separator, _ = url.partition("://")
    if not separator or protocol not in BACKENDS:
        hint = {"hdfs": "use webhdfs:// for HDFS; ", "file": "use a plain path; ", "local": "use a plain path; "}
        raise OptionError(
            f"Strandline cannot create a key exclusively on {protocol or url!r}, so two writers could both win",
            where=url,
            todo=f"{hint.get(protocol, '')}use one of {', '.join(sorted(BACKENDS))}, or a local path",
        )
    return BACKENDS[protocol]


def _connected(url: str, backend: Backend, options: dict[str, Any], redaction: Redaction) -> tuple[Any, str]:
    try:
        # No listing may be answered from a cache, as other processes write there too. Connections are shared by all
        # storages of this process with the same options: fsspec keeps them apart from those with cached listings.
        filesystem, root = fsspec.core.url_to_fs(url, **options, use_listings_cache=False)
    except ImportError as error:
        raise OptionError(
            f"the package {backend.package} is not installed", where=url, todo=f"pip install {backend.package}"
        ) from error
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"the file system does not take these options: {redaction.text(error)}",
            where=url,
            todo="see the options of the fsspec filesystem",
        ) from redaction.cause(error)
    return filesystem, root.rstrip("/")


def _modified_us(info: dict[str, Any]) -> int:
    for field in _MODIFIED_FIELDS:
        value = info.get(field)
        if isinstance(value, datetime):
            if value.tzinfo is None:
                value = value.replace(tzinfo=UTC)
            return round(value.timestamp() * 1_000_000)
        if isinstance(value, (int, float)):
            # HDFS counts in milliseconds, fsspec's memory in seconds.
            return round(value * (1_000 if field == "modificationTime" else 1_000_000))
    raise StorageError(f"the store does not say when {info.get('name')} was written")
