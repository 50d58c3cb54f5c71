"""A keyed operator at work on one partition: tuples in, what its function makes of them out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba.core.errors import NumbaError

from strandline.operators.aside_tables import OneTableAside
from strandline.operators.functions.compiled_function import counted
from strandline.operators.kernels.arrow_words import BYTES
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.keyed.definition import RESULT_TIME, KeyedDefinition
from strandline.operators.keyed.failed_call import FailedCall
from strandline.operators.keyed.key_kernels import close_key, find_due, order_due, undo
from strandline.operators.keyed.keyed_columns import KeyedColumns, input_batch, loaded
from strandline.operators.keyed.keyed_kernels import Given
from strandline.operators.keyed.record_layout import (
    CLOSING_WORDS,
    CLOSINGS,
    DONE,
    DUE_END,
    DUE_NEXT,
    EXPIRING,
    FLUSH,
    FULL,
    PLACES,
    REFUSED,
    RESULTS,
    ROW,
    SLOT,
    STATE_BEGIN,
    Sheet,
)
from strandline.operators.keyed.texts import texts_of, with_constants
from strandline.operators.open_windows.arrays import FRESH, NO_BATCH, Outcome
from strandline.operators.open_windows.byte_arena import held_bytes
from strandline.operators.open_windows.record import FUNCTION
from strandline.operators.open_windows.window_state import WindowState
from strandline.operators.open_windows.windows_at_work import OpenWindows
from strandline.operators.operator import Footprints, Limits, OnError, Saved

FUNCTION_RAISED: Final = "function"
"""The reason of tuples and keys for which a function raised, or returned what it must not."""
_ROOM = 1 << 16
"""Results and closings that a loop writes before it returns."""
_NO_ROWS: npt.NDArray[Any] = np.empty(0, np.uint8)


class KeyedOperator(OpenWindows):
    """A definition with the states of its keys."""

    definition: KeyedDefinition
    aside: OneTableAside

    def __init__(self, definition: KeyedDefinition, state: WindowState, on_error: OnError = "stop") -> None:
        super().__init__(definition, state, on_error)
        if not state.open_windows:
            self._is_of_this_version()
        self.must_save_all = bool(state.arrays.header[FUNCTION] != definition.function.version)

    def _nothing_aside(self) -> OneTableAside:
        d = self.definition
        texts = [name for name, kind in d.types if kind in BYTES]
        return OneTableAside(d, f"keyed function {d.function.name}", (RESULT_TIME,), d.time_type, texts)

    def _is_of_this_version(self) -> None:
        self.state.arrays.header[FUNCTION] = self.definition.function.version
        self.must_save_all = False

    @property
    def rows_at_once(self) -> int:
        return self.definition.rows_max

    # ------------------------------------------------------------------ tuples

    def feed(self, tuples: Sequence[pa.Table]) -> Iterator[list[pa.Array]]:
        """Takes in input tuples; yields the results that the function makes of them, in their order."""
        table = self.aside.healthy(tuples, self.on_error, numbered=self.definition.tells_input)
        for first in range(0, table.num_rows, self.rows_at_once):
            yield from TuplePass(self, table.slice(first, self.rows_at_once)).taken_in()
        self._note_taken_in(tuples)

    def advance(self, boundary: int) -> list[pa.Array] | None:
        """Closes the keys that expire at this time or before: what the function makes of each, by time and opening."""
        if self.due is None or self.due > boundary:
            return None
        found = list(TuplePass(self, None).expired(boundary))
        if len(found) < 2:
            return found[0] if found else None
        return [pa.concat_arrays(columns) for columns in zip(*found, strict=True)]

    def replay(self, tuples: Sequence[pa.Table]) -> None:
        aside = self._nothing_aside()
        aside.ignore()  # what was set aside is there already
        table = aside.healthy(tuples, "set_aside", numbered=self.definition.tells_input)
        if table.num_rows and self.open_windows:
            TuplePass(self, table).replayed()

    def note_opened(self, slots: npt.NDArray[np.int32]) -> None:
        """Notes that keys were opened in these records."""
        self._fresh.append(slots)
        self.opened += len(slots)

    # ------------------------------------------------------------------ footprints, and the state in and out

    def save(self, position: int, limits: Limits) -> Footprints:
        saved = super().save(position, limits)
        self._is_of_this_version()
        return saved

    def save_all(self, position: int) -> Footprints:
        saved = super().save_all(position)
        self._is_of_this_version()
        return saved

    def _footprints(self, records: Int64s) -> list[pa.Array]:
        return KeyedColumns(self.definition, self.state.arrays).footprints(records, self.state.open_windows)

    def end(self) -> None:
        """Ends a step: drops bytes that no key refers to any more."""
        self.state.drop_dead_bytes(self.definition.bytes_words)

    def load(self, newest_first: Iterable[Saved]) -> None:
        self.state = loaded(self.definition, newest_first)
        self.must_save_all = bool(self.state.arrays.header[FUNCTION] != self.definition.function.version)


class TuplePass:
    """Some tuples, or none while time passes, on their way through the compiled loops."""

    def __init__(self, operator: KeyedOperator, table: pa.Table | None) -> None:
        self._operator = operator
        self._definition = operator.definition
        self._program = operator.definition.program
        self._table = table
        held = held_bytes(operator.state.arrays)
        batch, self._rows = (NO_BATCH, _NO_ROWS) if table is None else input_batch(self._definition, table, held)
        # While time passes, only a function for keys that expire has a use for texts; and finding them compiles.
        calls = table is not None or self._program.is_clocked
        self._batch, self._constants = with_constants(batch, self._program.constants if calls else [], held)
        self._sheet = self._new_sheet(0 if table is None else table.num_rows)

    def _new_sheet(self, rows: int) -> Sheet:
        emit, room = self._definition.function.emit, min(rows, _ROOM)
        results = np.empty((room + emit, self._program.results.width), np.int64)
        return Sheet(
            results,
            results.view(self._program.results.record).reshape(-1),
            np.empty((room + 2, CLOSING_WORDS), np.int64),
            np.empty(self._definition.width - STATE_BEGIN, np.int64),
            np.empty(self._operator.state.room if self._definition.has_times else 0, np.int32),
            np.zeros(PLACES, np.int64),
        )

    @property
    def _states(self) -> npt.NDArray[Any]:
        """The records of the state as the function sees them."""
        return self._operator.state.arrays.records.view(self._program.state.record).reshape(-1)

    @property
    def _given(self) -> Given:
        texts = texts_of(self._operator.state.arrays, self._batch, self._constants)
        return Given(self._batch, self._rows, texts, self._definition.reach)

    def _call(self, loop: Any, *arguments: Any) -> tuple[int, Exception | None]:
        """Returns why a loop returned: REFUSED with the error, if the user's function raised one.

        Compiling the loop, at its first call, counts as that of a kernel, and not as work.
        """
        state = self._operator.state
        every = (state.arrays, self._states, *arguments, state.trace)
        try:
            with nullcontext() if loop.signatures else counted():
                return int(loop(*every)), None
        except NumbaError:
            raise
        except Exception as problem:  # of the user's making, for this tuple or this key
            return REFUSED, problem

    # ------------------------------------------------------------------ the three ways

    def taken_in(self) -> Iterator[list[pa.Array]]:
        """Takes in the tuples; yields results."""
        operator, state = self._operator, self._operator.state
        nothing = np.empty((0, state.width), np.int64)
        out = Outcome(nothing, np.empty(len(self._batch.keys), np.int32))
        state.trace.counts[FRESH], reason = 0, FULL
        while reason != DONE:
            reason, problem = self._call(self._program.step, self._given, self._sheet, out)
            if reason == REFUSED:
                self._failed(problem)
            elif reason == FULL:
                state.grow()
                if self._definition.has_times:
                    self._sheet = self._sheet._replace(due=np.empty(state.room, np.int32))
            else:
                yield from self._results()
        operator.note_opened(out.fresh[: state.trace.counts[FRESH]].copy())
        state.keep_bytes(self._definition.bytes_words, self._batch)

    def expired(self, boundary: int) -> Iterator[list[pa.Array]]:
        """Closes the keys that are due; yields results."""
        state, at, reason = self._operator.state, self._sheet.at, FLUSH
        find_due(state.arrays, state.trace, boundary, self._sheet.due, at)
        due = int(at[DUE_END])
        if due > 1 and self._program.is_clocked:
            order_due(state.arrays, self._sheet.due, due)
        kept = self._sheet.due[:due].copy()
        self._sheet = self._new_sheet(due)._replace(due=kept, at=at)
        while reason != DONE:
            reason, problem = self._call(self._program.expire_due, self._sheet, self._given.texts)
            if reason == REFUSED:
                self._failed(problem)
            else:
                yield from self._results()

    def replayed(self) -> None:
        """Takes tuples into keys whose footprints did not have them; those that failed before fail again."""
        state, at = self._operator.state, self._sheet.at
        while self._call(self._program.replay, self._given, self._sheet)[0] != DONE:
            undo(state.arrays, state.trace, self._sheet.before, at[SLOT])
            at[ROW] += 1
        if len(self._definition.bytes_words):
            state.grown = True  # a replay leaves no trace of the keys it touched: look at all of them
            state.keep_bytes(self._definition.bytes_words, self._batch)

    # ------------------------------------------------------------------ what comes of it

    def _columns(self) -> KeyedColumns:
        return KeyedColumns(self._definition, self._operator.state.arrays, self._batch)

    def _results(self) -> Iterator[list[pa.Array]]:
        """Takes results and closings from the sheet."""
        at, columns = self._sheet.at, self._columns()
        closings, results = int(at[CLOSINGS]), int(at[RESULTS])
        at[CLOSINGS] = at[RESULTS] = 0
        if closings:
            self._operator.aside.add_closed(columns.closings(self._sheet.closings[:closings]))
        if results:
            yield columns.results(self._sheet.results[:results])

    def _failed(self, problem: Exception | None) -> None:
        """Sets the tuple or key at hand aside, its state as it was before the call; or raises InputError."""
        operator, state, at = self._operator, self._operator.state, self._sheet.at
        slot = int(at[SLOT])
        call = FailedCall(self._definition, self._columns(), self._sheet, problem)
        record = state.arrays.records[slot : slot + 1].copy()
        if operator.on_error == "stop":
            row = None if at[EXPIRING] else self._rows[at[ROW]]
            offset = None if at[EXPIRING] else int(self._batch.offsets[at[ROW]])
            raise call.error(record, row, offset)
        if at[EXPIRING]:
            record[0, STATE_BEGIN:] = self._sheet.before
            operator.aside.add_windows(FUNCTION_RAISED, self._columns().footprints(record, state.open_windows))
            close_key(state.arrays, state.trace, slot, self._sheet.closings, at)
            at[DUE_NEXT] += 1
            at[EXPIRING] = 0
            return
        assert self._table is not None
        operator.aside.add_tuples(FUNCTION_RAISED, self._table.slice(int(at[ROW]), 1))
        undo(state.arrays, state.trace, self._sheet.before, slot)
        at[ROW] += 1
