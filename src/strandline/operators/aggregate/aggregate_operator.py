"""A windowed aggregation at work on one partition: tuples in, results and footprints out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from strandline.errors import AggregateOverflowError
from strandline.operators.aggregate.aggregates import Op
from strandline.operators.aggregate.definition import END as WINDOW_END
from strandline.operators.aggregate.definition import START as WINDOW_START
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.sketches import room_for_hits, sketched
from strandline.operators.aggregate.tuples import Columns, input_batch, key_and_window
from strandline.operators.aggregate.window_loading import loaded
from strandline.operators.aside_tables import OneTableAside
from strandline.operators.kernels.arrow_words import BYTES
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.open_windows.arrays import DONE, FRESH, NO_BATCH, OVERFLOWS, RESULTS, Batch, Outcome
from strandline.operators.open_windows.byte_arena import held_bytes
from strandline.operators.open_windows.record import END, OPENED, START
from strandline.operators.open_windows.timers import count_due
from strandline.operators.open_windows.windows_at_work import OpenWindows
from strandline.operators.operator import Saved

_ROWS_MAX = 1 << 20
"""Rows that go through a kernel at once: bounds what a step needs beside the state."""
_WINDOWS_MAX = 1 << 17
"""Windows that rows which go through a kernel at once may open. Few, so that those which are over close soon."""


class AggregateOperator(OpenWindows):
    """A definition with its open windows."""

    definition: AggregateDefinition
    aside: OneTableAside

    def _nothing_aside(self) -> OneTableAside:
        d = self.definition
        texts = [a.column for a in d.accumulators if a.is_bytes and a.type in BYTES and a.column is not None]
        time_type = d.time_type if d.has_times else None
        return OneTableAside(d, f"{d.window.kind} window", (WINDOW_START, WINDOW_END), time_type, texts)

    @property
    def rows_at_once(self) -> int:
        if self.definition.window.has_times or self.definition.sketches:
            return max(1, _WINDOWS_MAX // self.definition.window.overlap)
        return _ROWS_MAX

    # ------------------------------------------------------------------ tuples

    def feed(self, tuples: Sequence[pa.Table]) -> Iterator[list[pa.Array]]:
        table = self.aside.healthy(tuples, self.on_error, self.definition.own_shaping)
        for first in range(0, table.num_rows, self.rows_at_once):
            piece = table.slice(first, self.rows_at_once)
            closed, batch = self._run(input_batch(self.definition, piece, held_bytes(self.state.arrays)))
            records = self._results(closed, batch)
            if len(records):
                yield Columns(self.definition, records, self.state.arrays, batch).results()
            self._keep_bytes(batch)
        self._note_taken_in(tuples)

    def _keep_bytes(self, batch: Batch) -> None:
        """Takes the bytes of a batch over that windows refer to."""
        self.state.keep_bytes(self.definition.bytes_words, batch)
        if self.definition.sketches:  # each piece leaves new ones; a step may have many pieces
            self.state.drop_dead_bytes(self.definition.bytes_words)

    def _run(self, batch: Batch) -> tuple[Int64s, Batch]:
        """Takes in the batch; returns the records of windows that closed, and the batch with all that they refer to."""
        window, state = self.definition.window, self.state
        rows = len(batch.keys)
        by_count = window.kind == "count"
        out = Outcome(
            results=np.empty((rows if by_count else 0, self.definition.width), np.int64),
            fresh=np.empty(rows if by_count else rows * (window.overlap + 1), np.int32),
        )
        state.trace.counts[RESULTS] = state.trace.counts[FRESH] = 0
        state.trace = room_for_hits(state.trace, self.definition, rows)
        row = 0
        while True:
            row, code = self.definition.step(window.reach, state.arrays, batch, row, out, state.trace)
            if code == DONE:
                break
            state.grow(state.room + window.overlap)
        self._fresh.append(out.fresh[: state.trace.counts[FRESH]].copy())
        self.opened += len(self._fresh[-1])
        results = out.results[: state.trace.counts[RESULTS]]
        if state.trace.counts[OVERFLOWS] and self.on_error == "stop":
            self._refuse_overflow(results, batch)
        if self.definition.sketches:
            batch = sketched(self.definition, state.arrays, batch, state.trace, results)
        return results, batch

    def _results(self, records: Int64s, batch: Batch) -> Int64s:
        """Returns the closed windows with a result; the others go to `aside`, or AggregateOverflowError is raised."""
        overflowed = self.definition.overflowed(records)
        if not overflowed.any():
            return records
        if self.on_error == "stop":
            self._refuse_overflow(records, batch)
        unknown = Columns(self.definition, records[overflowed], self.state.arrays, batch).without_result()
        self.aside.add_windows("overflow", unknown)
        self.aside.add_closed(unknown[: len(self.definition.result_columns)])
        return records[~overflowed]

    def _refuse_overflow(self, closed: Int64s, batch: Batch) -> None:
        """Raises with the first window that overflowed, among those just closed or those that are open."""
        every = np.concatenate([closed, self.state.arrays.records[self.state.open_slots()]])
        found = every[self.definition.overflowed(every)][:1]
        sums = [a for a in self.definition.accumulators if a.count_place is not None]
        fits = [s for s, op in (("64 bits", Op.SUM_INT), ("38 digits", Op.SUM_WIDE)) if any(a.op is op for a in sums)]
        raise AggregateOverflowError(
            f"a sum ({', '.join(a.name for a in sums)}) does not fit {' or '.join(fits)} any more",
            where=f"window {key_and_window(self.definition, found, self.state.arrays, batch)}",
            todo='sum a double or smaller units, use smaller windows, or start(…, on_error="set_aside"); '
            "the stream stays as it was",
        )

    def advance(self, boundary: int) -> list[pa.Array] | None:
        """Closes windows that end at this time or before: their results, ordered by end, then by opening."""
        state = self.state
        due = int(count_due(state.arrays, boundary, np.empty(128, np.int64)))
        if due == 0:
            return None
        records = np.empty((due, self.definition.width), np.int64)
        state.trace.counts[RESULTS] = 0
        self.definition.close_due(state.arrays, boundary, records, state.trace)
        records = records[: state.trace.counts[RESULTS]]
        order = np.lexsort((records[:, START], records[:, OPENED], records[:, END]))
        records = self._results(records[order], NO_BATCH)
        return Columns(self.definition, records, state.arrays, NO_BATCH).results() if len(records) else None

    def replay(self, tuples: Sequence[pa.Table]) -> None:
        table = self.aside.healthy(tuples, self.on_error, self.definition.own_shaping)
        if not table.num_rows:
            return
        batch = input_batch(self.definition, table, held_bytes(self.state.arrays))
        self.state.trace = room_for_hits(self.state.trace, self.definition, len(batch.keys))
        self.definition.replay(self.definition.window.reach, self.state.arrays, batch, self.state.trace)
        if self.definition.sketches:
            nothing = np.empty((0, self.definition.width), np.int64)
            batch = sketched(self.definition, self.state.arrays, batch, self.state.trace, nothing)
        if len(self.definition.bytes_words):
            self.state.grown = True  # a replay leaves no trace of the windows it touched: look at all of them
            self._keep_bytes(batch)

    # ------------------------------------------------------------------ footprints

    def _footprints(self, records: Int64s) -> list[pa.Array]:
        return Columns(self.definition, records, self.state.arrays, NO_BATCH).footprints(self.state.open_windows)

    def end(self) -> None:
        self.state.drop_dead_bytes(self.definition.bytes_words)

    def load(self, newest_first: Iterable[Saved]) -> None:
        self.state = loaded(self.definition, newest_first)
