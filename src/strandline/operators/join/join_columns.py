"""The columns of results and of footprints, made of pairs and of kept tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.operators.arrow_words import from_words
from strandline.operators.join import ring_kernels as kernels
from strandline.operators.join.column_types import stored_type
from strandline.operators.join.definition import JoinDefinition
from strandline.operators.join.join_windows import LEFT, RIGHT, SIDES
from strandline.operators.join.tuple_record import Pairs
from strandline.operators.kernel_arrays import Bytes, Int64s
from strandline.operators.open_windows.record import LENGTH_MAX

if TYPE_CHECKING:
    from strandline.operators.join.join_operator import JoinOperator

Arrays = list[pa.Array]


def result_columns(join: JoinOperator, pairs: Pairs, new: list[pa.Table]) -> Arrays:
    """The columns of results; `new` has payloads of tuples that came just now."""
    times = (pairs.left_times, pairs.right_times)
    sides: Arrays = []
    for side, places in ((LEFT, pairs.left), (RIGHT, pairs.right)):
        payload = join.payloads[side].taken(places, new[side])
        sides += _side_columns(join.definition, side, times[side], (places >= 0).astype(np.uint8), payload)
    key = _key(join, pairs.keys, pairs.key_at, pairs.sides)
    return [*key, _time(join.definition, np.maximum(*times)), *sides]


def side_values(
    join: JoinOperator, side: int, names: tuple[str, ...], pairs: Pairs, new: pa.Table
) -> dict[str, pa.Array]:
    """The columns of these names of one side of pairs."""
    d, rows = join.definition, len(pairs.left)
    wanted = [c for c, _ in d.payload(side) if c in names]
    places, times = (pairs.left, pairs.left_times) if side == LEFT else (pairs.right, pairs.right_times)
    payload = join.payloads[side].taken(places, new, wanted)
    found = {c: _whole(payload.column(c)) for c in wanted}
    if d.times[side] in names:
        found[d.times[side]] = from_words(times.copy(), np.ones(rows, np.uint8), d.time_types[side])
    if any(c in names for c, _ in d.key):
        key = _key(join, pairs.keys, pairs.key_at, pairs.sides)
        found |= {c: array for (c, _), array in zip(d.key, key, strict=True) if c in names}
    return found


def footprint_columns(join: JoinOperator, side: int, numbers: Int64s) -> Arrays:
    """The columns of footprints of kept tuples of a side."""
    d, rows = join.definition, len(numbers)
    ring, payloads = join.rings[side], join.payloads[side]
    ordinals, times, keys, key_at = ring.read(numbers)
    payload = payloads.taken(numbers - (payloads.first or 0), None)
    mine = _side_columns(d, side, times, np.ones(rows, np.uint8), payload)
    other = [pa.nulls(rows, stored_type(kind)) for _, kind in d.columns[1 - side]]
    control = [
        np.full(rows, join.input_end, np.int64),
        np.full(rows, join.open_windows, np.int64),
        np.full(rows, side, np.int8),
        ordinals.copy(),
    ]
    return [
        *_key(join, keys, key_at, np.full(rows, side, np.uint8)),
        _time(d, times.copy()),
        *(mine + other if side == LEFT else other + mine),
        *map(pa.array, control),
    ]


def _side_columns(d: JoinDefinition, side: int, times: Int64s, valid: Bytes, payload: pa.Table) -> Arrays:
    found: Arrays = []
    for column, kind in d.columns[side]:
        if column == d.times[side]:
            found.append(from_words(times.copy(), valid, kind))
        else:
            found.append(_whole(payload.column(column)))
    return found


def _time(d: JoinDefinition, times: Int64s) -> pa.Array:
    return from_words(times, np.ones(len(times), np.uint8), d.time_type)


def _key(join: JoinOperator, keys: Int64s, at: Int64s, sides: Bytes) -> Arrays:
    codec = join.definition.key_codec
    if codec.fits_word:
        return codec.decode(keys.copy(), at, at, np.empty(0, np.uint8))
    starts = np.zeros(len(at) + 1, np.int64)
    data = np.empty(int((at & LENGTH_MAX).sum()), np.uint8)
    left, right = (join.rings[side].arrays.bytes for side in SIDES)
    kernels.gather_bytes(left, right, sides, np.ascontiguousarray(at), starts, data)
    return codec.decode(keys, at, starts, data)


def _whole(column: Any) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def joined_columns(parts: list[Arrays], order: npt.NDArray[np.int64] | None) -> Arrays:
    """The same columns of several parts one behind the other, then in this order."""
    if len(parts) == 1 and order is None:
        return parts[0]
    whole = [pa.concat_arrays(list(arrays)) for arrays in zip(*parts, strict=True)]
    return whole if order is None else [array.take(pa.array(order)) for array in whole]
