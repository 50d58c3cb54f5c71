"""Between Arrow tables and what the loops of keyed operators know: tuples in, results and footprints out, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import OFFSET
from strandline.operators.kernels.arrow_words import (
    BYTES,
    FLOATS,
    doubles_of,
    from_bytes,
    from_doubles,
    from_words,
    null_column,
    validity,
    words_of,
)
from strandline.operators.kernels.kernel_arrays import Bytes, Int64s
from strandline.operators.keyed.definition import OPENED, RESULT_TIME, ROWS, STATE, VERSION, KeyedDefinition
from strandline.operators.keyed.record_layout import (
    NULL,
    RESULT_KEY,
    RESULT_KEY_AT,
    RESULT_TIME_WORD,
    WordLayout,
    stored_kind,
)
from strandline.operators.open_windows.arrays import NO_BATCH, Batch, BatchBytes, State, keys_of, sealed_batch
from strandline.operators.open_windows.byte_arena import gathered, held_bytes
from strandline.operators.open_windows.footprint_loading import fill, load, require_few
from strandline.operators.open_windows.record import BY_START, END, FUNCTION, KEY, KEY_AT, POS, START, TIMER, USED, T
from strandline.operators.open_windows.record import OPENED as OPENED_WORD
from strandline.operators.open_windows.record import ROWS as ROWS_WORD
from strandline.operators.open_windows.window_state import ROOM_MIN, WindowState
from strandline.operators.operator import TAKEN_IN, Saved
from strandline.operators.unsound_footprint import require_sound, require_values

_NOWHERE, _NO_BYTES = np.zeros(1, np.int64), np.empty(0, np.uint8)


def _values(column: pa.ChunkedArray, kind: str, pieces: BatchBytes) -> tuple[npt.NDArray[Any], Bytes]:
    """Returns a column as a function has it, and validity."""
    if kind in BYTES:
        return pieces.references(column, kind)
    if kind in FLOATS:
        words, valid = doubles_of(column, kind)
        return words.view(np.float64), valid
    return words_of(column, kind)


def input_batch(definition: KeyedDefinition, table: pa.Table, held: int) -> tuple[Batch, npt.NDArray[Any]]:
    """Returns tuples for the loops, and as records for the function. `held` is how many bytes the state has."""
    program, types = definition.program, dict(definition.types)
    offsets, _ = words_of(table.column(OFFSET), "long")
    times, _ = words_of(table.column(definition.time[0]), definition.time[1])
    batch, pieces = keys_of(definition, table, held)
    rows = np.zeros(len(offsets), program.row)
    for name in program.reads:
        rows[name] = _values(table.column(name), types[name], pieces)[0]
    for name in program.asks:
        rows[NULL + name] = validity(table.column(name)) == 0
    rows.flags.writeable = False
    return sealed_batch(batch._replace(offsets=offsets, times=times, bytes=pieces.bytes)), rows


def _nulls(layout: WordLayout, words: Int64s) -> npt.NDArray[np.bool_]:
    """Returns which columns are null: a row for each row of words."""
    flags = np.ascontiguousarray(words[:, layout.nulls_at : layout.width]).view(np.bool_)
    return flags.reshape(len(words), 8 * (layout.width - layout.nulls_at))[:, : len(layout.columns)]


@dataclass(frozen=True)
class KeyedColumns:
    """Words of results, or records of keys, as columns. They may refer to bytes of the state and of the batch."""

    definition: KeyedDefinition
    state: State
    batch: Batch = NO_BATCH

    def results(self, words: Int64s) -> list[pa.Array]:
        """Returns the columns of results."""
        d = self.definition
        output = self._columns(d.program.results, words, [kind for _, kind in d.function.output])
        key = self._key(words[:, RESULT_KEY], words[:, RESULT_KEY_AT])
        return [*key, self._time(words[:, RESULT_TIME_WORD]), *output]

    def footprints(self, records: Int64s, open_keys: int) -> list[pa.Array]:
        """Returns the columns of footprints: key and last time, no output, then the control columns."""
        d, rows = self.definition, len(records)
        nothing = [null_column(kind, rows) for _, kind in d.function.output]
        words = [records[:, T], np.full(rows, open_keys), records[:, ROWS_WORD], records[:, OPENED_WORD]]
        control = [pa.array(w, pa.int64()) for w in (*words, np.full(rows, d.function.version))]
        state = self._columns(d.program.state, records, [stored_kind(kind) for _, kind in d.function.state])
        key = self._key(records[:, KEY], records[:, KEY_AT])
        return [*key, self._time(records[:, END] - d.reach), *nothing, *control, *state]

    def closings(self, words: Int64s) -> list[pa.Array]:
        """Returns the columns of keys that closed: key, last time, and which tuple had opened it."""
        d, rows = self.definition, len(words)
        control = [null_column(kind, rows) for _, kind in d.control_columns]
        control[[name for name, _ in d.control_columns].index(OPENED)] = pa.array(words[:, 2], pa.int64())
        nothing = [null_column(kind, rows) for _, kind in d.function.output]
        return [*self._key(words[:, 0], words[:, 1]), self._time(words[:, 3] - d.reach), *nothing, *control]

    def key_text(self, word: int, at: int) -> str:
        """Returns a key, for messages."""
        columns = self._key(np.array([word]), np.array([at]))
        names = [name for name, _ in self.definition.key]
        return ", ".join(f"{name}={column[0].as_py()!r}" for name, column in zip(names, columns, strict=True))

    def value(self, words: Int64s, layout: WordLayout, name: str) -> Any:
        """Returns what a column of one row of words says, as plain Python; None if it is null."""
        place = [column for column, _ in layout.columns].index(name)
        if _nulls(layout, words)[0, place]:
            return None
        kind = layout.columns[place][1]
        word = words[:, layout.begin + place]
        if kind in BYTES:
            data = self.text(word)
            return data.decode() if kind == "string" else data
        if kind == "boolean":
            return bool(word[0])
        return float(word.copy().view(np.float64)[0]) if kind in FLOATS else int(word[0])

    def text(self, reference: Int64s) -> bytes:
        """Returns the bytes that one reference refers to."""
        return bytes(gathered(reference, self.state, self.batch)[1])

    def _key(self, words: Int64s, at: Int64s) -> list[pa.Array]:
        codec = self.definition.key_codec
        starts, data = (_NOWHERE, _NO_BYTES) if codec.fits_word else gathered(at, self.state, self.batch)
        return codec.decode(np.ascontiguousarray(words), at, starts, data)

    def _time(self, words: Int64s) -> pa.Array:
        return from_words(words, np.ones(len(words), np.uint8), self.definition.time_type)

    def _columns(self, layout: WordLayout, words: Int64s, kinds: Sequence[str]) -> list[pa.Array]:
        nulls = _nulls(layout, words)
        return [
            self._column(np.ascontiguousarray(words[:, layout.begin + i]), (~nulls[:, i]).astype(np.uint8), kind)
            for i, kind in enumerate(kinds)
        ]

    def _column(self, words: Int64s, valid: Bytes, kind: str) -> pa.Array:
        if kind in BYTES:
            starts, data = gathered(np.where(valid, words, 0), self.state, self.batch)
            return from_bytes(starts, data, valid, kind)
        return from_doubles(words, valid, kind) if kind in FLOATS else from_words(words, valid, kind)


# ---------------------------------------------------------------------- footprints back in: of each open key the newest


def loaded(definition: KeyedDefinition, newest_first: Iterable[Saved]) -> WindowState:
    """Returns the keys that are open after these stretches of the output, each as its newest footprint has it.

    The state is said to be of the oldest version of the function that has a footprint among them.
    """
    met = WindowState.empty(definition.width, BY_START, timed=False)
    version = definition.function.version
    for saved in newest_first:
        closed = saved.closed.filter(pc.is_valid(saved.closed.column(OPENED)))  # a result alone closes nothing
        if closed.num_rows:
            _load(met, definition, *_closed_records(definition, closed, held_bytes(met.arrays)), is_closed=True)
        if saved.footprints.num_rows:
            order = pc.sort_indices(saved.footprints, [(OFFSET, "descending")])
            table = saved.footprints.take(order)
            version = min(version, int(words_of(table.column(VERSION), "long")[0].min()))
            records, batch = _footprint_records(definition, table, held_bytes(met.arrays))
            _require_sound(table, records)
            _load(met, definition, records, batch, is_closed=False)
    state = _ordered(met, definition)
    state.arrays.header[FUNCTION] = version
    return state


def _require_sound(table: pa.Table, records: Int64s) -> None:
    """Raises UnsoundFootprintError if footprints, and the records made of them, hold what no tuples can have made."""
    require_values(table, [RESULT_TIME, TAKEN_IN, ROWS, OPENED, VERSION])
    opened, at = records[:, OPENED_WORD], records[:, POS]
    is_opened = (opened >= 0) & (opened < records[:, T])
    require_sound(is_opened, "the key was opened behind what the footprint holds", at)
    require_sound(records[:, ROWS_WORD] >= 1, "the key has no tuples", at)


def _load(met: WindowState, definition: KeyedDefinition, records: Int64s, batch: Batch, *, is_closed: bool) -> None:
    if met.room < met.arrays.header[USED] + len(records):
        met.grow(int(met.arrays.header[USED]) + 2 * len(records))
    met.begin()
    load(definition.key_codec.fits_word, met.arrays, batch, records, is_closed, met.trace)
    met.grown = False
    met.keep_bytes(definition.bytes_words, batch)


def _ordered(met: WindowState, definition: KeyedDefinition) -> WindowState:
    """Returns the open keys alone, in the order of their footprints: state as an operator has it."""
    records = met.arrays.records[: met.arrays.header[USED]]
    records = records[records[:, OPENED_WORD] >= 0]
    records = records[np.argsort(records[:, POS], kind="stable")]
    require_few(records, 1, fits_word=definition.key_codec.fits_word, held=met.arrays.bytes)
    state = definition.empty_state(max(int(len(records) * 1.25), ROOM_MIN))
    batch = sealed_batch(NO_BATCH._replace(keys=records[:, KEY], key_at=records[:, KEY_AT], bytes=met.arrays.bytes))
    fill(definition.has_times, state.arrays, batch, records, state.trace)
    state.keep_bytes(definition.bytes_words, batch)
    return state


def _footprint_records(definition: KeyedDefinition, table: pa.Table, held: int) -> tuple[Int64s, Batch]:
    """Records as footprints have them, and their keys as a batch; texts refer to its bytes."""
    d, layout = definition, definition.program.state
    records = np.zeros((table.num_rows, d.width), np.int64)
    for word, name in ((T, TAKEN_IN), (POS, OFFSET), (ROWS_WORD, ROWS), (OPENED_WORD, OPENED), (START, OPENED)):
        records[:, word], _ = words_of(table.column(name), "long")
    records[:, END] = words_of(table.column(RESULT_TIME), d.time_type)[0] + d.reach
    records[:, TIMER] = records[:, END]
    batch, pieces = keys_of(d, table, held)
    flags = np.zeros((table.num_rows, 8 * (d.width - layout.nulls_at)), np.bool_)
    for i, (name, kind) in enumerate(d.function.state):
        values, valid = _values(table.column(STATE + name), stored_kind(kind), pieces)
        records[:, layout.begin + i] = values.view(np.int64) if values.dtype == np.float64 else values
        flags[:, i] = valid == 0
    records[:, layout.nulls_at :] = flags.view(np.int64).reshape(table.num_rows, d.width - layout.nulls_at)
    return records, sealed_batch(batch._replace(bytes=pieces.bytes))


def _closed_records(definition: KeyedDefinition, table: pa.Table, held: int) -> tuple[Int64s, Batch]:
    """Returns what closings say of the keys that closed."""
    records = np.zeros((table.num_rows, definition.width), np.int64)
    for word, name in ((POS, OFFSET), (START, OPENED)):
        records[:, word], _ = words_of(table.column(name), "long")
    batch, pieces = keys_of(definition, table, held)
    return records, sealed_batch(batch._replace(bytes=pieces.bytes))
