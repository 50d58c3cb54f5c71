"""The files of a state: the arrays themselves, and the changes that an attempt made in them.

A state is the arrays of an operator, by name; this module does not know their meaning. A state file is a page with its
head, then the arrays as they are mapped. The head has a checksum of its own and one of each array. `redo` keeps the
checksums up to date, at a cost in proportion to the change.

Compiled code trusts the arrays without checks. So a process believes a file only after it has read the whole file once;
it remembers which files it has read or written. (That takes about 30 ms for 100 MB, 300 ms for 1 GB, once per process
and file. The next process detects rot that comes later.) A file of changes has one checksum over everything.

A process refuses a file of either kind that is a link, belongs to another user, or was left in another boot of the
machine. It also refuses a file of other sources of the operators, since these define the meaning of the records.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from strandline.operators.kernels.checksum import MODULUS, checksum, checksum_of_rows, checksum_of_run
from strandline.operators.kernels.kernel_cache import source_stamp
from strandline.operators.operator import Rows, StateImage
from strandline.running.state.boot import boot, is_of_this_boot

Arrays = Mapping[str, npt.NDArray[Any]]

FORMAT = 3
UNFINISHED = ""
"""The attempt in the head of a file whose `redo` has begun and not ended: no process asks for this name."""
_PAGE = 4096
_ALIGNED = 64
_ROW_NUMBER = np.int32
_DIGEST = 16
_FILES_MAX = 4096
_RUNS_MAX = 16
_believed: dict[tuple[int, int, str], None] = {}
"""The files that this process has written or read whole: device, inode, and the attempt that wrote the file."""


class TornError(ValueError):
    """A file is not as its attempt left it, or not for this process."""


def opened(path: Path, flags: int) -> int:
    """Returns a descriptor of a file of this user; raises OSError for a link, or if others own or can write it."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        os.close(descriptor)
        raise PermissionError(f"{path} is not a file of our own")
    return descriptor


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Yields a new file that takes this place when it is written, whole or not at all."""
    temporary = path.with_suffix(".tmp")
    with os.fdopen(opened(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC), "w+b") as file:
        yield file
    os.replace(temporary, path)


def _sealed(text: bytes, *data: memoryview) -> bytes:
    digest = xxhash.xxh3_64(text)
    for piece in data:
        digest.update(piece)
    return digest.hexdigest().encode() + text


def _ours() -> dict[str, Any]:
    """Returns what the head of a file says of the process that writes it."""
    return {"format": FORMAT, "stamp": source_stamp(), "boot": boot()}


def _is_ours(head: Mapping[str, Any]) -> bool:
    return bool(head["format"] == FORMAT and head["stamp"] == source_stamp() and is_of_this_boot(head["boot"]))


# ---------------------------------------------------------------------- the arrays


def write_head(descriptor: int, head: Mapping[str, Any]) -> None:
    """Writes the head of a file, which lists its arrays and names the attempt that left them."""
    os.pwrite(descriptor, _sealed(json.dumps(head, separators=(",", ":")).encode()).ljust(_PAGE), 0)


def read_head(descriptor: int) -> dict[str, Any]:
    """Reads the head of the file; raises ValueError or KeyError if it cannot be used."""
    page = os.pread(descriptor, _PAGE, 0)
    text = page[_DIGEST:].rstrip()
    if _sealed(text)[:_DIGEST] != page[:_DIGEST]:
        raise TornError("torn")
    head: dict[str, Any] = json.loads(text)
    if not _is_ours(head) or head["attempt"] == UNFINISHED:
        raise TornError("of another time")
    return head


def write_whole(path: Path, attempt: str, arrays: Arrays) -> int:
    """Writes all arrays to a file, whole or not at all; returns its size in bytes."""
    with _replacing(path) as file:
        file.write(bytes(_PAGE))
        for array in arrays.values():
            file.seek(-file.tell() % _ALIGNED, os.SEEK_CUR)
            array.tofile(file)
        size = file.tell()
        file.truncate(max(size, _PAGE))
        file.flush()
        head = {
            **_ours(),
            "born": attempt,
            "attempt": attempt,
            "arrays": [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()],
            "sums": {name: checksum(array) for name, array in arrays.items()},
        }
        write_head(file.fileno(), head)
        _believe(_identity(file.fileno(), head))
    return size


def mapped(descriptor: int, head: Mapping[str, Any]) -> Arrays:
    """Maps the arrays of the file privately; raises TornError if they are not as their attempt left them."""
    arrays = _views(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY), head)
    if (identity := _identity(descriptor, head)) not in _believed:
        if {name: checksum(array) for name, array in arrays.items()} != head["sums"]:
            raise TornError("rotten")
        _believe(identity)
    return arrays


def _views(buffer: mmap.mmap, head: Mapping[str, Any]) -> Arrays:
    found: dict[str, npt.NDArray[Any]] = {}
    at = _PAGE
    for name, kind, shape in head["arrays"]:
        at += -at % _ALIGNED
        dtype, count = np.dtype(kind), int(np.prod(shape))
        if at + count * dtype.itemsize > len(buffer):
            raise TornError("torn")
        found[name] = np.frombuffer(buffer, dtype, count, at).reshape(shape)
        at += count * dtype.itemsize
    return found


def _identity(descriptor: int, head: Mapping[str, Any]) -> tuple[int, int, str]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino, str(head["born"])


def _believe(identity: tuple[int, int, str]) -> None:
    if len(_believed) >= _FILES_MAX:
        del _believed[next(iter(_believed))]
    _believed[identity] = None


# ---------------------------------------------------------------------- the changes of an attempt


def write_changes(path: Path, attempt: str, parent: str, image: StateImage) -> int:
    """Writes the changed rows to a file, whole or not at all; returns its size in bytes."""
    assert image.changed is not None
    pieces: list[memoryview] = []
    changes: list[list[Any]] = []
    for name, changed in image.changed.items():
        for rows in _runs(changed):
            values = np.ascontiguousarray(image.arrays[name][rows])
            if isinstance(rows, slice):
                changes.append([name, rows.start, rows.stop, values.dtype.str, list(values.shape)])
            else:
                changes.append([name, None, None, values.dtype.str, list(values.shape)])
                pieces.append(_bytes_of(rows.astype(_ROW_NUMBER)))
            pieces.append(_bytes_of(values))
    meta = {**_ours(), "attempt": attempt, "parent": parent, "changes": changes}
    line = _sealed(json.dumps(meta).encode(), *pieces)
    with _replacing(path) as file:
        file.write(line + b"\n")
        for piece in pieces:
            file.write(piece)
        return file.tell()


def _runs(rows: Rows) -> list[Rows]:
    """Returns the rows as slices, if they are in order and few slices suffice: slices are copied faster."""
    if isinstance(rows, slice) or not len(rows):
        return [rows]
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    if len(breaks) >= _RUNS_MAX:
        return [rows]
    edges = [0, *breaks.tolist(), len(rows)]
    return [slice(int(rows[a]), int(rows[b - 1]) + 1) for a, b in pairwise(edges)]


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


Changes = Sequence[tuple[str, Rows, npt.NDArray[Any]]]
"""The names of arrays, rows in them, and the new values of these rows."""


def read_changes(path: Path) -> tuple[dict[str, Any], Changes]:
    """Reads the changes that an attempt left; raises ValueError or KeyError if they cannot be used."""
    with os.fdopen(opened(path, os.O_RDONLY), "rb") as file:
        line = file.readline().removesuffix(b"\n")
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[len(line) + 1 :]
    text = line[_DIGEST:]
    if _sealed(text, data) != line:
        raise TornError("torn")
    meta = json.loads(text)
    if not _is_ours(meta):
        raise TornError("of another time")
    found: list[tuple[str, Rows, npt.NDArray[Any]]] = []
    at = 0
    for name, begin, end, kind, shape in meta["changes"]:
        rows: Rows = slice(begin, end)
        if begin is None:
            rows = np.frombuffer(data, _ROW_NUMBER, shape[0], at)
            at += rows.nbytes
        values = np.frombuffer(data, kind, int(np.prod(shape)), at).reshape(shape)
        at += values.nbytes
        found.append((name, rows, values))
    return meta, found


def redo(descriptor: int, head: Mapping[str, Any], attempt: str, changes: Changes) -> None:
    """Makes the changes in place. Until they are done, the head of the file marks it as unusable."""
    write_head(descriptor, {**head, "attempt": UNFINISHED})
    sums = apply(descriptor, head, changes)
    write_head(descriptor, {**head, "attempt": attempt, "sums": sums})


def apply(descriptor: int, head: Mapping[str, Any], changes: Changes) -> dict[str, int]:
    """Writes the changes into the arrays of the file; returns the new checksums."""
    sums = dict(head["sums"])
    arrays = _views(mmap.mmap(descriptor, 0, access=mmap.ACCESS_WRITE), head)
    for name, rows, values in changes:
        array = arrays[name]
        _require_rows(array, rows)
        before = _sum_of(array, rows)
        array[rows] = values
        sums[name] = (sums[name] - before + _sum_of(array, rows)) % MODULUS
    return sums


def change(arrays: Arrays, changes: Changes) -> None:
    """Makes the changes in these arrays, which no other process uses; raises TornError if they are of another state."""
    for name, rows, values in changes:
        _require_rows(arrays[name], rows)
        arrays[name][rows] = values


def _require_rows(array: npt.NDArray[Any], rows: Rows) -> None:
    least, end = (rows.start, rows.stop) if isinstance(rows, slice) else (0, 0)
    if not isinstance(rows, slice) and len(rows):
        least, end = rows.min(), rows.max() + 1
    if not 0 <= least <= end <= len(array):
        raise TornError("changes of another state")


def _sum_of(array: npt.NDArray[Any], rows: Rows) -> int:
    """Returns the part of the array's checksum that changes with these rows; it may include rows that do not change."""
    if isinstance(rows, slice):
        return checksum_of_run(array, rows.start, rows.stop)
    return checksum_of_rows(array, rows)
