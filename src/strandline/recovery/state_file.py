"""The files of a state: the arrays themselves, and what an attempt changed in them.

A state file is a page with its head, then the arrays as they are mapped. The head has a checksum of its own and one of
each array, kept up to date by `redo` at the cost of what changes. Compiled code follows what the arrays say without a
question, so a process believes them only after it has read them whole once; it remembers which files it has seen or
written. (That takes about 30 ms for 100 MB, 300 ms for 1 GB, once in the life of a process and a file; rot that comes
later shows to the next process.) A file of changes has one checksum over everything.

Neither is used if it belongs to somebody else, is a link, was left in another life of the machine, or by other sources
of the operators: the meaning of a word in a record is theirs.
"""

from __future__ import annotations

import json
import mmap
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash

from strandline.operators.arrays import BUCKETS, RECORDS, TIMERS, State
from strandline.operators.checksum import MODULUS, checksum, checksum_of_bytes, checksum_of_rows
from strandline.operators.kernel_cache import source_stamp
from strandline.operators.record import (
    BYTES_END,
    FREE_HEAD,
    HEADER_WORDS,
    QUEUE_HEAD,
    QUEUE_TAIL,
    USED,
    N,
)
from strandline.operators.record import TIMERS as TIMER_COUNT
from strandline.operators.window_state import WindowState
from strandline.recovery.boot import boot, is_of_this_boot

FORMAT = 2
UNFINISHED = ""
"""The attempt in the head of a file whose redoing has begun: nobody asks for it."""
_PAGE = 4096
_DIGEST = 16
_DTYPES = {
    "header": np.int64,
    "records": np.int64,
    "buckets": np.int32,
    "queue": np.int32,
    "timers": np.int64,
    "bytes": np.uint8,
}
_ROWS = {"records": "record_ids", "buckets": "bucket_ids", "timers": "timer_ids", "queue": "queue_ids"}
_FILES_MAX = 4096
_believed: dict[tuple[int, int, str], None] = {}
"""Files that this process has written or read whole: device, inode, and the attempt that wrote them."""


class TornError(ValueError):
    """A file is not as it was left, or not for us."""


def opened(path: Path, flags: int) -> int:
    """A descriptor of a file of our own; OSError if it is a link, somebody else's, or others can write to it."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        os.close(descriptor)
        raise PermissionError(f"{path} is not a file of our own")
    return descriptor


def _new_file(path: Path) -> BinaryIO:
    return os.fdopen(opened(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), "w+b")


def _sealed(text: bytes, data: bytes = b"") -> bytes:
    digest = xxhash.xxh3_64(text)
    digest.update(data)
    return digest.hexdigest().encode() + text


def _is_ours(head: Mapping[str, Any]) -> bool:
    return bool(head["format"] == FORMAT and head["stamp"] == source_stamp() and is_of_this_boot(head["boot"]))


# ---------------------------------------------------------------------- the arrays


def write_head(descriptor: int, head: Mapping[str, Any]) -> None:
    """Says in the file what it holds."""
    os.pwrite(descriptor, _sealed(json.dumps(head, separators=(",", ":")).encode()).ljust(_PAGE), 0)


def read_head(descriptor: int) -> dict[str, Any]:
    """What the file says it holds; raises ValueError or KeyError if that cannot be used."""
    page = os.pread(descriptor, _PAGE, 0)
    text = page[_DIGEST:].rstrip()
    if _sealed(text)[:_DIGEST] != page[:_DIGEST]:
        raise TornError("torn")
    head: dict[str, Any] = json.loads(text)
    if not _is_ours(head) or head["attempt"] == UNFINISHED:
        raise TornError("of another time")
    return head


def write_whole(path: Path, attempt: str, arrays: State) -> int:
    """Leaves all arrays in a file, whole or not at all; returns its size in bytes."""
    temporary = path.with_suffix(".tmp")
    with _new_file(temporary) as file:
        file.write(bytes(_PAGE))
        for name in _DTYPES:
            file.seek(-file.tell() % 64, os.SEEK_CUR)
            getattr(arrays, name).tofile(file)
        size = file.tell()
        file.truncate(max(size, _PAGE))
        file.flush()
        head = {
            "format": FORMAT,
            "stamp": source_stamp(),
            "boot": boot(),
            "born": attempt,
            "attempt": attempt,
            "shapes": {name: list(getattr(arrays, name).shape) for name in _DTYPES},
            "sums": {name: checksum(getattr(arrays, name)) for name in _DTYPES},
        }
        write_head(file.fileno(), head)
        _believe(file.fileno(), head)
    os.replace(temporary, path)
    return size


def mapped(descriptor: int, head: Mapping[str, Any]) -> State:
    """The arrays of the file, to be changed without changing it; raises TornError if they are not as they were left."""
    arrays = _views(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY), head)
    if not _is_believed(descriptor, head):
        if {name: checksum(getattr(arrays, name)) for name in _DTYPES} != head["sums"]:
            raise TornError("rotten")
        _believe(descriptor, head)
    if not _fits(arrays):
        raise TornError("out of bounds")
    return arrays


def _views(buffer: mmap.mmap, head: Mapping[str, Any]) -> State:
    found: dict[str, Any] = {}
    at = _PAGE
    for name, kind in _DTYPES.items():
        at += -at % 64
        shape, dtype = head["shapes"][name], np.dtype(kind)
        count = int(np.prod(shape))
        if at + count * dtype.itemsize > len(buffer):
            raise TornError("torn")
        found[name] = np.frombuffer(buffer, dtype, count, at).reshape(shape)
        at += count * dtype.itemsize
    if found["header"].shape != (HEADER_WORDS,):
        raise TornError("torn")
    return State(floats=found["records"].view(np.float64), **found)


def _fits(a: State) -> bool:
    """Whether the numbers in the header, by which kernels begin, lie within the arrays."""
    h, room = a.header, len(a.records)
    return bool(
        0 <= h[N] <= room
        and 0 <= h[USED] <= room
        and -1 <= h[FREE_HEAD] < room
        and 0 <= h[QUEUE_TAIL] - h[QUEUE_HEAD] <= len(a.queue)
        and h[QUEUE_HEAD] >= 0
        and 0 <= h[TIMER_COUNT] <= len(a.timers)
        and 0 <= h[BYTES_END] <= len(a.bytes)
        and len(a.buckets).bit_count() == 1
    )


def _identity(descriptor: int, head: Mapping[str, Any]) -> tuple[int, int, str]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino, str(head["born"])


def _is_believed(descriptor: int, head: Mapping[str, Any]) -> bool:
    return _identity(descriptor, head) in _believed


def _believe(descriptor: int, head: Mapping[str, Any]) -> None:
    if len(_believed) >= _FILES_MAX:
        del _believed[next(iter(_believed))]
    _believed[_identity(descriptor, head)] = None


# ---------------------------------------------------------------------- what an attempt changed


def write_changes(path: Path, attempt: str, parent: str, state: WindowState) -> int:
    """Leaves what changed since the state's trace began, whole or not at all; returns its size in bytes."""
    a, trace = state.arrays, state.trace
    records = trace.records[: trace.counts[RECORDS]]
    buckets = trace.buckets[: trace.counts[BUCKETS]]
    timers = trace.timers[: trace.counts[TIMERS]]
    queue = np.arange(state.tail_before, a.header[QUEUE_TAIL]) % max(1, len(a.queue))
    pieces = {
        "header": a.header,
        "record_ids": records,
        "records": a.records[records],
        "bucket_ids": buckets,
        "buckets": a.buckets[buckets],
        "timer_ids": timers,
        "timers": a.timers[timers],
        "queue_ids": queue.astype(np.int32),
        "queue": a.queue[queue],
        "bytes": a.bytes[state.bytes_before : a.header[BYTES_END]],
    }
    data = b"".join(np.ascontiguousarray(piece).tobytes() for piece in pieces.values())
    meta = {
        "format": FORMAT,
        "stamp": source_stamp(),
        "boot": boot(),
        "attempt": attempt,
        "parent": parent,
        "bytes_from": state.bytes_before,
        "arrays": [[name, piece.dtype.str, list(piece.shape)] for name, piece in pieces.items()],
    }
    line = json.dumps(meta).encode()
    temporary = path.with_suffix(".tmp")
    with _new_file(temporary) as file:
        file.write(_sealed(line, data) + b"\n" + data)
        size = file.tell()
    os.replace(temporary, path)
    return size


def read_changes(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What an attempt said and left; raises ValueError or KeyError if it cannot be used."""
    with os.fdopen(opened(path, os.O_RDONLY), "rb") as file:
        line, _, data = file.read().partition(b"\n")
    text = line[_DIGEST:]
    if _sealed(text, data) != line:
        raise TornError("torn")
    meta = json.loads(text)
    if not _is_ours(meta):
        raise TornError("of another time")
    arrays: dict[str, Any] = {"bytes_from": meta["bytes_from"]}
    at = 0
    for name, dtype, shape in meta["arrays"]:
        count = int(np.prod(shape))
        arrays[name] = np.frombuffer(data, dtype, count, at).reshape(shape)
        at += arrays[name].nbytes
    return meta, arrays


def redo(descriptor: int, head: Mapping[str, Any], attempt: str, changes: Mapping[str, Any]) -> None:
    """Makes the changes in place. Until they are done, the file says that it holds nothing that can be used."""
    write_head(descriptor, {**head, "attempt": UNFINISHED})
    sums = apply(descriptor, head, changes)
    write_head(descriptor, {**head, "attempt": attempt, "sums": sums})


def apply(descriptor: int, head: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, int]:
    """Writes the changes into the arrays of the file; returns the new checksums."""
    sums = dict(head["sums"])
    arrays = _views(mmap.mmap(descriptor, 0, access=mmap.ACCESS_WRITE), head)
    arrays.header[:] = changes["header"]
    sums["header"] = checksum(arrays.header)
    for name, ids in _ROWS.items():
        array, rows = getattr(arrays, name), changes[ids]
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(array):
            raise TornError("changes of another state")
        before = checksum_of_rows(array, rows)
        array[rows] = changes[name]
        sums[name] = (sums[name] - before + checksum_of_rows(array, rows)) % MODULUS
    begin, end = changes["bytes_from"], changes["bytes_from"] + len(changes["bytes"])
    before = checksum_of_bytes(arrays.bytes, begin, end)
    arrays.bytes[begin:end] = changes["bytes"]
    sums["bytes"] = (sums["bytes"] - before + checksum_of_bytes(arrays.bytes, begin, end)) % MODULUS
    return sums
