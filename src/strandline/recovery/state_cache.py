"""The state between two batches: arrays in a file on the machine of the task, outside of any process.

It is a cache and never the truth: what is missing, stale or torn is recovered from the log. The rules that keep it
right whoever works at the same time:

- An attempt maps the arrays privately and never writes to them. What it changed it leaves in a file of its own, of the
  size of what it touched (or the whole state, if it had to grow).
- The next batch knows from the manifest which attempt was accepted. It redoes that attempt's changes in place, under
  an exclusive lock. Values are absolute; a file whose redoing was cut short says so and is not used again.
- Who reads the arrays holds a shared lock on them. Should a frozen attempt keep it, the state is recovered into a new
  file, and the frozen one keeps its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from strandline.clock import SYSTEM_CLOCK, stopwatch_s
from strandline.operators.arrays import BUCKETS, RECORDS, TIMERS, State
from strandline.operators.record import BYTES_END, HEADER_WORDS, QUEUE_TAIL
from strandline.operators.window_state import WindowState

FORMAT = 1
FOLDER_VARIABLE = "STRANDLINE_STATE_DIR"
_PAGE = 4096
_PATIENCE_S = 2.0
_KEEP_S = 600.0
_FIELDS = ("header", "records", "buckets", "queue", "timers", "bytes")


def default_folder(stream: str, partition: int) -> Path:
    """Where the state of a partition lies on this machine, unless STRANDLINE_STATE_DIR says otherwise."""
    root = os.environ.get(FOLDER_VARIABLE) or f"{tempfile.gettempdir()}/strandline-state-{os.getuid()}"
    return Path(root) / stream / f"p{partition:05d}"


class StateCache:
    """The cached state of one partition on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._base = folder / "base"
        self._lock: int | None = None

    def open(self, attempt: str, width: int, *, timed: bool) -> WindowState | None:
        """The state as this attempt left it, to work on without changing it for others; None if it is not here."""
        self.close()
        try:
            if self._tag() != attempt and not self._redo(attempt):
                return None
            arrays = self._mapped(attempt, width)
        except (OSError, ValueError, KeyError):
            return None
        return None if arrays is None else WindowState(arrays, timed=timed)

    def leave(self, attempt: str, parent: str, state: WindowState, *, whole: bool = False) -> int:
        """Leaves what this attempt changed since it began, or all of it; returns how many bytes that was.

        A full or broken disk costs the next batch a recovery, not this batch its success.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if whole or state.grown or not parent:
                size = _write_whole(self._folder / f"{attempt}.whole", attempt, state.arrays)
            else:
                size = _write_changes(self._folder / f"{attempt}.delta", attempt, parent, state)
        except OSError:
            return 0
        finally:
            self.close()
        return size

    def close(self) -> None:
        """Lets go of the arrays."""
        if self._lock is not None:
            # Said aloud: the map has a descriptor of its own, which would hold the lock for as long as the map lives.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = None

    # ------------------------------------------------------------------ the base file

    def _tag(self) -> str | None:
        try:
            with self._base.open("rb") as file:
                return str(_read_head(file.read(_PAGE))["attempt"])
        except (OSError, ValueError, KeyError):
            return None

    def _redo(self, attempt: str) -> bool:
        whole, changes = self._folder / f"{attempt}.whole", self._folder / f"{attempt}.delta"
        if whole.exists():
            os.replace(whole, self._base)
            self._sweep()
            return True
        if not changes.exists():
            return self._tag() == attempt  # another attempt at this batch may just have been faster
        meta, arrays = _read_changes(changes)
        with self._base.open("r+b") as file, _exclusive(file.fileno()):
            head = _read_head(file.read(_PAGE))
            if head["attempt"] == attempt:
                return True  # another attempt at this batch was faster
            if head["attempt"] != meta["parent"]:
                return False
            _write_head(file.fileno(), {**head, "attempt": ""})
            _apply(file.fileno(), head, arrays)
            _write_head(file.fileno(), {**head, "attempt": attempt})
        changes.unlink(missing_ok=True)
        self._sweep()
        return True

    def _mapped(self, attempt: str, width: int) -> State | None:
        descriptor = os.open(self._base, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        self._lock = descriptor
        head = _read_head(os.pread(descriptor, _PAGE, 0))
        if head["attempt"] != attempt or head["shapes"]["records"][1] != width:
            self.close()
            return None
        return _views(mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY), head)

    def _sweep(self) -> None:
        """Removes what attempts left that were never accepted."""
        with contextlib.suppress(OSError):
            limit_s = SYSTEM_CLOCK.now_us() / 1e6 - _KEEP_S
            for path in self._folder.iterdir():
                if path.name != "base" and path.stat().st_mtime < limit_s:
                    path.unlink(missing_ok=True)


@contextlib.contextmanager
def _exclusive(descriptor: int) -> Iterator[None]:
    """Nobody reads the arrays meanwhile; OSError if somebody does not let go of them."""
    began = stopwatch_s()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if stopwatch_s() - began > _PATIENCE_S:
                raise
            SYSTEM_CLOCK.sleep(0.001)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


# ---------------------------------------------------------------------- files


def _boot() -> str:
    """Which life of the machine this is: what was mapped before a crash of it cannot be trusted."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _write_head(descriptor: int, head: Mapping[str, Any]) -> None:
    text = json.dumps(head, separators=(",", ":")).encode()
    page = xxhash.xxh3_64_hexdigest(text).encode() + text
    os.pwrite(descriptor, page.ljust(_PAGE), 0)


def _read_head(page: bytes) -> dict[str, Any]:
    text = page[16:].rstrip()
    if xxhash.xxh3_64_hexdigest(text).encode() != page[:16]:
        raise ValueError("torn")
    head: dict[str, Any] = json.loads(text)
    if head["format"] != FORMAT or head["boot"] != _boot():
        raise ValueError("of another time")
    return head


def _write_whole(path: Path, attempt: str, arrays: State) -> int:
    shapes = {name: list(getattr(arrays, name).shape) for name in _FIELDS}
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(bytes(_PAGE))
        for name in _FIELDS:
            file.seek(-file.tell() % 64, os.SEEK_CUR)
            getattr(arrays, name).tofile(file)
        size = file.tell()
        file.truncate(max(size, _PAGE))
        file.flush()
        _write_head(file.fileno(), {"format": FORMAT, "boot": _boot(), "attempt": attempt, "shapes": shapes})
    os.replace(temporary, path)
    return size


_DTYPES = {
    "header": np.int64,
    "records": np.int64,
    "buckets": np.int32,
    "queue": np.int32,
    "timers": np.int64,
    "bytes": np.uint8,
}


def _views(buffer: mmap.mmap, head: Mapping[str, Any]) -> State:
    found: dict[str, Any] = {}
    at = _PAGE
    for name in _FIELDS:
        at += -at % 64
        shape, dtype = head["shapes"][name], np.dtype(_DTYPES[name])
        count = int(np.prod(shape))
        if at + count * dtype.itemsize > len(buffer):
            raise ValueError("torn")
        found[name] = np.frombuffer(buffer, dtype, count, at).reshape(shape)
        at += count * dtype.itemsize
    if found["header"].shape != (HEADER_WORDS,):
        raise ValueError("torn")
    return State(floats=found["records"].view(np.float64), **found)


def _write_changes(path: Path, attempt: str, parent: str, state: WindowState) -> int:
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
        "queue_ids": queue,
        "queue": a.queue[queue],
        "bytes": a.bytes[state.bytes_before : a.header[BYTES_END]],
    }
    data = b"".join(np.ascontiguousarray(piece).tobytes() for piece in pieces.values())
    meta = {
        "format": FORMAT,
        "boot": _boot(),
        "attempt": attempt,
        "parent": parent,
        "bytes_from": state.bytes_before,
        "checksum": xxhash.xxh3_64_hexdigest(data),
        "arrays": [[name, piece.dtype.str, list(piece.shape)] for name, piece in pieces.items()],
    }
    line = json.dumps(meta).encode() + b"\n"
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(line + data)
    os.replace(temporary, path)
    return len(line) + len(data)


def _read_changes(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    line, _, data = path.read_bytes().partition(b"\n")
    meta = json.loads(line)
    if meta["format"] != FORMAT or meta["boot"] != _boot() or meta["checksum"] != xxhash.xxh3_64_hexdigest(data):
        raise ValueError("torn")
    arrays: dict[str, Any] = {"bytes_from": meta["bytes_from"]}
    at = 0
    for name, dtype, shape in meta["arrays"]:
        count = int(np.prod(shape))
        arrays[name] = np.frombuffer(data, dtype, count, at).reshape(shape)
        at += arrays[name].nbytes
    return meta, arrays


def _apply(descriptor: int, head: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_WRITE) as buffer:
        arrays = _views(buffer, head)
        arrays.header[:] = changes["header"]
        for name in ("record", "bucket", "timer"):
            getattr(arrays, f"{name}s")[changes[f"{name}_ids"]] = changes[f"{name}s"]
        arrays.queue[changes["queue_ids"]] = changes["queue"]
        begin = changes["bytes_from"]
        arrays.bytes[begin : begin + len(changes["bytes"])] = changes["bytes"]
        del arrays  # the map cannot be closed while anything refers to it
