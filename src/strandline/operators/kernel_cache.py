"""`njit` with a disk cache that knows everything a kernel was made from.

Numba's own cache looks at the one file a function stands in. But constants, op codes and inlined functions of other
files are frozen into a kernel, too, and it would go on with the old ones. Here a kernel is loaded only where every
source of this package is the same: content counts, not times, so that an installation, a zip and a layer of a container
have the same kernels. One file holds one kernel, named by all that it depends on; processes that compile at the same
time cannot mix them up (they can in Numba's index), and a file that is torn or rotten is not used.

Kernels lie where Numba would put its own: in NUMBA_CACHE_DIR, beside the sources, in the user's folder for caches. If
none of them can be written, in a private folder for temporary files; if not even that can, they are compiled by every
process, and a warning says so.
"""

# mypy: disable-error-code="attr-defined,misc,no-untyped-call"

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
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

from strandline.errors import UnsafeFolderError
from strandline.private_folder import private_folder, temporary_folder

_FOLDERS_KEPT = 8
"""Of so many versions of the sources the kernels are kept, those used last."""
_DIGEST_BYTES = 32


def njit(*, cache: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit`, but for `cache=True`, which means the cache of this module."""
    compiled = numba.njit(**options)

    def decorate(function: Callable[..., Any]) -> Any:
        made = compiled(function)
        if cache and isinstance(made, Dispatcher) and (folder := kernel_folder()) is not None:
            made._cache = KernelCache(function, folder)
        return made

    return decorate


@lru_cache(maxsize=1)
def source_stamp() -> str:
    """A checksum over all sources of this package, the same wherever and however they are installed."""
    digest = hashlib.sha256()
    for name, source in sorted(_sources(files(__package__), "")):
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
    """What Numba asks for compiled code of one function, and gives it to."""

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        # Not Numba's: it would look for a place of its own. `_index_key` needs the function.
        self._py_func = function
        self._name = f"{function.__module__}.{function.__qualname__}:{function.__code__.co_firstlineno}"
        self._folder = folder
        self.enable()

    @property
    def cache_path(self) -> str:
        return str(self._folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        if not self._enabled:
            return None
        key = self._index_key(sig, target_context.codegen())
        try:
            data = self._file(key).read_bytes()
        except OSError:
            return None
        body = data[_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != data[:_DIGEST_BYTES]:
            return None
        found, payload = pickle.loads(body)
        return CompileResult._rebuild(target_context, *payload) if found == key else None

    def save_overload(self, sig: Any, data: Any) -> None:
        can_be_kept = all(part.can_cache for part in data.lifted) and not data.library.has_dynamic_globals
        if not self._enabled or not can_be_kept:
            return
        key = self._index_key(sig, data.codegen)
        body = dumps((key, data._reduce()))
        with suppress(OSError, UnsafeFolderError):  # the kernel is there; the next process compiles it, too
            private_folder(self._folder)  # somebody may have cleaned up
            _put(self._file(key), hashlib.sha256(body).digest() + body)

    def flush(self) -> None:
        """Nothing: what is compiled anew takes the place of what is there."""

    def _file(self, key: Any) -> Path:
        return self._folder / (hashlib.sha256(repr((self._name, key)).encode()).hexdigest()[:40] + ".kernel")


def _put(path: Path, data: bytes) -> None:
    """Whole or not at all, whoever else puts it at the same time."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


# ---------------------------------------------------------------------- where


@lru_cache(maxsize=1)
def kernel_folder() -> Path | None:
    """Where the kernels of these sources lie; None, after a warning, if no folder can be had."""
    config = numba.config
    made_by = (numba.__version__, llvmlite.__version__, sys.implementation.cache_tag, config.OPT, config.BOUNDSCHECK)
    stamp = hashlib.sha256(repr((source_stamp(), made_by)).encode()).hexdigest()[:32]
    reasons = []
    for place in (_of_the_user, _beside_the_sources, _of_caches, temporary_folder):
        try:
            root = place()
            if root is None:
                continue
            kernels = private_folder(root / "strandline-kernels")
            is_new = not (kernels / stamp).exists()
            folder = private_folder(kernels / stamp)
            tempfile.TemporaryFile(dir=folder).close()
            os.utime(folder)  # used last
        except (OSError, UnsafeFolderError) as error:
            reasons.append(str(error))
            continue
        if is_new:
            _sweep(kernels)
        return folder
    warnings.warn(
        "compiled kernels cannot be kept on this machine, so that every process compiles its own (some seconds); "
        f"set NUMBA_CACHE_DIR to a folder that can be written. Tried: {'; '.join(reasons)}",
        RuntimeWarning,
        stacklevel=3,
    )
    return None


def _of_the_user() -> Path | None:
    return Path(numba.config.CACHE_DIR) if numba.config.CACHE_DIR else None


def _beside_the_sources() -> Path | None:
    here = Path(__file__).parent
    return here / "__pycache__" if here.is_dir() else None  # in a zip there is no beside


def _of_caches() -> Path | None:
    return Path(AppDirs(appname="strandline", appauthor=False).user_cache_dir)


def _sweep(kernels: Path) -> None:
    """Removes what sources left that were changed since; who still runs them compiles again."""
    with suppress(OSError):
        folders = sorted(kernels.iterdir(), key=lambda path: path.lstat().st_mtime, reverse=True)
        for old in folders[_FOLDERS_KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
