"""The columns of a barrier's tuples, results and footprints; nothing here looks at rows one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline import arrow_rows
from strandline.arrow_rows import Rows, Sizes, in_order, portions, stacked
from strandline.control_columns import OFFSET
from strandline.operators.barrier.consumed import Consumed
from strandline.operators.barrier.definition import TIME, BarrierDefinition
from strandline.operators.barrier.matching import BYTES_END, Incoming
from strandline.operators.barrier.waiting_state import WaitingState
from strandline.operators.kernels.arrow_words import validity, whole
from strandline.operators.kernels.kernel_arrays import Int64s, sealed
from strandline.operators.operator import TAKEN_IN
from strandline.operators.unsound_footprint import require_sound, require_values


def incoming_of(definition: BarrierDefinition, state: WaitingState, tuples: Sequence[pa.Table]) -> Incoming:
    """Returns the tuples of all inputs in the serialised order, as the kernels take them."""
    held = int(state.arrays.header[BYTES_END])
    words, places_of_keys, data, inputs, places, rows = [], [], [], [], [], []
    for i, table in enumerate(tuples):
        word, key_at, more = definition.key_codec.encode([table.column(name) for name, _ in definition.key], held)
        held += len(more)
        words.append(word)
        places_of_keys.append(key_at)
        data.append(more)
        inputs.append(np.full(len(table), i, np.int64))
        places.append(table.column(OFFSET).to_numpy())
        rows.append(state.payloads[i].end + np.arange(len(table)))
    every = np.concatenate(places)
    order = np.argsort(every, kind="stable")
    columns = (np.concatenate(c)[order] for c in (words, places_of_keys, inputs, places, rows))
    word, key_at, of_input, place, row = (sealed(c) for c in columns)
    return Incoming(word, key_at, sealed(np.concatenate(data)), of_input, place, row)


def results_of(
    definition: BarrierDefinition, state: WaitingState, new: Sequence[Sequence[Rows]], rows: Int64s, places: Int64s
) -> Iterator[list[pa.Array]]:
    """Yields the columns of sets, a line each with row and place of each input's tuple; `new` have just come."""
    sizes: Sizes = 0
    for i, payload in enumerate(state.payloads):
        sizes = sizes + payload.sizes(rows[:, i], new[i])
    for begin, end in portions(sizes, len(rows)):
        yield _results(definition, state, new, rows[begin:end], places[begin:end])


def _results(
    definition: BarrierDefinition, state: WaitingState, new: Sequence[Sequence[Rows]], rows: Int64s, places: Int64s
) -> list[pa.Array]:
    tables = [payload.taken(rows[:, i], new[i]) for i, payload in enumerate(state.payloads)]
    times = [t.column(name) for t, name in zip(tables, definition.times, strict=True)]
    latest = pa.array(np.maximum.reduce([time.cast(pa.int64()).to_numpy() for time in times])).cast(times[0].type)
    key = [tables[0].column(name) for name, _ in definition.key]
    own = [t.column(name) for t, one in zip(tables, definition.inputs, strict=True) for name, _ in one.columns]
    unsaid = pa.nulls(len(rows), pa.int64())
    return [*map(whole, [*key, latest, *own]), unsaid, unsaid, *(pa.array(places[:, i]) for i in range(len(tables)))]


def footprints_of(
    definition: BarrierDefinition,
    state: WaitingState,
    lines: Int64s,
    taken_in: Int64s,
    new: Sequence[Sequence[Rows]] | None = None,
) -> list[pa.Array]:
    """Returns the columns of single tuples, a line each with its input, row and place; rows may be new ones."""
    fresh = new or [()] * len(state.payloads)
    sizes = np.zeros(len(lines), np.int64)
    for i, payload in enumerate(state.payloads):
        mine, most = lines[:, 0] == i, payload.largest(fresh[i])
        if most * len(lines) <= arrow_rows.PORTION_BYTES_MAX:
            sizes[mine] = most  # to know better takes a look at every row
        else:
            sizes[mine] = payload.sizes(lines[mine, 1], fresh[i])
    cut = list(portions(sizes, len(lines))) or [(0, 0)]
    return stacked([_footprints(definition, state, lines[b:e], taken_in[b:e], fresh) for b, e in cut])


def _footprints(
    definition: BarrierDefinition, state: WaitingState, lines: Int64s, taken_in: Int64s, new: Sequence[Sequence[Rows]]
) -> list[pa.Array]:
    tables, ats = [], []
    for i, payload in enumerate(state.payloads):
        there = lines[:, 0] == i
        tables.append(payload.taken(np.where(there, lines[:, 1], -1), new[i]))
        ats.append(pa.array(lines[:, 2], mask=~there))
    key = [pc.coalesce(*(t.column(name) for t in tables)) for name, _ in definition.key]
    time = pc.coalesce(*(t.column(name) for t, name in zip(tables, definition.times, strict=True)))
    own = [t.column(name) for t, one in zip(tables, definition.inputs, strict=True) for name, _ in one.columns]
    control = [pa.array(taken_in), pa.array(np.full(len(lines), state.waiting)), *ats]
    return [*map(whole, [*key, time, *own]), *control]


def dropped_of(
    definition: BarrierDefinition, state: WaitingState, dropped: Int64s, new: Sequence[Sequence[Rows]]
) -> Iterator[tuple[int, pa.Table]]:
    """Yields tuples that were one too many, portion by portion: an input's number and those columns that have values.

    A line each, with its input, row and place, and the place of the one that was too many.
    """
    for i, payload in enumerate(state.payloads):
        mine = dropped[dropped[:, 0] == i]
        for begin, end in portions(payload.sizes(mine[:, 1], new[i]), len(mine)):
            lines = mine[begin:end]
            own = payload.taken(lines[:, 1], new[i])
            columns = dict(zip(definition.payload_names(i), own.columns, strict=True))
            columns[TIME] = own.column(definition.times[i])
            columns[TAKEN_IN], columns[definition.at_columns[i]] = pa.array(lines[:, 3]), pa.array(lines[:, 2])
            schema = pa.schema([f for f in definition.output_schema if f.name in columns])
            yield i, pa.table([columns[f.name] for f in schema], schema=schema)


def closed_of(
    definition: BarrierDefinition, state: WaitingState, dropped: Int64s, new: Sequence[Sequence[Rows]]
) -> list[pa.Array]:
    """Returns the columns that say of the same tuples that they do not wait: keys, times and places."""
    tables, columns = [], {TAKEN_IN: pa.array(dropped[:, 3])}
    names = [name for name, _ in definition.key]
    for i, payload in enumerate(state.payloads):
        there = dropped[:, 0] == i
        tables.append(payload.taken(np.where(there, dropped[:, 1], -1), new[i], [*names, definition.times[i]]))
        columns[definition.at_columns[i]] = pa.array(dropped[:, 2], mask=~there)
    columns |= {name: whole(pc.coalesce(*(t.column(name) for t in tables))) for name in names}
    columns[TIME] = whole(pc.coalesce(*(t.column(name) for t, name in zip(tables, definition.times, strict=True))))
    nothing: dict[pa.DataType, pa.Array] = {}  # one for all columns of a type
    for f in definition.output_schema:
        if f.name not in columns and f.type not in nothing:
            nothing[f.type] = pa.nulls(len(dropped), f.type)
    return [columns[f.name] if f.name in columns else nothing[f.type] for f in definition.output_schema]


def _require_sound(definition: BarrierDefinition, footprints: pa.Table, written: Int64s) -> None:
    """Raises UnsoundFootprintError if a footprint is not of one tuple, or of one that was not taken in yet."""
    require_values(footprints, [TAKEN_IN])
    ats = np.stack([pc.fill_null(footprints.column(name), -1).to_numpy() for name in definition.at_columns])
    require_sound((ats >= 0).sum(axis=0) == 1, "the footprint is not of one tuple", written)
    is_taken = ats.max(axis=0) < footprints.column(TAKEN_IN).to_numpy()
    require_sound(is_taken, "the tuple was not taken in yet", written)
    for i, one in enumerate(definition.inputs):
        time = footprints.column(definition.payload_names(i)[definition.takes[i].index(one.time)])
        require_sound((ats[i] < 0) | (validity(time) == 1), "the tuple has no time", written)


def loaded_tuples(
    definition: BarrierDefinition, footprints: pa.Table, consumed: Consumed
) -> tuple[list[pa.Table], Int64s]:
    """Returns the tuples that wait, in the serialised order, and the output offsets of their newest footprints.

    The footprints come newest first. The tables are as an input gives them.
    """
    tables, places, offsets = [], [], []
    written = footprints.column(OFFSET).to_numpy()
    _require_sound(definition, footprints, written)
    for i, name in enumerate(definition.at_columns):
        at = pc.fill_null(footprints.column(name), -1).to_numpy()
        place, newest = np.unique(at, return_index=True)
        keep = (place >= 0) & ~consumed.holds(i, place)
        rows = in_order(footprints.select(definition.payload_names(i)), newest[keep])
        rows = rows.rename_columns(list(definition.takes[i]))
        tables.append(rows.append_column(OFFSET, pa.array(place[keep])))
        places.append(place[keep])
        offsets.append(written[newest[keep]])
    order = np.argsort(np.concatenate(places), kind="stable")
    return tables, np.concatenate(offsets)[order]
