"""Operators whose state is open windows in records: footprints, and the state in and out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strandline.control_columns import OFFSET
from strandline.operators.aside_tables import AsideTables
from strandline.operators.kernels.kernel_arrays import Int32s, Int64s
from strandline.operators.open_windows.record import INPUT, LISTED, NONE, OPENED, POS, TICKET, TIMERS, USED, T
from strandline.operators.open_windows.window_footprints import (
    LimitBounds,
    Page,
    SlowBounds,
    note_openings,
    oldest,
    save_oldest,
    save_open,
    save_slow,
    still_open,
)
from strandline.operators.open_windows.window_state import WindowState
from strandline.operators.operator import Definition, Extent, Footprints, Limits, OnError, Operator, StateImage


class OpenWindows(Operator):
    """The open windows of a partition, for an operator that says how they are written as columns."""

    def __init__(self, definition: Definition, state: WindowState, on_error: OnError = "stop") -> None:
        self.definition = definition
        self.state = state
        self.on_error = on_error
        self.aside = self._nothing_aside()
        self.opened = 0
        self._fresh: list[Int32s] = []

    def _nothing_aside(self) -> AsideTables:
        """Returns tables for the tuples and windows that a step sets aside."""
        raise NotImplementedError

    def begin(self) -> None:
        self.state.begin()
        self.aside = self._nothing_aside()
        self.opened = 0
        self._fresh = []

    @property
    def input_end(self) -> int:
        """The state holds the input tuples before this offset."""
        return int(self.state.arrays.header[INPUT])

    @input_end.setter
    def input_end(self, offset: int) -> None:
        self.state.arrays.header[INPUT] = offset

    def _note_taken_in(self, tuples: Sequence[pa.Table]) -> None:
        """Notes that the state holds all of these tuples."""
        self.input_end = max((int(t.column(OFFSET)[-1].as_py()) + 1 for t in tuples if len(t)), default=self.input_end)

    @property
    def open_windows(self) -> int:
        return self.state.open_windows

    @property
    def due(self) -> int | None:
        """No window that is open ends before this time; None if there is none, or windows end by count."""
        arrays = self.state.arrays
        return int(arrays.timers[0, 0]) if arrays.header[TIMERS] > 0 else None

    # ------------------------------------------------------------------ footprints

    def save(self, position: int, limits: Limits) -> Footprints:
        """Returns footprints of the windows that opened and stay open, then of the oldest ones, as the limits ask."""
        state, begin = self.state, position
        fresh = np.concatenate(self._fresh) if self._fresh else np.empty(0, np.int32)
        chosen = np.empty(len(fresh), np.int32)
        count = int(still_open(state.arrays, fresh, chosen))
        chosen = chosen[len(chosen) - count :]
        new = chosen[state.arrays.records[chosen, POS] == NONE]
        opened = self._save_these(chosen, position)
        position += count
        self.state.reserve_queue(state.open_windows)
        records = np.empty((state.open_windows, self.state.width), np.int64)
        page = Page(records, position, self.input_end)
        bounds = LimitBounds.of(limits)
        written = int(save_oldest(state.arrays, state.trace, page, 0, begin, bounds))
        if limits.slow is None:
            state.arrays.header[LISTED] = 0
        else:
            written += self._save_slow(page, written, new, limits)
            written = int(save_oldest(state.arrays, state.trace, page, written, begin, bounds))  # of a longer output
        self._fresh = []
        return Footprints(opened, self._footprints(records[:written]))

    def _save_slow(self, page: Page, written: int, new: Int32s, limits: Limits) -> int:
        """Saves slow windows behind what is on the page; how many. `new` ones have their first footprint now."""
        state = self.state
        if not state.arrays.header[LISTED]:
            state.list_openings()
        else:
            state.reserve_openings(len(new))
            note_openings(state.arrays, new)
        return int(save_slow(state.arrays, state.trace, page, written, SlowBounds.of(limits, page.position, written)))

    def save_all(self, position: int) -> Footprints:
        return Footprints(self.save_nothing().opened, self._save_these(self.state.open_slots(), position))

    def save_nothing(self) -> Footprints:
        nothing = self._footprints(np.empty((0, self.state.width), np.int64))
        self.state.arrays.header[LISTED] = 0
        self._fresh = []
        return Footprints(nothing, nothing)

    def _save_these(self, slots: Int32s, position: int) -> list[pa.Array]:
        self.state.reserve_queue(len(slots))
        records = np.empty((len(slots), self.state.width), np.int64)
        save_open(self.state.arrays, self.state.trace, slots, Page(records, position, self.input_end))
        return self._footprints(records)

    def _footprints(self, records: Int64s) -> list[pa.Array]:
        """Returns these records in the columns of footprints."""
        raise NotImplementedError

    def mark_unsaved(self, *, every: bool = False) -> None:
        records, slots = self.state.arrays.records, self.state.open_slots()
        if every:
            records[slots, T] = records[slots, TICKET] = NONE
            self.state.grown = True  # nothing less than the whole state tells it
        self._fresh.append(slots[records[slots, T] == NONE])

    def extent(self, position: int) -> Extent:
        return Extent(self.open_windows, *(self.oldest_footprint() or (self.input_end, position)))

    def oldest_footprint(self) -> tuple[int, int] | None:
        slot = int(oldest(self.state.arrays))
        if slot < 0:
            return None
        record = self.state.arrays.records[slot]
        return int(record[T]), int(record[POS])

    def windows(self, *, now: bool = False) -> list[pa.Array]:
        records = self.state.arrays.records[: self.state.arrays.header[USED]]
        records = records[records[:, OPENED] >= 0]
        if now:
            records[:, T] = self.input_end
        return self._footprints(records)

    def image(self) -> StateImage:
        return self.state.image()
