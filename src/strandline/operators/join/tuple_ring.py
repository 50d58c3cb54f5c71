"""The kept tuples of one side as arrays that grow, with the trace of what a step has changed in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from strandline.operators.join import ring_kernels as kernels
from strandline.operators.join.tuple_record import (
    BYTES_END,
    BYTES_KEPT,
    FIRST,
    HEAD,
    HEADER_WORDS,
    LIST_WORDS,
    LIVE,
    ORIGIN,
    SAVED,
    SEED,
    SETTLED,
    TAIL,
    TRAIL_WORDS,
    Side,
)
from strandline.operators.kernels.kernel_arrays import Bytes, Int64s
from strandline.operators.open_windows.hash_table import new_seed

if TYPE_CHECKING:
    from strandline.operators.join.definition import JoinDefinition

ROOM_MIN: Final = 64
BYTES_MIN: Final = 1 << 16
"""A ring with fewer bytes is not searched for dead ones."""
_GROWTH: Final = 1.25
_SPARSE: Final = 1.5
"""Count windows: records are moved together if there are so many times as many as tuples that are kept."""
_NAMES: Final = ("records", "buckets", "header", "bytes")


class TupleRing:
    """One side: `arrays` for the kernels, and when to replace them by larger or smaller ones."""

    def __init__(self, arrays: Side, definition: JoinDefinition) -> None:
        self.arrays = arrays
        self._fits_word = definition.fits_word
        self._counts = definition.windows.kind == "key"
        self.begin()

    @classmethod
    def empty(cls, definition: JoinDefinition, side: int) -> TupleRing:
        """Returns a ring without tuples; it has no room if the side keeps none."""
        room = ROOM_MIN if definition.windows.keeps[side] else 0
        header = np.zeros(HEADER_WORDS, np.int64)
        header[SEED] = new_seed()
        return cls(_arrays(room, _width(definition), header, np.empty(0, np.uint8)), definition)

    @classmethod
    def of(cls, definition: JoinDefinition, found: Mapping[str, npt.NDArray[Any]]) -> TupleRing:
        """Returns the side that left these arrays; ValueError if they do not fit."""
        records, buckets, header, held = (_writable(found[name]) for name in _NAMES)
        if records.ndim != 2 or records.shape[1] != _width(definition) or header.shape != (HEADER_WORDS,):
            raise ValueError("tuples of another join")
        h = header
        if not (
            h[HEAD] <= h[TAIL]
            and h[TAIL] - h[HEAD] <= len(records)
            and 0 <= h[LIVE] <= h[TAIL] - h[HEAD]
            and 0 <= h[TAIL] - h[ORIGIN] <= max(len(records), h[TAIL] * (len(records) == 0))
            and 0 <= h[BYTES_END] <= len(held)
            and len(buckets) > 0
        ):
            raise ValueError("tuples out of bounds")
        return cls(Side(records, _narrow(records), buckets, header, held, *_marks(records, buckets)), definition)

    # ------------------------------------------------------------------ what is there

    def __getitem__(self, word: int) -> int:
        """Returns a word of the header."""
        return int(self.arrays.header[word])

    def __setitem__(self, word: int, value: int) -> None:
        self.arrays.header[word] = value

    def live(self, first: int, end: int, most: int | None = None) -> Int64s:
        """Numbers of kept tuples from `first` on, before `end`, at most so many."""
        first, end = max(first, self[HEAD]), min(end, self[TAIL])
        found = np.empty(max(0, end - first if most is None else min(most, end - first)), np.int64)
        return found[: kernels.live_among(self.arrays, first, end, found)]

    def read(self, numbers: Int64s) -> Int64s:
        """Returns rows of ordinals, times, keys, and of where the keys' bytes lie (or whether they are null)."""
        words = np.empty((4, len(numbers)), np.int64)
        kernels.read_records(self.arrays, numbers, self._fits_word, self._counts, words)
        return words

    def first_unsaved(self) -> int | None:
        """Returns the number of the first kept tuple that is in no footprint; None if all are."""
        found = self.live(self[SAVED], self[TAIL], 1)
        self[SAVED] = int(found[0]) if len(found) else self[TAIL]
        return int(found[0]) if len(found) else None

    # ------------------------------------------------------------------ the trace

    def begin(self) -> None:
        """Begins a new trace."""
        a = self.arrays
        self.is_replaced = False
        self._bytes_before = self[BYTES_END]
        records, buckets = _marks(a.records, a.buckets)
        self.arrays = a._replace(record_marks=records, bucket_marks=buckets)

    def image(self) -> dict[str, npt.NDArray[Any]]:
        """Returns all arrays by name."""
        return {name: getattr(self.arrays, name) for name in _NAMES}

    def changed(self) -> dict[str, npt.NDArray[Any] | slice]:
        """Returns the rows of each array that were changed since the trace began."""
        return {
            "records": np.flatnonzero(self.arrays.record_marks.view(np.bool_)),
            "buckets": np.flatnonzero(self.arrays.bucket_marks.view(np.bool_)),
            "header": slice(0, HEADER_WORDS),
            "bytes": slice(self._bytes_before, self[BYTES_END]),
        }

    # ------------------------------------------------------------------ room

    def grow(self, more: int) -> None:
        """Makes room for more tuples, `more` of which are to come; numbers stay what they are."""
        header = self.arrays.header.copy()
        header[TAIL] = header[ORIGIN] = header[HEAD]
        room = int(len(self.arrays.records) * _GROWTH)
        if self._counts:  # who goes leaves no room: better once than again and again
            room = max(room, len(self.arrays.records) + more)
        self._move(header, room + ROOM_MIN, keep_dead=True)

    @property
    def is_sparse(self) -> bool:
        """True if so many records are of tuples that are not kept any more that it is time to move the others."""
        return self._counts and self[TAIL] - self[HEAD] > _SPARSE * self[LIVE] + ROOM_MIN

    def renumber(self) -> Int64s:
        """Moves the kept tuples together; their numbers before. They count from 0 on afterwards."""
        numbers = self.live(self[HEAD], self[TAIL])
        header = self.arrays.header.copy()
        header[HEAD] = header[TAIL] = header[ORIGIN] = header[SETTLED] = header[FIRST] = 0
        header[SAVED] = np.searchsorted(numbers, self[SAVED])
        self._move(header, int(len(numbers) * _GROWTH) + ROOM_MIN, keep_dead=False)
        return numbers

    def _move(self, header: Int64s, room: int, *, keep_dead: bool) -> None:
        a = self.arrays
        larger = _arrays(room, a.records.shape[1], header, a.bytes)
        if self._counts:
            kernels.move_lists(a, larger, self._fits_word, keep_dead)
        else:
            kernels.move_trails(a, larger)
        self.arrays = larger
        self.is_replaced = True

    def add_bytes(self, data: Bytes) -> None:
        """Takes in the bytes of keys."""
        end = self[BYTES_END]
        if end + len(data) > len(self.arrays.bytes):
            larger = np.empty(int((end + len(data)) * _GROWTH) + ROOM_MIN, np.uint8)
            larger[:end] = self.arrays.bytes[:end]
            self.arrays = self.arrays._replace(bytes=larger)
            self.is_replaced = True
        self.arrays.bytes[end : end + len(data)] = data
        self[BYTES_END] = end + len(data)

    def drop_bytes(self) -> None:
        """Copies the bytes of keys still kept together, whenever there are twice as many as after the last time."""
        if self._fits_word or self[BYTES_END] < max(BYTES_MIN, 2 * self[BYTES_KEPT]):
            return
        wanted = int(kernels.bytes_in_use(self.arrays))
        fewer = np.empty(int(wanted * _GROWTH) + ROOM_MIN, np.uint8)
        kernels.move_bytes(self.arrays, fewer)
        self.arrays = self.arrays._replace(bytes=fewer)
        self[BYTES_KEPT] = wanted
        self.is_replaced = True


def _width(definition: JoinDefinition) -> int:
    return (LIST_WORDS if definition.windows.kind == "key" else TRAIL_WORDS) + (not definition.fits_word)


def _arrays(room: int, width: int, header: Int64s, held: Bytes) -> Side:
    records = np.zeros((room, width), np.int64)
    buckets = np.full(max(8, room), -1, np.int64)
    return Side(records, _narrow(records), buckets, header, held, *_marks(records, buckets))


def _narrow(records: Int64s) -> npt.NDArray[np.int32]:
    return records.view(np.int32).reshape(len(records), 2 * records.shape[1])


def _marks(records: Int64s, buckets: Int64s) -> tuple[Bytes, Bytes]:
    return np.zeros(len(records), np.uint8), np.zeros(len(buckets), np.uint8)


def _writable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array if array.flags.writeable and array.flags.c_contiguous else array.copy()
