"""Getting keys back from footprints: of each that is open the newest one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow.compute as pc

from strandline.operators.kernel_arrays import Int64s
from strandline.operators.keyed.definition import OPENED, KeyedDefinition
from strandline.operators.keyed.keyed_columns import closed_records, footprint_records, versions
from strandline.operators.open_windows.arrays import NO_BATCH, Batch, sealed_batch
from strandline.operators.open_windows.byte_arena import held_bytes
from strandline.operators.open_windows.footprint_loading import fill, load
from strandline.operators.open_windows.record import BY_START, FUNCTION, KEY, KEY_AT, POS, USED
from strandline.operators.open_windows.record import OPENED as OPENED_WORD
from strandline.operators.open_windows.window_state import ROOM_MIN, WindowState
from strandline.operators.operator import OFFSET, Saved


def loaded(definition: KeyedDefinition, newest_first: Iterable[Saved]) -> WindowState:
    """The keys that are open after these stretches of the output, each as its newest footprint has it.

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
            _load(met, definition, *footprint_records(definition, table, held_bytes(met.arrays)), is_closed=False)
    state = _ordered(met, definition)
    state.arrays.header[FUNCTION] = version
    return state


def _load(met: WindowState, definition: KeyedDefinition, records: Int64s, batch: Batch, *, is_closed: bool) -> None:
    if met.room < met.arrays.header[USED] + len(records):
        met.grow(int(met.arrays.header[USED]) + 2 * len(records))
    met.begin()
    load(definition.key_codec.fits_word, met.arrays, batch, records, is_closed, met.trace)
    met.grown = False
    met.keep_bytes(definition.bytes_words, batch)


def _ordered(met: WindowState, definition: KeyedDefinition) -> WindowState:
    """The open keys alone, in the order of their footprints: state as an operator has it."""
    records = met.arrays.records[: met.arrays.header[USED]]
    records = records[records[:, OPENED_WORD] >= 0]
    records = records[np.argsort(records[:, POS], kind="stable")]
    state = definition.empty_state(max(int(len(records) * 1.25), ROOM_MIN))
    batch = sealed_batch(NO_BATCH._replace(keys=records[:, KEY], key_at=records[:, KEY_AT], bytes=met.arrays.bytes))
    fill(definition.has_times, state.arrays, batch, records, state.trace)
    state.keep_bytes(definition.bytes_words, batch)
    return state
