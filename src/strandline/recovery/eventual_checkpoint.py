"""The eventual checkpoint: the newest footprint of every open window, read back from the operator's own output."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.errors import CorruptManifestError, KeyMissingError
from strandline.log.block import Kind
from strandline.log.columns import KIND, OFFSET
from strandline.log.log import Log
from strandline.log.standing import Standing
from strandline.operators import kernel
from strandline.operators.arrays import Batch, Int64s
from strandline.operators.plan import END, INPUT, Plan
from strandline.operators.plan import START as WINDOW_START
from strandline.operators.record import BY_LIST, BY_START, KEY, KEY_AT, OLDER, OPENED, POS, START, USED, T
from strandline.operators.tuples import NO_BATCH, closed_records, footprint_records, held_bytes, sealed_batch
from strandline.operators.window_state import WindowState
from strandline.wording import plural


def load(log: Log, plan: Plan, partition: int, standing: Standing, end: int) -> WindowState:
    """The windows open at this standing, each as its newest footprint has it; the output ended at `end` then."""
    met = WindowState.empty(plan.width, BY_LIST if plan.is_session else BY_START, timed=False)
    if standing.mode != "none" and standing.extent:
        whole_at = standing.oldest if standing.mode == "instant" else None
        for table in _newest_first(log, plan, partition, end - standing.extent, end):
            _take_in(met, plan, table, whole_at)
    state = _ordered(met, plan)
    expected = {"eventual": standing.open, "instant": standing.saved, "none": 0}[standing.mode]
    if state.open_windows != expected:
        raise CorruptManifestError(
            f"the last {plural(standing.extent, 'tuple')} hold footprints of "
            f"{plural(state.open_windows, 'open window')}, the manifest says {expected}",
            where=f"{log.storage.url}, partition {partition}, offsets {end - standing.extent} to {end - 1}",
            todo="run `strandline verify` on the stream",
        )
    return state


def oldest(state: WindowState) -> tuple[int, int] | None:
    """T and output offset of the oldest footprint that was loaded; None if there is none."""
    if not state.open_windows:
        return None
    record = state.arrays.records[0]  # they are in the order of their footprints
    return int(record[T]), int(record[POS])


def _newest_first(log: Log, plan: Plan, partition: int, first: int, end: int) -> Iterator[pa.Table]:
    log.require_kept(partition, first)
    columns = [*(c for c, _ in plan.key), WINDOW_START, END, *(c for c, _ in plan.control_columns)]
    for block in reversed(list(log.blocks(partition, first, end))):
        begin, until = max(first, block.first), min(end, block.end)
        try:
            table = log.read_block(block, columns).slice(begin - block.first, until - begin)
        except KeyMissingError:  # compacted and collected meanwhile: the same offsets lie elsewhere
            table = pa.concat_tables(log.read(partition, begin, until, columns))
        yield table


def _take_in(met: WindowState, plan: Plan, table: pa.Table, whole_at: int | None) -> None:
    kinds = table.column(KIND)
    is_closed = pc.or_(pc.equal(kinds, int(Kind.RESULT)), pc.equal(kinds, int(Kind.CLOSED)))
    if whole_at is None:
        closed = table.filter(is_closed)
        if closed.num_rows:
            _load(met, plan, *closed_records(plan, closed, held_bytes(met.arrays)), is_closed=True)
    footprints = table.filter(pc.invert(is_closed))
    if whole_at is not None:
        footprints = footprints.filter(pc.equal(footprints.column(INPUT), whole_at))
    if footprints.num_rows:
        newest_first = footprints.take(pc.sort_indices(footprints, [(OFFSET, "descending")]))
        _load(met, plan, *footprint_records(plan, newest_first, held_bytes(met.arrays)), is_closed=False)


def _load(met: WindowState, plan: Plan, records: Int64s, batch: Batch, *, is_closed: bool) -> None:
    if met.room < met.arrays.header[USED] + len(records):
        met.grow(int(met.arrays.header[USED]) + 2 * len(records))
    met.begin()
    take_in = kernel.load_sessions if plan.is_session else kernel.load
    take_in(plan.key_codec.fits_word, met.arrays, batch, records, is_closed, met.trace)
    met.grown = False
    met.keep_bytes(plan.bytes_words, batch)


def _ordered(met: WindowState, plan: Plan) -> WindowState:
    """The open windows alone, in the order of their footprints: state as an operator has it."""
    records = met.arrays.records[: met.arrays.header[USED]]
    if plan.is_session:
        newest = np.zeros(len(records), np.uint8)
        kernel.newest_of_sessions(records, np.lexsort((records[:, START], records[:, OLDER])), newest)
        records = records[newest == 1]
    records = records[records[:, OPENED] >= 0]
    records = records[np.argsort(records[:, POS], kind="stable")]
    room = int(len(records) * 1.25)
    state = WindowState.empty(plan.width, plan.layout, timed=plan.window.has_times, room=max(room, 256))
    batch = sealed_batch(NO_BATCH._replace(keys=records[:, KEY], key_at=records[:, KEY_AT], bytes=met.arrays.bytes))
    kernel.fill(
        plan.window.has_times,
        plan.is_session,
        plan.key_codec.fits_word,
        state.arrays,
        batch,
        records,
        np.argsort(records[:, START], kind="stable"),
        state.trace,
    )
    state.keep_bytes(plan.bytes_words, batch)
    return state
