"""The operator at work on one partition: tuples in, results and footprints out. A step is a function of its input."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from strandline.errors import AggregateOverflowError
from strandline.operators import kernel
from strandline.operators.arrays import FRESH, RESULTS, WHERE, Batch, Int32s, Int64s
from strandline.operators.plan import Plan
from strandline.operators.record import END, INPUT, OPENED, POS, START, TIMERS, USED, N, T
from strandline.operators.tuples import NO_BATCH, Columns, held_bytes, input_batch, key_and_window
from strandline.operators.window_state import WindowState

_ROWS_MAX = 1 << 20
"""Rows that go through a kernel at once: bounds what a step needs beside the state."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a G-check is due: the oldest window gets one while any of these is exceeded, at most `budget` of them."""

    extent: float = math.inf
    replay: float = math.inf
    cost: float = math.inf
    extent_cost: float = 0.0
    replay_cost: float = 0.0
    budget: int = 1 << 62


@dataclass(frozen=True, slots=True)
class Footprints:
    """What a step leaves of its state: columns of G-opens, then of G-checks."""

    opened: list[pa.Array]
    checked: list[pa.Array]


@dataclass(frozen=True, slots=True)
class Extent:
    """How far back the eventual checkpoint reaches."""

    open_windows: int
    oldest_input: int
    """T: replay begins here."""
    oldest_output: int
    """The output offset of the oldest footprint."""


class Operator:
    """A plan with its open windows."""

    def __init__(self, plan: Plan, state: WindowState) -> None:
        self.plan = plan
        self.state = state
        self._fresh: list[Int32s] = []

    @classmethod
    def new(cls, plan: Plan) -> Operator:
        """Without windows."""
        return cls(plan, WindowState.empty(plan.width, timed=plan.window.has_times))

    @property
    def input_end(self) -> int:
        """The state holds the input tuples before this offset."""
        return int(self.state.arrays.header[INPUT])

    def begin(self) -> None:
        """Begins a step."""
        self.state.begin()
        self._fresh = []

    # ------------------------------------------------------------------ tuples

    def feed(self, table: pa.Table, *, emit: bool = True) -> Iterator[list[pa.Array]]:
        """Takes in input tuples; the results of the count windows they complete."""
        rows = max(1, _ROWS_MAX // (self.plan.window.overlap if self.plan.window.kind == "time" else 1))
        for first in range(0, table.num_rows, rows):
            batch = input_batch(self.plan, table.slice(first, rows), held_bytes(self.state.arrays))
            records = self._run(batch)
            if emit and len(records):
                yield Columns(self.plan, records, self.state.arrays, batch).results()
            self.state.keep_bytes(self.plan.bytes_words, batch)
            self.state.arrays.header[INPUT] = int(batch.offsets[-1]) + 1

    def _run(self, batch: Batch) -> Int64s:
        window, state = self.plan.window, self.state
        rows = len(batch.keys)
        by_count = window.kind == "count"
        results = np.empty((rows if by_count else 0, self.plan.width), np.int64)
        fresh = np.empty(rows if by_count else rows * (window.overlap + 1), np.int32)
        trace_counts = state.trace.counts
        trace_counts[RESULTS] = trace_counts[FRESH] = 0
        row = 0
        while True:
            row, code = self.plan.step(
                window.size, window.advance, state.arrays, batch, row, results, fresh, state.trace
            )
            if code == kernel.DONE:
                break
            if code == kernel.OVERFLOW:
                raise self._overflow(batch, int(state.trace.counts[WHERE]))
            state.grow(state.room + window.overlap)
        self._fresh.append(fresh[: state.trace.counts[FRESH]].copy())
        return results[: state.trace.counts[RESULTS]]

    def _overflow(self, batch: Batch, slot: int) -> AggregateOverflowError:
        sums = [a.name for a in self.plan.accumulators if a.op is not None and a.op.name == "SUM_INT"]
        return AggregateOverflowError(
            f"an integer sum ({', '.join(sums)}) does not fit 64 bits any more",
            where=f"window {key_and_window(self.plan, self.state.arrays, batch, slot)}",
            todo="sum a double or smaller units, or use smaller windows; the stream stays as it was",
        )

    def close_until(self, boundary: int) -> list[pa.Array] | None:
        """Closes windows that end at this time or before: their results, ordered by end, then by opening."""
        state = self.state
        due = int(kernel.count_due(state.arrays, boundary, np.empty(128, np.int64)))
        if due == 0:
            return None
        records = np.empty((due, self.plan.width), np.int64)
        state.trace.counts[RESULTS] = 0
        kernel.close_due(self.plan.is_session, state.arrays, boundary, records, state.trace)
        records = records[: state.trace.counts[RESULTS]]
        if not len(records):
            return None
        order = np.lexsort((records[:, START], records[:, OPENED], records[:, END]))
        return Columns(self.plan, records[order], state.arrays, NO_BATCH).results()

    @property
    def due(self) -> int | None:
        """No window that is open ends before this time; None if there is none, or windows end by count."""
        arrays = self.state.arrays
        return int(arrays.timers[0, 0]) if arrays.header[TIMERS] > 0 else None

    # ------------------------------------------------------------------ footprints

    def save(self, position: int, limits: Limits) -> Footprints:
        """Footprints of the windows that opened and stay open, then of the oldest ones, as the limits ask."""
        state, plan, begin = self.state, self.plan, position
        fresh = np.concatenate(self._fresh) if self._fresh else np.empty(0, np.int32)
        chosen = np.empty(len(fresh), np.int32)
        count = int(kernel.still_open(state.arrays, fresh, chosen))
        opened = self._save_these(chosen[len(chosen) - count :], position)
        position += count
        self.state.reserve_queue(state.open_windows)
        records = np.empty((state.open_windows, plan.width), np.int64)
        written = int(
            kernel.save_oldest(
                state.arrays,
                state.trace,
                self.input_end,
                begin,
                position,
                records,
                float(limits.extent),
                float(limits.replay),
                float(limits.cost),
                float(limits.extent_cost),
                float(limits.replay_cost),
                limits.budget,
            )
        )
        self._fresh = []
        saved = Footprints(opened, self._footprints(records[:written]))
        state.drop_dead_bytes(plan.bytes_words)
        return saved

    def save_all(self, position: int) -> Footprints:
        """A footprint of every window: an instant checkpoint."""
        records = self.state.arrays.records[: self.state.arrays.header[USED]]
        slots = np.flatnonzero(records[:, OPENED] >= 0)
        order = np.lexsort((records[slots, START], records[slots, OPENED]))
        self._fresh = []
        nothing = self._footprints(np.empty((0, self.plan.width), np.int64))
        saved = Footprints(nothing, self._save_these(slots[order].astype(np.int32), position))
        self.state.drop_dead_bytes(self.plan.bytes_words)
        return saved

    def _save_these(self, slots: Int32s, position: int) -> list[pa.Array]:
        self.state.reserve_queue(len(slots))
        records = np.empty((len(slots), self.plan.width), np.int64)
        kernel.save_open(self.state.arrays, self.state.trace, slots, self.input_end, position, records)
        return self._footprints(records)

    def _footprints(self, records: Int64s) -> list[pa.Array]:
        return Columns(self.plan, records, self.state.arrays, NO_BATCH).footprints(self.state.open_windows)

    def mark_unsaved(self) -> None:
        """Treats every window without a footprint as just opened (after a policy that wrote none)."""
        records = self.state.arrays.records[: self.state.arrays.header[USED]]
        found = np.flatnonzero((records[:, OPENED] >= 0) & (records[:, T] == -1))
        self._fresh.append(found[np.lexsort((records[found, START], records[found, OPENED]))].astype(np.int32))

    def extent(self, position: int) -> Extent:
        """Where recovery would begin if the output ended at this offset."""
        slot = int(kernel.oldest(self.state.arrays))
        if slot < 0:
            return Extent(self.state.open_windows, self.input_end, position)
        record = self.state.arrays.records[slot]
        return Extent(int(self.state.arrays.header[N]), int(record[T]), int(record[POS]))
