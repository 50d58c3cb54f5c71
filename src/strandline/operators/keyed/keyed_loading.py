"""Getting keys back from footprints: of each that is open the newest one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.control_columns import OFFSET
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.keyed.definition import OPENED, RESULT_TIME, ROWS, VERSION, KeyedDefinition
from strandline.operators.keyed.keyed_columns import closed_records, footprint_records, versions
from strandline.operators.open_windows.arrays import NO_BATCH, Batch, sealed_batch
from strandline.operators.open_windows.byte_arena import held_bytes
from strandline.operators.open_windows.footprint_loading import fill, load, require_few
from strandline.operators.open_windows.record import BY_START, FUNCTION, KEY, KEY_AT, POS, USED, T
from strandline.operators.open_windows.record import OPENED as OPENED_WORD
from strandline.operators.open_windows.record import ROWS as ROWS_WORD
from strandline.operators.open_windows.window_state import ROOM_MIN, WindowState
from strandline.operators.operator import TAKEN_IN, Saved
from strandline.operators.unsound_footprint import require_sound, require_values


def loaded(definition: KeyedDefinition, newest_first: Iterable[Saved]) -> WindowState:
    """Returns the keys that are open after these stretches of the output, each as its newest footprint has it.

    The state is said to be of the oldest version of the function that has a footprint among them.
    """
    met = WindowState.empty(definition.width, BY_START, timed=False)
    version = definition.function.version
    for saved in newest_first:
        closed = saved.closed.filter(pc.is_valid(saved.closed.column(OPENED)))  # a result alone closes nothing
        if closed.num_rows:
            _load(met, definition, *closed_records(definition, closed, held_bytes(met.arrays)), is_closed=True)
        if saved.footprints.num_rows:
            order = pc.sort_indices(saved.footprints, [(OFFSET, "descending")])
            table = saved.footprints.take(order)
            version = min(version, int(versions(table).min()))
            records, batch = footprint_records(definition, table, held_bytes(met.arrays))
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
