"""The columns of a barrier's tuples, results and footprints, and of what it sets aside.

Nothing here looks at rows one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline import arrow_rows
from strandline.arrow_rows import Rows, Sizes, in_order, portions, stacked
from strandline.control_columns import OFFSET
from strandline.operators.aside_tables import VALUE, AsideTables, long_keys
from strandline.operators.barrier.consumed import Consumed
from strandline.operators.barrier.definition import TIME, BarrierDefinition
from strandline.operators.barrier.matching import Incoming
from strandline.operators.barrier.waiting_state import WaitingState
from strandline.operators.kernels.arrow_words import validity, whole
from strandline.operators.kernels.kernel_arrays import Int64s, sealed
from strandline.operators.open_windows.arrays import NO_BATCH
from strandline.operators.open_windows.byte_arena import held_bytes
from strandline.operators.operator import TAKEN_IN, OnError
from strandline.operators.unsound_footprint import require_sound, require_values


def incoming_of(definition: BarrierDefinition, state: WaitingState, tuples: Sequence[pa.Table]) -> Incoming:
    """Returns the tuples of all inputs in the serialised order, as the kernels take them."""
    held = held_bytes(state.keys.arrays)
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
    order = np.argsort(np.concatenate(places), kind="stable")
    columns = (np.concatenate(c)[order] for c in (words, places_of_keys, inputs, places, rows))
    word, key_at, of_input, place, row = (sealed(c) for c in columns)
    batch = NO_BATCH._replace(keys=word, key_at=key_at, offsets=place, bytes=sealed(np.concatenate(data)))
    return Incoming(batch, of_input, row)


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
    tables = [
        payload.taken(np.where(lines[:, 0] == i, lines[:, 1], -1), new[i]) for i, payload in enumerate(state.payloads)
    ]
    own = [t.column(name) for t, one in zip(tables, definition.inputs, strict=True) for name, _ in one.columns]
    control = [pa.array(taken_in), pa.array(np.full(len(lines), state.open_windows)), *_places(definition, lines)]
    return [*_key_and_time(definition, tables), *map(whole, own), *control]


def _key_and_time(definition: BarrierDefinition, tables: Sequence[pa.Table]) -> list[pa.Array]:
    """Returns the keys and times of single tuples; each is in one of the tables, and a row of nulls in the others."""
    each = [[name] * len(tables) for name, _ in definition.key] + [definition.times]
    return [whole(pc.coalesce(*(t.column(c) for t, c in zip(tables, names, strict=True)))) for names in each]


def _places(definition: BarrierDefinition, lines: Int64s) -> list[pa.Array]:
    """Returns the control columns with the places of single tuples, a column an input."""
    return [pa.array(lines[:, 2], mask=lines[:, 0] != i) for i in range(len(definition.inputs))]


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
    keys = [name for name, _ in definition.key]
    tables = [
        payload.taken(np.where(dropped[:, 0] == i, dropped[:, 1], -1), new[i], [*keys, definition.times[i]])
        for i, payload in enumerate(state.payloads)
    ]
    columns = dict(zip([*keys, TIME], _key_and_time(definition, tables), strict=True))
    columns |= dict(zip(definition.at_columns, _places(definition, dropped), strict=True))
    columns[TAKEN_IN] = pa.array(dropped[:, 3])
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


REASON: Final = "barrier"
"""The reason of tuples of whose key more waited than may."""


class BarrierAside(AsideTables):
    """The tuples that one step has set aside, in the columns of footprints.

    More of their key waited than may, or they cannot be computed before the barrier.
    """

    def __init__(self, definition: BarrierDefinition) -> None:
        self._definition = definition
        super().__init__("barrier")

    advice = (
        "all of one time is taken in by one step: let fewer tuples of a key have the same time, give the barrier a "
        "larger at_most, or drop columns with select() before it"
    )

    def add(self, number: int, tuples: pa.Table) -> None:
        """Adds tuples of an input, of whose key more waited than may; they come in columns of footprints."""
        name = self._definition.inputs[number].name
        first = tuples.column(self._definition.at_columns[number])[0].as_py()
        self._keep(REASON, tuples, f"input {name}, place {first}")

    def healthy(self, tuples: Sequence[pa.Table], on_error: OnError) -> list[pa.Table]:
        """Returns the tuples, a table an input, that a barrier can take; keeps the others, or raises InputError."""
        found = []
        for number, (table, one) in enumerate(zip(tuples, self._definition.inputs, strict=True)):
            unfit, place = long_keys(table, self._definition), f"input {one.name}, place"
            found.append(self._fit(table, unfit, on_error, partial(self._add_whole, number), place))
        return found

    def _add_whole(self, number: int, reason: str, tuples: pa.Table) -> None:
        one = self._definition.inputs[number]
        self._add(reason, number, tuples, {f"{one.name}_{name}": tuples.column(name) for name, _ in one.columns})

    def add_unmade(self, number: int, tuples: pa.Table) -> None:
        """Adds tuples of an input that cannot be computed before the barrier: their keys, times and places."""
        one = self._definition.inputs[number]
        self._add(VALUE, number, tuples, {f"{one.name}_{one.time}": tuples.column(one.time)})

    def _add(self, reason: str, number: int, tuples: pa.Table, own: Mapping[str, pa.ChunkedArray]) -> None:
        if self.is_ignoring:
            return
        d, one = self._definition, self._definition.inputs[number]
        known = {name: tuples.column(name) for name, _ in d.key} | {TIME: tuples.column(one.time), **own}
        known |= {d.at_columns[number]: tuples.column(OFFSET)}
        schema = pa.schema([f for f in d.output_schema if f.name in known])
        table = pa.table([known[f.name].cast(f.type) for f in schema], schema=schema)
        self._keep(reason, table, f"input {one.name}, place {tuples.column(OFFSET)[0].as_py()}")
