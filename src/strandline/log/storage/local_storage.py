"""Storage in a folder of the local filesystem.

A value is written to a file `.tmp-…` in the folder of its key, fsynced, and only then given its name:
by `link`, which fails if the name is taken, for `create`, and by `rename` for `put`. A crash can leave
a `.tmp-…` file behind. It is listed like any other key, and as no manifest refers to it, the collector
deletes it once it is old.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from strandline.errors import KeyExistsError, KeyMissingError, NoAccessError, NoSpaceError, OptionError, StorageError
from strandline.log.storage import durable_file
from strandline.log.storage.storage import TEMPORARY_PREFIX, Durability, Listed
from strandline.log.storage.storage_key import checked_key, checked_prefix

_NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

_LONG_BYTES = 1 << 16

_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
_TODO = {
    errno.EACCES: "give this user the right to read and write there",
    errno.EPERM: "give this user the right to read and write there",
    errno.ENOENT: "find out who removes files or folders of the stream, then start again",
    errno.EROFS: "mount the filesystem for writing",
    errno.EXDEV: "write the file on the filesystem that holds the stream",
    errno.ENOTSUP: "keep the stream on a filesystem with hard links, such as ext4 or XFS",
    errno.EMFILE: "raise the limit of open files",
    errno.ENAMETOOLONG: "use a shorter path for the stream",
    errno.ENOTDIR: "remove the file that stands where a folder should be",
    errno.EISDIR: "remove the folder that stands where a file should be",
}


class LocalStorage:
    """Keys below a folder, which need not exist before the first write.

    With `durability="fsync"` a call that returns survives a power loss; with `"os"` it survives the
    death of the process, and a power loss takes what the operating system had not written yet.
    """

    def __init__(self, root: Path | str, durability: Durability = "fsync") -> None:
        if durability not in ("fsync", "os"):
            raise OptionError(f"durability is {durability!r}", todo='use "fsync" or "os"')
        self._root = os.path.abspath(root)
        self._durability: Durability = durability
        self._sync = durability == "fsync"
        # Folders that this process has made durable, so that this is paid for once a folder.
        self._ready_folders: set[str] = set()
        self.url = self._root

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r}, durability={self._durability!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return (LocalStorage, (self._root, self._durability))

    def create(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._errors_of("create", path):
            temporary = self._write_temporary(os.path.dirname(path), data)
            try:
                self._link(temporary, path)
            finally:
                durable_file.remove_if_there(temporary)
            self._sync_folder_of(path)

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._errors_of("write", path):
            temporary = self._write_temporary(os.path.dirname(path), data)
            try:
                os.replace(temporary, path)
            except BaseException:
                durable_file.remove_if_there(temporary)
                raise
            self._sync_folder_of(path)

    def adopt(self, source: Path | str, key: str) -> None:
        """Takes over a file that another process wrote on this filesystem; `KeyExistsError` if the key is taken.

        After a crash the file may have both names, the old one and the key; it is complete under each. A file that
        cannot be made durable is removed: a failed write-back is told once, so the next sync of the file would find
        nothing wrong with it, and a second attempt would take for durable what is lost.
        """
        path = self._path(key)
        origin = os.path.abspath(source)
        with self._errors_of("adopt a file as", path):
            if not os.path.isfile(origin):
                raise KeyMissingError(f"there is no file {origin} to adopt", where=path, stream=self.url)
            if os.path.realpath(origin) == os.path.realpath(path):
                raise KeyExistsError("the file to adopt is there already", where=path, stream=self.url)
            if self._sync:
                with self._errors_of("sync a file to become", origin):
                    try:
                        durable_file.sync_file(origin)
                    except OSError:
                        durable_file.remove_if_there(origin)
                        raise
            self._make_folder(os.path.dirname(path))
            self._link(origin, path)
            # The new name first: a power loss must not take both.
            self._sync_folder_of(path)
            with suppress(FileNotFoundError):
                os.unlink(origin)

    def read(self, key: str) -> bytes:
        return self._read(key, 0, -1)

    def read_range(self, key: str, begin: int, end: int) -> bytes:
        return self._read(key, begin, end - begin)

    def _read(self, key: str, begin: int, length: int) -> bytes:
        path = self._path(key)
        with self._errors_of("read", path):
            try:
                with open(path, "rb") as file:
                    file.seek(begin)
                    if length > _LONG_BYTES:  # no memory is wanted for what is not there
                        length = max(0, min(length, os.fstat(file.fileno()).st_size - begin))
                    return file.read(length)
            except _NOT_THERE as error:
                raise KeyMissingError("there is no such key", where=path, stream=self.url) from error

    def exists(self, key: str) -> bool:
        path = self._path(key)
        with self._errors_of("look for", path):
            try:
                return stat.S_ISREG(os.stat(path).st_mode)
            except _NOT_THERE:
                return False

    def list(self, prefix: str) -> Iterator[Listed]:
        folder = os.path.join(self._root, checked_prefix(prefix))
        return self._walk(folder, prefix + "/" if prefix else "")

    def names(self, prefix: str) -> Sequence[str]:
        """Returns the names in a folder, in order, those of folders with a slash; `KeyMissingError` if it is gone."""
        folder = os.path.normpath(os.path.join(self._root, checked_prefix(prefix)))
        with self._errors_of("list", folder):
            try:
                with os.scandir(folder) as found:
                    return sorted(e.name + "/" if e.is_dir(follow_symlinks=False) else e.name for e in found)
            except _NOT_THERE as error:
                raise KeyMissingError("there is no such folder", where=folder, stream=self.url) from error

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._errors_of("delete", path):
            try:
                os.unlink(path)
            except _NOT_THERE:
                return
            self._sync_folder_of(path)

    def settle(self, prefix: str) -> None:
        folder = os.path.normpath(os.path.join(self._root, checked_prefix(prefix)))
        if not self._sync:
            return
        with self._errors_of("settle", folder), suppress(FileNotFoundError):
            durable_file.sync_names_up_to(folder, self._root)

    def local_path(self, key: str) -> Path:
        return Path(self._path(key))

    def _path(self, key: str) -> str:
        return f"{self._root}/{checked_key(key)}"

    def _write_temporary(self, folder: str, data: bytes) -> str:
        temporary = f"{folder}/{TEMPORARY_PREFIX}{uuid4().hex}"
        self._make_folder(folder)
        durable_file.write_new_file(temporary, data, sync=self._sync)
        return temporary

    def _make_folder(self, folder: str) -> None:
        # A folder that was made durable may have been removed since, with the stream that it belonged to.
        if folder not in self._ready_folders or not os.path.isdir(folder):
            durable_file.make_folder(folder, self._root, sync=self._sync)
            self._ready_folders.add(folder)

    def _link(self, source: str, path: str) -> None:
        try:
            durable_file.link_exclusively(source, path)
        except FileExistsError as error:
            raise KeyExistsError("the key is taken", where=path, stream=self.url) from error

    def _sync_folder_of(self, path: str) -> None:
        if self._sync:
            durable_file.sync_folder(os.path.dirname(path))

    def _walk(self, folder: str, prefix: str) -> Iterator[Listed]:
        with self._errors_of("list", folder):
            try:
                with os.scandir(folder) as found:
                    # A folder sorts as its name and a slash do, and so do all keys below it.
                    entries = [(e.name + "/" if e.is_dir(follow_symlinks=False) else e.name, e) for e in found]
            except _NOT_THERE:
                return
        for name, entry in sorted(entries, key=lambda named: named[0]):
            if name.endswith("/"):
                yield from self._walk(entry.path, prefix + name)
                continue
            with self._errors_of("list", entry.path):
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue
            if stat.S_ISREG(status.st_mode):
                yield Listed(prefix + name, status.st_size, status.st_mtime_ns // 1_000)

    @contextmanager
    def _errors_of(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NoSpaceError(
                    f"no space left to {verb} a key",
                    where=path,
                    stream=self.url,
                    todo="free or add space, then start again; what was published is safe",
                ) from error
            kind = NoAccessError if error.errno in _NO_ACCESS else StorageError
            raise kind(
                f"could not {verb} a key: {error.strerror or error}",
                where=path,
                stream=self.url,
                todo=_TODO.get(error.errno or 0, "mend the disk, then start again"),
            ) from error
