"""Getting windows back from footprints: of each window that is open the newest one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow.compute as pc

from strandline.control_columns import OFFSET
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.session_windows import fill_sessions, load_sessions, newest_of_sessions
from strandline.operators.aggregate.tuples import closed_records, footprint_records
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.open_windows.arrays import NO_BATCH, Batch, sealed_batch
from strandline.operators.open_windows.byte_arena import held_bytes
from strandline.operators.open_windows.footprint_loading import fill, load, require_few
from strandline.operators.open_windows.record import BY_LIST, BY_START, KEY, KEY_AT, OLDER, OPENED, POS, START, USED
from strandline.operators.open_windows.window_state import WindowState
from strandline.operators.operator import Saved


def loaded(definition: AggregateDefinition, newest_first: Iterable[Saved]) -> WindowState:
    """Returns the windows that are open after these stretches of the output, each as its newest footprint has it."""
    met = WindowState.empty(definition.width, BY_LIST if definition.is_session else BY_START, timed=False)
    for saved in newest_first:
        if saved.closed.num_rows:
            records, batch = closed_records(definition, saved.closed, held_bytes(met.arrays))
            _load(met, definition, records, batch, is_closed=True)
        if saved.footprints.num_rows:
            order = pc.sort_indices(saved.footprints, [(OFFSET, "descending")])
            table = saved.footprints.take(order)
            records, batch = footprint_records(definition, table, held_bytes(met.arrays))
            _load(met, definition, records, batch, is_closed=False)
    return _ordered(met, definition)


def _load(met: WindowState, definition: AggregateDefinition, records: Int64s, batch: Batch, *, is_closed: bool) -> None:
    if met.room < met.arrays.header[USED] + len(records):
        met.grow(int(met.arrays.header[USED]) + 2 * len(records))
    met.begin()
    take_in = load_sessions if definition.is_session else load
    take_in(definition.key_codec.fits_word, met.arrays, batch, records, is_closed, met.trace)
    met.grown = False
    met.keep_bytes(definition.bytes_words, batch)


def _ordered(met: WindowState, definition: AggregateDefinition) -> WindowState:
    """Returns the open windows alone, in the order of their footprints: state as an operator has it."""
    records = met.arrays.records[: met.arrays.header[USED]]
    if definition.is_session:
        newest = np.zeros(len(records), np.uint8)
        newest_of_sessions(records, np.lexsort((records[:, START], records[:, OLDER])), newest)
        records = records[newest == 1]
    records = records[records[:, OPENED] >= 0]
    records = records[np.argsort(records[:, POS], kind="stable")]
    if not definition.window.has_times:
        fits_word = definition.key_codec.fits_word
        require_few(records, definition.window.overlap, fits_word=fits_word, held=met.arrays.bytes)
    room = int(len(records) * 1.25)
    state = WindowState.empty(
        definition.width, definition.layout, timed=definition.window.has_times, room=max(room, 256)
    )
    batch = sealed_batch(NO_BATCH._replace(keys=records[:, KEY], key_at=records[:, KEY_AT], bytes=met.arrays.bytes))
    if definition.is_session:
        by_start = np.argsort(records[:, START], kind="stable")
        fill_sessions(definition.key_codec.fits_word, state.arrays, batch, records, by_start, state.trace)
    else:
        fill(definition.window.has_times, state.arrays, batch, records, state.trace)
    state.keep_bytes(definition.bytes_words, batch)
    return state
