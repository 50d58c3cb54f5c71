"""The open windows of one partition, as arrays that grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from strandline.operators.kernels.kernel_arrays import Bytes, Int32s, Int64s
from strandline.operators.open_windows.arrays import (
    BUCKETS,
    COUNTS,
    NO_BATCH,
    RECORDS,
    RESULTS,
    Batch,
    State,
    Trace,
    sealed_batch,
)
from strandline.operators.open_windows.arrays import TIMERS as TIMERS_TOUCHED
from strandline.operators.open_windows.byte_arena import bytes_wanted, keep_bytes
from strandline.operators.open_windows.hash_table import new_seed
from strandline.operators.open_windows.record import (
    BYTES_END,
    BYTES_KEPT,
    FREE_HEAD,
    HEADER_WORDS,
    LAYOUT,
    LISTED,
    OPENED,
    OPENINGS_HEAD,
    OPENINGS_TAIL,
    PASSED,
    QUEUE_HEAD,
    QUEUE_TAIL,
    SEED,
    START,
    TIMERS,
    UNHASHED,
    USED,
    N,
)
from strandline.operators.open_windows.window_footprints import renumber_queue
from strandline.operators.open_windows.window_records import rebuild
from strandline.operators.operator import Rows, StateImage

ROOM_MIN = 256
BYTES_MIN = 1 << 20
"""A state with fewer bytes is not searched for dead ones."""
_GROWTH = 1.25
_NO_HITS = np.empty((0, 2), np.int64)
_KINDS: dict[str, Any] = dict.fromkeys(("header", "records", "timers", "openings"), np.dtype(np.int64))
_KINDS |= {"buckets": np.dtype(np.int32), "queue": np.dtype(np.int32), "bytes": np.dtype(np.uint8)}
"""The arrays of a state."""


class WindowState:
    """Arrays of windows, with the trace of what was changed since `begin`."""

    def __init__(self, arrays: State, *, timed: bool) -> None:
        self.arrays = arrays
        self.timed = timed
        self.grown = False
        """True if the arrays were replaced by larger ones, so that a trace of changes would not do."""
        self.begin()

    @classmethod
    def empty(cls, width: int, layout: int, *, timed: bool, room: int = ROOM_MIN) -> WindowState:
        """Returns a state without windows, which will be found as `layout` says."""
        header = np.zeros(HEADER_WORDS, np.int64)
        header[FREE_HEAD], header[LAYOUT], header[SEED] = -1, layout, new_seed()
        return cls(_arrays(width, room, room if timed else 0, room, 0, header), timed=timed)

    @classmethod
    def revived(cls, arrays: Mapping[str, npt.NDArray[Any]], width: int, *, timed: bool) -> WindowState:
        """Returns the windows that these arrays hold; ValueError if they cannot be such a state."""
        kinds = {name: array.dtype for name, array in arrays.items()}
        if kinds != _KINDS or arrays["header"].shape != (HEADER_WORDS,) or arrays["records"].shape[1:] != (width,):
            raise ValueError("arrays of another state")
        found = State(floats=arrays["records"].view(np.float64), **arrays)
        if not _fits(found):
            raise ValueError("out of bounds")
        return cls(found, timed=timed)

    def image(self) -> StateImage:
        """Returns the arrays, and the rows of each that have changed since `begin`."""
        a, trace = self.arrays, self.trace
        arrays = {name: getattr(a, name) for name in _KINDS}
        if self.grown:
            return StateImage(arrays, None)
        queue = np.arange(self.tail_before, a.header[QUEUE_TAIL]) % max(1, len(a.queue))
        changed: dict[str, Rows] = {
            "header": slice(0, HEADER_WORDS),
            "records": trace.records[: trace.counts[RECORDS]],
            "buckets": trace.buckets[: trace.counts[BUCKETS]],
            "queue": queue.astype(np.int32),
            "timers": trace.timers[: trace.counts[TIMERS_TOUCHED]],
            "bytes": slice(self.bytes_before, int(a.header[BYTES_END])),
            "openings": np.arange(self.openings_before, a.header[OPENINGS_TAIL]) % max(1, len(a.openings)),
        }
        return StateImage(arrays, changed)

    @property
    def open_windows(self) -> int:
        """How many windows are open: N."""
        return int(self.arrays.header[N])

    @property
    def room(self) -> int:
        """How many windows fit."""
        return len(self.arrays.records)

    @property
    def width(self) -> int:
        """Words in a record."""
        return int(self.arrays.records.shape[1])

    def begin(self) -> None:
        """Begins a new trace."""
        self._begin()

    def _begin(self) -> None:
        a = self.arrays
        self.bytes_before = int(a.header[BYTES_END])
        self.tail_before = int(a.header[QUEUE_TAIL])
        self.openings_before = int(a.header[OPENINGS_TAIL])
        self.trace = Trace(
            np.zeros(len(a.records), np.uint8),
            np.empty(len(a.records) + 1, np.int32),  # one more: see `Trace`
            np.zeros(len(a.buckets), np.uint8),
            np.empty(len(a.buckets) + 1, np.int32),
            np.zeros(len(a.timers), np.uint8),
            np.empty(len(a.timers) + 1, np.int32),
            np.zeros(COUNTS, np.int64),
            _NO_HITS,
            _NO_HITS,
        )

    def grow(self, room: int = 0) -> None:
        """Makes room for more windows: at least `room`, or somewhat more than there is."""
        a = self.arrays
        room = max(room, int(self.room * _GROWTH) + ROOM_MIN)
        live_timers = int(a.header[TIMERS])
        timers = max(room, int(live_timers * _GROWTH)) + ROOM_MIN if self.timed else 0
        larger = _arrays(self.width, room, timers, max(room, len(a.queue)), len(a.bytes), a.header.copy())
        rebuild(a, larger)
        larger.bytes[: len(a.bytes)] = a.bytes
        renumber_queue(a._replace(records=larger.records, header=larger.header), larger.queue)
        self._replace(larger._replace(openings=a.openings))

    def reserve_queue(self, more: int) -> None:
        """Makes room in the queue for that many more entries, dropping those of windows that have gone if need be."""
        a = self.arrays
        used = int(a.header[QUEUE_TAIL] - a.header[QUEUE_HEAD])
        if used + more <= len(a.queue):
            return
        wanted = int((self.open_windows + more) * _GROWTH) + ROOM_MIN
        queue = np.empty(max(wanted, len(a.queue)), np.int32)
        renumber_queue(a, queue)
        # Tickets have changed in every record: nothing less than the whole state tells it.
        self._replace(a._replace(queue=queue))

    def reserve_openings(self, more: int) -> None:
        """Makes room for that many more openings, dropping those of windows that have gone if need be."""
        a, h = self.arrays, self.arrays.header
        if h[OPENINGS_TAIL] - h[OPENINGS_HEAD] + more > len(a.openings):
            entries = a.openings[np.arange(h[OPENINGS_HEAD], h[OPENINGS_TAIL]) % max(1, len(a.openings))]
            self._list(entries[a.records[entries[:, 0], OPENED] == entries[:, 1]], more)

    def list_openings(self) -> None:
        """Lists all open windows in the order in which they were opened."""
        slots = self.open_slots()
        self._list(np.stack([slots, self.arrays.records[slots, OPENED]], axis=1), 0)
        self.arrays.header[LISTED], self.arrays.header[PASSED] = 1, 0

    def _list(self, entries: Int64s, more: int) -> None:
        """Lists these openings and no others, in an array with room for more."""
        openings = np.empty((int((len(entries) + more) * _GROWTH) + ROOM_MIN, 2), np.int64)
        openings[: len(entries)] = entries
        self.arrays.header[OPENINGS_HEAD], self.arrays.header[OPENINGS_TAIL] = 0, len(entries)
        self._replace(self.arrays._replace(openings=openings))

    def reserve_bytes(self, more: int) -> None:
        """Makes room for that many more bytes."""
        a = self.arrays
        end = int(a.header[BYTES_END])
        if end + more <= len(a.bytes):
            return
        larger = np.empty(int((end + more) * _GROWTH) + ROOM_MIN, np.uint8)
        larger[:end] = a.bytes[:end]
        self._replace(a._replace(bytes=larger))

    def keep_bytes(self, words: Int64s, batch: Batch) -> None:
        """Copies the bytes of the batch that changed windows refer to into the state."""
        if not len(words):
            return
        slots = self.trace.records[: self.trace.counts[RECORDS]] if not self.grown else self.used_slots()
        self.reserve_bytes(int(bytes_wanted(words, self.arrays, slots)))
        self.arrays.header[BYTES_END] = keep_bytes(words, self.arrays, batch, slots)

    def open_slots(self) -> Int32s:
        """Returns the records of all open windows in the order in which they were opened."""
        records = self.arrays.records[: self.arrays.header[USED]]
        slots = np.flatnonzero(records[:, OPENED] >= 0)
        found: Int32s = slots[np.lexsort((records[slots, START], records[slots, OPENED]))].astype(np.int32)
        return found

    def used_slots(self) -> Int32s:
        """Returns every record that was ever used."""
        return np.arange(self.arrays.header[USED], dtype=np.int32)

    def drop_dead_bytes(self, words: Int64s) -> None:
        """Copies the bytes still referred to together, whenever there are twice as many as after the last time."""
        a = self.arrays
        end = int(a.header[BYTES_END])
        if not len(words) or end < max(BYTES_MIN, 2 * int(a.header[BYTES_KEPT])):
            return
        a.header[BYTES_END] = 0  # as if everything lay in a batch
        slots = self.used_slots()
        wanted = int(bytes_wanted(words, a, slots))
        fewer = a._replace(bytes=np.empty(2 * wanted + ROOM_MIN, np.uint8))
        keep_bytes(words, fewer, sealed_batch(NO_BATCH._replace(bytes=a.bytes[:end])), slots)
        a.header[BYTES_END] = a.header[BYTES_KEPT] = wanted
        self._replace(fewer)

    def _replace(self, arrays: State) -> None:
        self.arrays = arrays
        self.grown = True
        before = self.trace
        self._begin()
        self.trace.counts[RESULTS:] = before.counts[RESULTS:]
        self.trace = self.trace._replace(hits=before.hits, numbered=before.numbered)


def _arrays(width: int, room: int, timers: int, queue: int, size: int, header: Int64s) -> State:
    records = np.empty((room, width), np.int64)
    hashed = 0 if header[LAYOUT] == UNHASHED else room
    buckets = np.full(1 << max(8, (2 * hashed - 1).bit_length()), -1, np.int32)
    held: Bytes = np.empty(size, np.uint8)
    return State(
        records,
        records.view(np.float64),
        buckets,
        header,
        np.empty(queue, np.int32),
        np.empty((timers, 2), np.int64),
        held,
        np.empty((0, 2), np.int64),
    )


def _fits(a: State) -> bool:
    """Returns whether the numbers in the header, by which kernels begin, lie within the arrays."""
    h, room = a.header, len(a.records)
    return bool(
        0 <= h[N] <= room
        and 0 <= h[USED] <= room
        and -1 <= h[FREE_HEAD] < room
        and 0 <= h[QUEUE_TAIL] - h[QUEUE_HEAD] <= len(a.queue)
        and h[QUEUE_HEAD] >= 0
        and 0 <= h[TIMERS] <= len(a.timers)
        and 0 <= h[BYTES_END] <= len(a.bytes)
        and 0 <= h[OPENINGS_TAIL] - h[OPENINGS_HEAD] <= len(a.openings)
        and h[OPENINGS_HEAD] >= 0
        and len(a.buckets).bit_count() == 1
    )
