"""Files that are there completely or not at all: the system calls below `LocalStorage`.

Everything here takes absolute paths and raises plain `OSError`; the storage gives errors their words.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from contextlib import suppress

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1

# What `link` says on a filesystem without hard links: FAT, exFAT, some network and FUSE mounts.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
# What `fsync` says of a folder where the filesystem has no such thing; there is nothing better to do.
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.EBADF})
# What macOS says where a filesystem cannot be told to empty the cache of its drive.
_NO_FULL_SYNC = frozenset({errno.EINVAL, errno.ENOTTY, errno.ENOTSUP, errno.EOPNOTSUPP})


def write_new_file(path: str, data: bytes, *, sync: bool) -> None:
    """Writes a file that must not exist; what an error leaves behind is removed."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if sync:
                _sync_descriptor(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        remove_if_there(path)
        raise


def sync_file(path: str) -> None:
    """Makes the content of a file durable, also of another process: Linux reports earlier write errors here, too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _sync_descriptor(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _sync_descriptor(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)


def make_folder(path: str, root: str, *, sync: bool) -> None:
    """Creates a folder at or below `root` and what is missing above it, so that it survives a power loss."""
    missing: list[str] = []
    level = path
    while not os.path.isdir(level):
        missing.append(level)
        level = os.path.dirname(level)
    for level in reversed(missing):
        try:
            os.mkdir(level)
        except FileExistsError:
            if not os.path.isdir(level):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), level) from None
    if sync:
        for level in missing:
            sync_folder(os.path.dirname(level))
        # Another process may have made the other levels a moment ago and not have synced them yet.
        sync_names_up_to(os.path.dirname(path), root)


def sync_names_up_to(path: str, root: str) -> None:
    """Makes the names in `path` durable, and its own name, and so on up to the name of `root`."""
    top = os.path.dirname(root)
    level = path
    while level != top and len(level) > len(top):
        sync_folder(level)
        level = os.path.dirname(level)
    # The folder that holds the root is not ours and may not be open to us.
    with suppress(PermissionError):
        sync_folder(top)


def link_exclusively(source: str, target: str) -> None:
    """Gives a file the name `target`; raises `FileExistsError` if that name is taken.

    The name `source` is gone afterwards on a filesystem without hard links, and still there on others.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        if os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target) from None
        # NFS repeats a call whose reply was lost; the second one then finds the link of the first.
        if not os.path.samefile(source, target):
            raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        rename_exclusively(source, target)


def rename_exclusively(source: str, target: str) -> None:
    """Renames a file to `target`; raises `FileExistsError` if that name is taken.

    One atomic call of the kernel. `O_EXCL` on the target would show a key that is half written, and an
    `O_EXCL` lock file beside it would stay behind, locked, when its owner dies.
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    number = errno.ENOSYS
    if renameat2 is not None:
        if renameat2(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):
        raise OSError(errno.ENOTSUP, "the filesystem can neither link nor rename exclusively", target)
    raise OSError(number, os.strerror(number), target)


def remove_if_there(path: str) -> None:
    """Removes a file; no error if that does not work, since it is a leftover that the collector finds again."""
    with suppress(OSError):
        os.unlink(path)


def _sync_descriptor(descriptor: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        # On macOS fsync stops at the cache of the drive.
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
        except OSError as error:
            # Any other error is of the disk, and the fsync below might not report it again.
            if error.errno not in _NO_FULL_SYNC:
                raise
    os.fsync(descriptor)
