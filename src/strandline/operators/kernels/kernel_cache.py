"""`njit` with a disk cache that knows everything a kernel was made from.

Numba's own cache looks at the one file a function stands in. But constants, op codes and inlined functions of other
files are frozen into a kernel, too, and it would go on with the old ones. Here a kernel is loaded only where every
source of this package is the same: content counts, not times, so that an installation, a zip and a layer of a container
have the same kernels. One file holds one kernel, named by all that it depends on; processes that compile at the same
time cannot mix them up (they can in Numba's index), and a file that is torn or rotten is not used.

Kernels lie where Numba would put its own: in NUMBA_CACHE_DIR, beside the sources, in the user's folder for caches. If
none of them can be written, in a private folder for temporary files; if not even that can, they are compiled by every
process that was not given them (`kernel_bundle`), and a warning says so.
"""

# mypy: disable-error-code="attr-defined,misc,no-untyped-call"

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
from numba.core.caching import Cache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps
from numba.misc.appdirs import AppDirs

from strandline.clock import stopwatch_s
from strandline.errors import UnsafeFolderError
from strandline.private_folder import private_folder, temporary_folder
from strandline.user_warning import warn

_FOLDERS_KEPT = 8
"""Of so many versions of the sources the kernels are kept, those used last."""
_DIGEST_BYTES = 32


@dataclass(slots=True)
class Tally:
    """The work that this process has done for its kernels."""

    loaded: int = 0
    compiled: int = 0
    seconds: float = 0.0
    """For both."""
    names: dict[str, None] = field(default_factory=dict)
    """Of the files of the kernels that it has."""


TALLY = Tally()
SHIPPED: dict[str, bytes] = {}
"""Kernels that this process was given and could not put into its folder, by the names of their files."""


Kernel = Callable[..., Any]
"""A compiled function."""


def njit(*, cache: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compiles as `numba.njit` does; `cache=True` means the cache of this module."""
    compiled = numba.njit(**options)

    def decorate(function: Callable[..., Any]) -> Any:
        made = compiled(function)
        if cache and isinstance(made, Dispatcher):
            made._cache = KernelCache(function, kernel_folder(), has_runtime=options.get("_nrt", True))
        return made

    return decorate


@lru_cache(maxsize=1)
def source_stamp() -> str:
    """Returns a checksum over all sources of this package, the same wherever and however they are installed."""
    digest = hashlib.sha256()
    for name, source in sorted(_sources(files("strandline.operators"), "")):
        data = source.read_bytes()
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:32]


def _sources(folder: Traversable, inside: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _sources(entry, f"{inside}{entry.name}/")
        elif entry.name.endswith((".py", ".pyc")):
            yield inside + entry.name, entry


class KernelCache(Cache):
    """The cache that Numba asks for the compiled code of one function."""

    def __init__(self, function: Callable[..., Any], folder: Path | None, *, has_runtime: bool) -> None:
        # Not Numba's: it would look for a place of its own. `_index_key` needs the function.
        self._py_func = function
        self._name = f"{function.__module__}.{function.__qualname__}:{function.__code__.co_firstlineno}"
        self._folder = folder
        self._has_runtime = has_runtime
        self._missed = (0.0, 0.0)
        self.enable()

    @property
    def cache_path(self) -> str:
        return "" if self._folder is None else str(self._folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        began_s, before_s = stopwatch_s(), TALLY.seconds
        if self._has_runtime:
            # Numba prepares everything that it could compile with, which takes longer than loading all our kernels. Of
            # that, loaded code needs what manages memory, if it has anything to do with it.
            target_context.refresh()
        found = self._load(sig, target_context) if self._enabled else None
        if found is None:
            self._missed = (began_s, before_s)
        else:
            TALLY.loaded += 1
            TALLY.seconds += stopwatch_s() - began_s
        return found

    def _load(self, sig: Any, target_context: Any) -> Any:
        key = self._index_key(sig, target_context.codegen())
        name = self._file(key)
        data = find_kernel(name)
        body = data[_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != data[:_DIGEST_BYTES]:
            return None
        found, payload = pickle.loads(body)
        if found != key:
            return None
        TALLY.names[name] = None
        return CompileResult._rebuild(target_context, *payload)

    def save_overload(self, sig: Any, data: Any) -> None:
        began_s, before_s = self._missed
        inner_s = TALLY.seconds - before_s  # kernels that this one calls were counted when they were done
        TALLY.compiled += 1
        TALLY.seconds += max(0.0, stopwatch_s() - began_s - inner_s)
        can_be_kept = all(part.can_cache for part in data.lifted) and not data.library.has_dynamic_globals
        if not self._enabled or not can_be_kept or self._folder is None:
            return
        key = self._index_key(sig, data.codegen)
        body = dumps((key, data._reduce()))
        with suppress(OSError, UnsafeFolderError):  # the kernel is there; the next process compiles it, too
            put_kernel(self._folder, self._file(key), hashlib.sha256(body).digest() + body)
            TALLY.names[self._file(key)] = None

    def flush(self) -> None:
        """Does nothing: newly compiled code takes the place of the old."""

    def _file(self, key: Any) -> str:
        return hashlib.sha256(repr((self._name, key)).encode()).hexdigest()[:40] + ".kernel"


def find_kernel(name: str) -> bytes:
    """Returns the content of this kernel's file: shipped, of this machine, or installed; empty if there is none."""
    if (shipped := SHIPPED.get(name)) is not None:
        return shipped
    for folder in (kernel_folder(), installed_folder()):
        if folder is not None:
            with suppress(OSError):
                return (folder / name).read_bytes()
    return b""


def put_kernel(folder: Path, name: str, data: bytes) -> None:
    """Puts a file into the folder for kernels; raises OSError or UnsafeFolderError if it cannot be had."""
    is_shared = folder.parent == _beside_the_sources()
    private_folder(folder, _READABLE if is_shared else _PRIVATE)  # it may have been cleaned up
    _put(folder / name, data, 0o644 if is_shared else 0o600)


def _put(path: Path, data: bytes, mode: int) -> None:
    """Writes a file whole or not at all, also while other processes write it; raises OSError."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


# ---------------------------------------------------------------------- where


@lru_cache(maxsize=1)
def kernel_stamp() -> str:
    """Returns what kernels depend on, their machine apart: the sources, and all that compiles them."""
    config = numba.config
    made_by = (numba.__version__, llvmlite.__version__, sys.implementation.cache_tag, config.OPT, config.BOUNDSCHECK)
    return hashlib.sha256(repr((source_stamp(), made_by)).encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def kernel_folder() -> Path | None:
    """Returns where the kernels of these sources lie; None, after a warning, if no folder can be had."""
    stamp = kernel_stamp()
    reasons = []
    for place in (_of_the_user, _beside_the_sources, _of_caches, _temporary):
        try:
            kernels = place()
            if kernels is None:
                continue
            mode = _READABLE if place is _beside_the_sources else _PRIVATE
            private_folder(kernels, mode)
            is_new = not (kernels / stamp).exists()
            folder = private_folder(kernels / stamp, mode)
            tempfile.TemporaryFile(dir=folder).close()
            os.utime(folder)  # used last
        except (OSError, UnsafeFolderError) as error:
            reasons.append(str(error))
            continue
        if is_new:
            _sweep(kernels)
        return folder
    warn(
        "compiled kernels cannot be kept on this machine, so that every process compiles its own (some seconds); "
        f"set NUMBA_CACHE_DIR to a folder that can be written. Tried: {'; '.join(reasons)}",
        RuntimeWarning,
    )
    return None


@lru_cache(maxsize=1)
def installed_folder() -> Path | None:
    """Returns the folder of kernels that were compiled when these sources were installed; None if there are none.

    They are believed if they belong to the owner of the sources, or to root, and no other user can write them.
    """
    kernels = _beside_the_sources()
    if kernels is None:
        return None
    try:
        owners = {0, os.geteuid(), Path(__file__).stat().st_uid}
        for path in (kernels, kernels / kernel_stamp()):
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners or found.st_mode & 0o022:
                return None
    except OSError:
        return None
    return kernels / kernel_stamp()


_FOLDER = "strandline-kernels"
_PRIVATE = 0o700
_READABLE = 0o755
"""Beside the sources: who can read the one may read the other, so that an image is warm for every user in it."""


def _of_the_user() -> Path | None:
    return Path(numba.config.CACHE_DIR) / _FOLDER if numba.config.CACHE_DIR else None


def _beside_the_sources() -> Path | None:
    here = Path(__file__).parents[1]
    return here / "__pycache__" / _FOLDER if here.is_dir() else None  # in a zip there is no beside


def _of_caches() -> Path | None:
    return Path(AppDirs(appname="strandline", appauthor=False).user_cache_dir) / _FOLDER


def _temporary() -> Path:
    return temporary_folder() / _FOLDER


def _sweep(kernels: Path) -> None:
    """Removes what sources left that were changed since; who still runs them compiles again."""
    with suppress(OSError):
        folders = sorted(kernels.iterdir(), key=lambda path: path.lstat().st_mtime, reverse=True)
        for old in folders[_FOLDERS_KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
