"""From the place that a user names, a path or a URL, to its storage."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from strandline.errors import OptionError
from strandline.log.storage.local_storage import LocalStorage
from strandline.log.storage.redaction import require_no_secret
from strandline.log.storage.storage import Durability

if TYPE_CHECKING:
    from strandline.log.storage.fsspec_storage import FsspecStorage

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
# `file:/x` is how Java writes it, and how Spark prints paths; a single letter would be a drive.
_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)")
_LOCAL_PROTOCOLS = frozenset({"file", "local"})


def open_storage(url: str, durability: Durability = "fsync", **storage_options: Any) -> LocalStorage | FsspecStorage:
    """Returns the storage at a path, at `file://…`, or at the URL of an fsspec filesystem such as `s3://bucket/stream`.

    `durability` matters on the local filesystem only: elsewhere the put itself is durable.

    >>> open_storage("/tmp/items").url
    '/tmp/items'
    """
    url = os.fspath(url)
    require_no_secret(url)
    protocol, path = _split(url)
    if "\0" in path:
        raise OptionError("the path of a stream has a NUL character in it", where=repr(url), todo="remove it")
    parts = path.replace(os.sep, "/").split("/")
    if ".." in parts:
        raise OptionError("the path of a stream has .. in it", where=url, todo="write the path without '..'")
    if not any(part.strip() for part in parts):
        raise OptionError("the path of a stream is empty", where=repr(url), todo="name a folder for the stream")
    if protocol in _LOCAL_PROTOCOLS:
        if storage_options:
            raise OptionError(f"a local path takes no options, got {', '.join(sorted(storage_options))}", where=url)
        return LocalStorage(_expanded(path, url), durability)
    if durability not in ("fsync", "os"):
        raise OptionError(f"durability is {durability!r}", where=url, todo='use "fsync" or "os"')
    # Only here: a stream on the local filesystem should not wait for the import of what it does not need.
    from strandline.log.storage.fsspec_storage import FsspecStorage

    return FsspecStorage(url, **storage_options)


def _split(url: str) -> tuple[str, str]:
    if match := _URL.fullmatch(url):
        protocol, path = match[1].lower(), match[2]
        if protocol not in _LOCAL_PROTOCOLS or path.startswith("/"):
            return protocol, path
        host, _, rest = path.partition("/")
        if host == "localhost":
            return protocol, "/" + rest
        raise OptionError(
            "a file:// URL needs an absolute path", where=url, todo=f"write file:///{path}, or the path alone"
        )
    if match := _ONE_SLASH.match(url):
        if match[1].lower() in _LOCAL_PROTOCOLS:
            return "file", url[match.end() - 1 :]
        raise OptionError(
            "this is neither a path nor a URL", where=url, todo=f"write {match[1]}://… for a URL, ./{url} for a path"
        )
    return "file", url


def _expanded(path: str, url: str) -> str:
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise OptionError("there is no such user", where=url, todo="write ./~… if the folder's name begins with ~")
    return expanded
