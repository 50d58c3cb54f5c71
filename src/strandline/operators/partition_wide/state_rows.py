"""A saved state in the columns of footprints, and back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from strandline.control_columns import OFFSET
from strandline.operators.kernels.arrow_words import arrow_type
from strandline.operators.operator import TAKEN_IN, Saved
from strandline.operators.partition_wide.definition import (
    BYTES,
    CHECKSUM,
    NAME,
    ROW,
    ROWS,
    TYPE,
    VERSION,
    PartitionWideDefinition,
)
from strandline.operators.partition_wide.state_values import State, StateRow, first_unsound, require_whole
from strandline.operators.unsound_footprint import UnsoundFootprintError, require_values

_ARRAY_BYTES_MAX = 1 << 30
"""An Arrow array of bytes holds no more than twice that."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """A whole state as footprints have it."""

    state: State
    taken_in: int
    version: int
    latest: int
    """The largest time of a tuple so far."""


NO_STATE = SavedState([], 0, 0, 0)
"""Of this there are no footprints."""


def footprints(definition: PartitionWideDefinition, saved: SavedState) -> list[pa.Array]:
    """Returns the columns of its footprints, a row each."""
    rows, many = saved.state, len(saved.state)
    time = pa.repeat(pa.scalar(saved.latest, pa.int64()), many).cast(arrow_type(definition.result_time_type))
    results = [
        time if name == definition.result_time else pa.nulls(many, arrow_type(kind))
        for name, kind in definition.result_columns
    ]
    return [
        *results,
        pa.repeat(pa.scalar(saved.taken_in, pa.int64()), many),
        pa.repeat(pa.scalar(saved.version, pa.int64()), many),
        pa.array(range(many), pa.int64()),
        pa.repeat(pa.scalar(many, pa.int64()), many),
        pa.array([row.name for row in rows], pa.string()),
        pa.array([row.kind for row in rows], pa.string()),
        _bytes(rows),
        pa.array([row.checksum(number) for number, row in enumerate(rows)], pa.int64()),
    ]


def _bytes(rows: State) -> pa.Array | pa.ChunkedArray:
    """Returns the pieces as one array, or as several if they do not fit one."""
    ends, size = [0], 0
    for number, row in enumerate(rows):
        if size + len(row.data) > _ARRAY_BYTES_MAX:
            ends.append(number)
            size = 0
        size += len(row.data)
    arrays = [pa.array([row.data for row in rows[a:b]], pa.binary()) for a, b in pairwise([*ends, len(rows)])]
    return arrays[0] if len(arrays) == 1 else pa.chunked_array(arrays)


def loaded(definition: PartitionWideDefinition, newest_first: Iterable[Saved]) -> SavedState | None:
    """Returns the state that these footprints hold; None if there are none.

    Raises CorruptManifestError if some are missing, UnsoundFootprintError if they hold what cannot be a state.
    """
    tables = [saved.footprints for saved in newest_first if saved.footprints.num_rows]
    if not tables:
        return None
    table = pa.concat_tables(tables[::-1])
    require_values(table, [TAKEN_IN, VERSION, ROW, ROWS, CHECKSUM, BYTES, definition.result_time])
    numbers, many, sums = (table.column(name).to_pylist() for name in (ROW, ROWS, CHECKSUM))
    values = zip(*(table.column(name).to_pylist() for name in (NAME, TYPE, BYTES)), strict=True)
    found = [(n, s, StateRow(*row)) for n, s, row in zip(numbers, sums, values, strict=True)]
    taken_in, version = int(table.column(TAKEN_IN)[0].as_py()), int(table.column(VERSION)[0].as_py())
    state = require_whole(found, many[0], f"{definition.of.name}, the state at input offset {taken_in}")
    unsound = first_unsound(state)
    if unsound is not None:
        raise UnsoundFootprintError(f"{unsound!r} is no value", table.column(OFFSET)[0].as_py())
    latest = int(table.column(definition.result_time).cast(pa.int64())[0].as_py())
    return SavedState(state, taken_in, version, latest)
