"""Recovery of a join, its first half: kept tuples out of footprints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.operators.arrow_words import words_of
from strandline.operators.join.definition import ORDINAL_COLUMN, SIDE_COLUMN, JoinDefinition
from strandline.operators.join.join_windows import SIDES
from strandline.operators.join.tuple_record import HEAD, SAVED, TAIL
from strandline.operators.kernel_arrays import Int64s
from strandline.operators.operator import OFFSET, Saved

if TYPE_CHECKING:
    from strandline.operators.join.join_operator import JoinOperator


def load(join: JoinOperator, newest_first: Iterable[Saved]) -> None:
    """Takes the newest footprint of each tuple into a join that has seen nothing.

    `_offset` is where a footprint stands in the output. What is loaded may be over by now, by a rule that replay
    applies again.
    """
    newest = _newest(newest_first)
    if newest is None:
        return
    tables, positions = [], []
    for side in SIDES:
        mine = newest.filter(pc.equal(newest.column(SIDE_COLUMN), side))
        positions.append(words_of(mine.column(OFFSET), "long")[0])
        tables.append(_tuples(join.definition, side, mine))
        if mine.num_rows:
            join.loaded[side] = int(mine.column(ORDINAL_COLUMN)[-1].as_py())
    join.take_again(tables)
    found = []
    for side, ring in enumerate(join.rings):
        ring[SAVED] = ring[TAIL]
        numbers = ring.live(ring[HEAD], ring[TAIL])
        loaded = words_of(tables[side].column(OFFSET), "long")[0]
        found.append((numbers, positions[side][np.searchsorted(loaded, ring.read(numbers)[0])]))
    join.groups.set_loaded(found, join.definition.group)


def _newest(newest_first: Iterable[Saved]) -> pa.Table | None:
    """The newest footprint of each tuple, in the order of the tuples; None if there is none."""
    parts, seen = [], np.empty(0, np.int64)
    for stretch in newest_first:
        rows = stretch.footprints.take(pc.sort_indices(stretch.footprints, [(OFFSET, "descending")]))
        ordinals: Int64s = words_of(rows.column(ORDINAL_COLUMN), "long")[0]
        _, first = np.unique(ordinals, return_index=True)
        new = first[~np.isin(ordinals[first], seen)]
        if len(new):
            parts.append(rows.take(pa.array(new)))
            seen = np.concatenate([seen, ordinals[new]])
    if not parts:
        return None
    whole = pa.concat_tables(parts)
    return whole.take(pc.sort_indices(whole, [(ORDINAL_COLUMN, "ascending")]))


def _tuples(definition: JoinDefinition, side: int, footprints: pa.Table) -> pa.Table:
    """The input tuples that footprints of one side hold."""
    columns = {c: footprints.column(c) for c, _ in definition.key}
    for name, (column, _) in zip(definition.names[side], definition.columns[side], strict=True):
        columns[column] = footprints.column(name)
    return pa.table({**columns, OFFSET: footprints.column(ORDINAL_COLUMN)})
