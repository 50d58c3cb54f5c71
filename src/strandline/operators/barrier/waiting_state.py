"""The tuples of a barrier that wait, in one partition, as arrays that grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.operators.barrier import matching
from strandline.operators.barrier.matching import (
    ARRIVALS,
    ARRIVED,
    AT,
    BYTES_END,
    BYTES_KEPT,
    COUNT,
    FREE,
    HEADER_WORDS,
    INPUT,
    INPUT_END,
    KEYS_FREE,
    KEYS_USED,
    NONE,
    POS,
    PRINTS,
    QUEUES,
    ROW,
    SAVED,
    SEED,
    TUPLE_WORDS,
    USED,
    N,
    Touched,
    WaitingArrays,
)
from strandline.operators.kernels.kernel_arrays import Bytes, Int64s
from strandline.operators.kernels.key_mixing import new_seed
from strandline.operators.open_windows.payloads import Payloads
from strandline.operators.operator import StateImage

ROOM_MIN = 64
_GROWTH = 1.5
_GARBAGE_MIN = 1 << 10
"""A state with fewer rows or bytes is not searched for those that are not needed."""


class WaitingState:
    """The arrays, their payloads, and which parts of them were changed since `begin`."""

    def __init__(self, arrays: WaitingArrays, payloads: Sequence[Payloads]) -> None:
        self.arrays = arrays
        self.payloads = list(payloads)
        self.begin()

    @classmethod
    def empty(cls, schemas: Sequence[pa.Schema]) -> WaitingState:
        """Returns a state in which no tuple waits."""
        header = np.zeros(HEADER_WORDS, np.int64)
        header[FREE] = header[KEYS_FREE] = NONE
        header[SEED] = new_seed()
        arrays = WaitingArrays(
            header,
            np.full((ROOM_MIN, TUPLE_WORDS), NONE, np.int64),
            np.full((ROOM_MIN, QUEUES + 2 * len(schemas)), NONE, np.int64),
            np.full(4 * ROOM_MIN, NONE, np.int32),
            np.zeros((2 * ROOM_MIN, 2), np.int64),
            np.zeros((2 * ROOM_MIN, 2), np.int64),
            np.empty(0, np.uint8),
        )
        return cls(arrays, [Payloads(schema) for schema in schemas])

    @classmethod
    def revived(cls, arrays: Mapping[str, npt.NDArray[Any]], schemas: Sequence[pa.Schema]) -> WaitingState:
        """Returns the state that these arrays hold; ValueError if they cannot be such a state."""
        try:
            found = WaitingArrays(*(arrays[name] for name in WaitingArrays._fields))
            payloads = [
                Payloads(schema, arrays[f"payload_{i}"], arrays[f"chunks_{i}"]) for i, schema in enumerate(schemas)
            ]
        except (KeyError, IndexError) as problem:
            raise ValueError(f"arrays of another state: {problem}") from None
        h = found.header
        is_whole = (
            len(arrays) == len(WaitingArrays._fields) + 2 * len(schemas)
            and h.shape == (HEADER_WORDS,)
            and found.tuples.shape[1:] == (TUPLE_WORDS,)
            and found.keys.shape[1:] == (QUEUES + 2 * len(schemas),)
            and 0 <= h[N] <= h[USED] <= len(found.tuples)
            and 0 <= h[KEYS_USED] <= len(found.keys)
            and 0 <= h[ARRIVALS] - h[ARRIVED] <= len(found.arrivals)
            and 0 <= h[PRINTS] - h[SAVED] <= len(found.prints)
            and 0 <= h[BYTES_END] <= len(found.bytes)
            and len(found.buckets).bit_count() == 1
        )
        if not is_whole:
            raise ValueError("arrays of another state, or out of bounds")
        return cls(found, payloads)

    def begin(self) -> None:
        """Begins a new trace."""
        w = self.arrays
        self.replaced = False
        self.touched = Touched(*(np.zeros(len(a), np.uint8) for a in (w.tuples, w.keys, w.buckets)))
        self._before = w.header.copy()
        for payload in self.payloads:
            payload.begin()

    def image(self) -> StateImage:
        """Returns all arrays by name, and of each the rows that were changed since `begin`."""
        w, h, before = self.arrays, self.arrays.header, self._before
        arrays: dict[str, npt.NDArray[Any]] = dict(zip(WaitingArrays._fields, w, strict=True))
        for i, payload in enumerate(self.payloads):
            arrays[f"payload_{i}"], arrays[f"chunks_{i}"] = payload.arena, payload.table
        if self.replaced or any(payload.is_replaced for payload in self.payloads):
            return StateImage(arrays, None)
        changed: dict[str, Any] = {
            "header": slice(0, HEADER_WORDS),
            "tuples": np.flatnonzero(self.touched.tuples),
            "keys": np.flatnonzero(self.touched.keys),
            "buckets": np.flatnonzero(self.touched.buckets),
            "arrivals": np.arange(before[ARRIVALS], h[ARRIVALS]) % len(w.arrivals),
            "prints": np.arange(before[PRINTS], h[PRINTS]) % len(w.prints),
            "bytes": slice(int(before[BYTES_END]), int(h[BYTES_END])),
        }
        for i, payload in enumerate(self.payloads):
            changed[f"payload_{i}"] = payload.changed
            changed[f"chunks_{i}"] = slice(0, len(arrays[f"chunks_{i}"]))
        return StateImage(arrays, changed)

    @property
    def waiting(self) -> int:
        """How many tuples wait."""
        return int(self.arrays.header[N])

    @property
    def input_end(self) -> int:
        """The state holds the input tuples before this place."""
        return int(self.arrays.header[INPUT_END])

    @input_end.setter
    def input_end(self, place: int) -> None:
        self.arrays.header[INPUT_END] = place

    def live(self) -> Int64s:
        """Returns the records of all tuples that wait, in the order of their places."""
        tuples = self.arrays.tuples[: self.arrays.header[USED]]
        slots = np.flatnonzero(tuples[:, AT] >= 0)
        found: Int64s = slots[np.argsort(tuples[slots, AT])]
        return found

    def grow(self) -> None:
        """Makes room for more tuples, keys and arrivals, where there is little."""
        w, h = self.arrays, self.arrays.header
        if h[FREE] < 0 and h[USED] == len(w.tuples):
            w = w._replace(tuples=_larger(w.tuples))
        if h[KEYS_FREE] < 0 and h[KEYS_USED] == len(w.keys):
            w = w._replace(keys=_larger(w.keys))
            if 2 * len(w.keys) > len(w.buckets):
                w = w._replace(buckets=np.full(4 * len(w.buckets), NONE, np.int32))
                matching.rehash(w)
        self._replace(w)
        if h[ARRIVALS] - h[ARRIVED] == len(w.arrivals):
            unsaved = self.live()
            unsaved = unsaved[w.tuples[unsaved, POS] < 0]
            ring = np.zeros((max(len(w.arrivals), 2 * len(unsaved) + ROOM_MIN), 2), np.int64)
            ring[: len(unsaved), 0], ring[: len(unsaved), 1] = unsaved, w.tuples[unsaved, AT]
            h[ARRIVED], h[ARRIVALS] = 0, len(unsaved)
            self._replace(w._replace(arrivals=ring))

    def reserve_prints(self, more: int) -> None:
        """Makes room for that many more footprints in their queue."""
        w, h = self.arrays, self.arrays.header
        if h[PRINTS] - h[SAVED] + more <= len(w.prints):
            return
        saved = self.live()
        saved = saved[w.tuples[saved, POS] >= 0]
        saved = saved[np.argsort(w.tuples[saved, POS])]
        ring = np.zeros((int((len(saved) + more) * _GROWTH) + ROOM_MIN, 2), np.int64)
        ring[: len(saved), 0], ring[: len(saved), 1] = saved, w.tuples[saved, POS]
        h[SAVED], h[PRINTS] = 0, len(saved)
        self._replace(w._replace(prints=ring))

    def keep_bytes(self, records: Int64s, more: Bytes) -> None:
        """Takes over the bytes of new keys."""
        if not len(more):
            return
        records = np.unique(records)  # a record may have been given to one key after the other
        held = int(self.arrays.header[BYTES_END])
        wanted = int(matching.bytes_of_keys(self.arrays, records, held))
        if held + wanted > len(self.arrays.bytes):
            larger = np.empty(int((held + wanted) * _GROWTH) + ROOM_MIN, np.uint8)
            larger[:held] = self.arrays.bytes[:held]
            self._replace(self.arrays._replace(bytes=larger))
        end = matching.keep_bytes(self.arrays, records, more, held, held, self.touched)
        self.arrays.header[BYTES_END] = end

    def drop_garbage(self) -> None:
        """Copies together what is still needed of payloads and of keys' bytes, where more than half is not."""
        w, h = self.arrays, self.arrays.header
        if int(h[BYTES_END]) > max(_GARBAGE_MIN, 2 * int(h[BYTES_KEPT])):
            records = np.flatnonzero(w.keys[: h[KEYS_USED], COUNT] >= 0)
            fewer = w._replace(bytes=np.empty(int(matching.bytes_of_keys(w, records, 0)) + ROOM_MIN, np.uint8))
            h[BYTES_END] = h[BYTES_KEPT] = matching.keep_bytes(fewer, records, w.bytes, 0, 0, self.touched)
            self._replace(fewer)
        if sum(payload.rows for payload in self.payloads) > 2 * self.waiting + _GARBAGE_MIN:
            w, live = self.arrays, self.live()
            for i, payload in enumerate(self.payloads):
                own = live[w.tuples[live, INPUT] == i]
                payload.choose(w.tuples[own, ROW])
                w.tuples[own, ROW] = np.arange(len(own))

    def _replace(self, arrays: WaitingArrays) -> None:
        if arrays is self.arrays:
            return
        sizes = [len(a) for a in (arrays.tuples, arrays.keys, arrays.buckets)]
        if sizes != [len(marks) for marks in self.touched]:
            self.touched = Touched(*(np.zeros(size, np.uint8) for size in sizes))
        self.arrays, self.replaced = arrays, True


def _larger(array: Int64s) -> Int64s:
    larger = np.full((int(len(array) * _GROWTH) + ROOM_MIN, array.shape[1]), NONE, np.int64)
    larger[: len(array)] = array
    return larger
