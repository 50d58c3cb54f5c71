"""Recovery of a join, its first half: kept tuples out of footprints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.arrow_rows import in_order, portions, rows_of, sizes_at
from strandline.control_columns import OFFSET
from strandline.operators.join.definition import ORDINAL_COLUMN, SIDE_COLUMN, JoinDefinition
from strandline.operators.join.join_windows import SIDES
from strandline.operators.join.tuple_record import HEAD, SAVED, TAIL
from strandline.operators.kernels.arrow_words import validity, words_of
from strandline.operators.operator import TAKEN_IN, Saved
from strandline.operators.unsound_footprint import require_sound, require_values

if TYPE_CHECKING:
    from strandline.operators.join.join_operator import JoinOperator

_ROWS_MIN = 1 << 16
"""Fewer footprints are not worth the look for older ones among them."""


def load(join: JoinOperator, newest_first: Iterable[Saved]) -> None:
    """Takes the newest footprint of each tuple into a join that has seen nothing.

    `_offset` is where a footprint stands in the output. What is loaded may be over by now, by a rule that replay
    applies again.
    """
    newest = newest_footprints(newest_first)
    if newest is None:
        return
    _require_sound(join.definition, newest)
    places = newest.select([SIDE_COLUMN, ORDINAL_COLUMN, OFFSET])
    sides = [places.filter(pc.equal(places.column(SIDE_COLUMN), side)) for side in SIDES]
    sizes = sizes_at(rows_of(newest), np.arange(len(newest)))
    for begin, end in portions(sizes, len(newest)):
        some = newest.slice(begin, end - begin)
        join.take_again([_tuples(join.definition, side, some) for side in SIDES])
    found = []
    for side, ring in enumerate(join.rings):
        ring[SAVED] = ring[TAIL]
        numbers = ring.live(ring[HEAD], ring[TAIL])
        ordinals, positions = (words_of(sides[side].column(c), "long")[0] for c in (ORDINAL_COLUMN, OFFSET))
        if len(ordinals):
            join.loaded[side] = int(ordinals[-1])
        found.append((numbers, positions[np.searchsorted(ordinals, ring.read(numbers)[0])]))
    join.groups.set_loaded(found, join.definition.group)


def _require_sound(definition: JoinDefinition, newest: pa.Table) -> None:
    """Raises UnsoundFootprintError if a footprint is of no side, of no tuple, or of one that was not taken in yet."""
    require_values(newest, [SIDE_COLUMN, ORDINAL_COLUMN, TAKEN_IN])
    sides, ordinals, taken_in, at = (
        newest.column(name).to_numpy() for name in (SIDE_COLUMN, ORDINAL_COLUMN, TAKEN_IN, OFFSET)
    )
    require_sound(np.isin(sides, SIDES), "the tuple is of no side", at)
    require_sound((ordinals >= 0) & (ordinals < taken_in), "the tuple was not taken in yet", at)
    for side in SIDES:
        column = newest.column(definition.names[side][_time_place(definition, side)])
        require_sound((sides != side) | (validity(column) == 1), "the tuple has no time", at)


def _time_place(definition: JoinDefinition, side: int) -> int:
    return [column for column, _ in definition.side_columns[side]].index(definition.times[side])


def newest_footprints(newest_first: Iterable[Saved]) -> pa.Table | None:
    """Returns the newest footprint of each tuple, in the order of the tuples; None if there is none.

    Older ones are dropped whenever as many rows have come as were left before: there may be ten thousand blocks.
    """
    parts: list[pa.Table] = []
    rows, room = 0, _ROWS_MIN
    for stretch in newest_first:
        if stretch.footprints.num_rows:
            parts.append(stretch.footprints)
            rows += stretch.footprints.num_rows
        if rows > room:
            parts = [_distinct(parts)]
            rows = parts[0].num_rows
            room = 2 * rows + _ROWS_MIN
    return _distinct(parts) if parts else None


def _distinct(parts: Sequence[pa.Table]) -> pa.Table:
    """Returns the last row in the output of each tuple, in the order of the tuples."""
    whole = pa.concat_tables(parts)
    ordinals, positions = (words_of(whole.column(name), "long")[0] for name in (ORDINAL_COLUMN, OFFSET))
    order = np.lexsort((positions, ordinals))
    is_last = np.append(np.diff(ordinals[order]) != 0, True)
    return in_order(whole, order[is_last])


def _tuples(definition: JoinDefinition, side: int, newest: pa.Table) -> pa.Table:
    """Returns the input tuples of one side that footprints hold."""
    footprints = newest.filter(pc.equal(newest.column(SIDE_COLUMN), side))
    columns = {c: footprints.column(c) for c, _ in definition.key}
    for name, (column, _) in zip(definition.names[side], definition.side_columns[side], strict=True):
        columns[column] = footprints.column(name)
    return pa.table({**columns, OFFSET: footprints.column(ORDINAL_COLUMN)})
