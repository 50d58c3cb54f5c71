"""The columns of results and of footprints, made of pairs and of kept tuples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline import arrow_rows
from strandline.arrow_rows import Rows, Sizes, largest, portions, stacked
from strandline.operators.join import ring_kernels as kernels
from strandline.operators.join.definition import JoinDefinition
from strandline.operators.join.join_windows import LEFT, RIGHT, SIDES
from strandline.operators.join.stored_types import stored_type
from strandline.operators.join.tuple_record import Pairs
from strandline.operators.kernels.arrow_words import from_words, whole
from strandline.operators.kernels.kernel_arrays import Bytes, Int64s
from strandline.operators.open_windows.record import LENGTH_MAX

if TYPE_CHECKING:
    from strandline.operators.join.join_operator import JoinOperator

Arrays = list[pa.Array]


def portions_of(join: JoinOperator, pairs: Pairs, new: Sequence[Sequence[Rows]]) -> Iterator[Pairs]:
    """Yields the pairs in their order, as many at a time as make a portion of results; `new` as below."""
    rows, fits_word = len(pairs.left), join.definition.fits_word
    key = 0 if fits_word else largest(pairs.key_at & LENGTH_MAX)
    if (key + sum(join.payloads[side].largest(new[side]) for side in SIDES)) * rows <= arrow_rows.PORTION_BYTES_MAX:
        if rows:
            yield pairs
        return
    sizes: Sizes = 0 if fits_word else pairs.key_at & LENGTH_MAX
    for side, places in ((LEFT, pairs.left), (RIGHT, pairs.right)):
        sizes = sizes + join.payloads[side].sizes(places, new[side])
    for begin, end in portions(sizes, rows):
        yield Pairs._make(array[begin:end] for array in pairs)


def result_columns(join: JoinOperator, pairs: Pairs, new: Sequence[Sequence[Rows]]) -> Arrays:
    """Returns the columns of results; `new` has payloads of tuples that came just now."""
    d, times = join.definition, (pairs.left_times, pairs.right_times)
    sides: Arrays = []
    payloads = [join.payloads[side].taken(places, new[side]) for side, places in enumerate((pairs.left, pairs.right))]
    for side, places in ((LEFT, pairs.left), (RIGHT, pairs.right)):
        sides += _side_columns(d, side, times[side], (places >= 0).astype(np.uint8), payloads[side])
    if d.windows.meets_any:
        key = _key_of_left(d, pairs.left >= 0, payloads)
    else:
        key = _key(join, pairs.keys, pairs.key_at, pairs.sides)
    return [*key, _time(d, np.maximum(*times)), *sides]


def side_values(
    join: JoinOperator, side: int, names: tuple[str, ...], pairs: Pairs, new: Sequence[Rows]
) -> dict[str, pa.Array]:
    """Returns the columns of these names of one side of pairs."""
    d, rows = join.definition, len(pairs.left)
    wanted = [c for c, _ in d.payload(side) if c in names]
    places, times = (pairs.left, pairs.left_times) if side == LEFT else (pairs.right, pairs.right_times)
    payload = join.payloads[side].taken(places, new, wanted)
    found = {c: whole(payload.column(c)) for c in wanted}
    if d.times[side] in names:
        found[d.times[side]] = from_words(times.copy(), np.ones(rows, np.uint8), d.time_types[side])
    if any(c in names for c, _ in d.key):
        key = _key(join, pairs.keys, pairs.key_at, pairs.sides)
        found |= {c: array for (c, _), array in zip(d.key, key, strict=True) if c in names}
    return found


def footprints_of(join: JoinOperator, sides: Int64s, numbers: Int64s) -> Arrays:
    """Returns the columns of footprints of kept tuples, each of a side and with its number there, in this order."""
    sizes = np.zeros(len(sides), np.int64)
    for side in SIDES:
        mine, payloads = sides == side, join.payloads[side]
        if payloads.largest() * len(sides) <= arrow_rows.PORTION_BYTES_MAX:
            sizes[mine] = payloads.largest()  # to know better takes a look at every row
        else:
            sizes[mine] = payloads.sizes(numbers[mine] - (payloads.first or 0))
        if not join.definition.fits_word:
            sizes[mine] += join.rings[side].read(numbers[mine])[3] & LENGTH_MAX
    cut = portions(sizes, len(sides))
    return stacked([_footprints(join, sides[begin:end], numbers[begin:end]) for begin, end in cut])


def _footprints(join: JoinOperator, sides: Int64s, numbers: Int64s) -> Arrays:
    """Returns the columns of a few footprints."""
    parts = [footprint_columns(join, side, numbers[sides == side]) for side in SIDES]
    together = [pa.concat_arrays(list(arrays)) for arrays in zip(*parts, strict=True)]
    if not np.any(sides[1:] < sides[:-1]):
        return together
    order = np.empty(len(sides), np.int64)
    order[np.argsort(sides, kind="stable")] = np.arange(len(sides))
    return [array.take(pa.array(order)) for array in together]


def footprint_columns(join: JoinOperator, side: int, numbers: Int64s) -> Arrays:
    """Returns the columns of footprints of kept tuples of a side."""
    d, rows = join.definition, len(numbers)
    ring, payloads = join.rings[side], join.payloads[side]
    ordinals, times, keys, key_at = ring.read(numbers)
    payload = payloads.taken(numbers - (payloads.first or 0))
    mine = _side_columns(d, side, times, np.ones(rows, np.uint8), payload)
    other = [pa.nulls(rows, stored_type(kind)) for _, kind in d.side_columns[1 - side]]
    if d.windows.meets_any:
        key = [whole(payload.column(c)) for c, _ in d.key]
    else:
        key = _key(join, keys, key_at, np.full(rows, side, np.uint8))
    control = [
        np.full(rows, join.input_end, np.int64),
        np.full(rows, join.open_windows, np.int64),
        np.full(rows, side, np.int8),
        ordinals.copy(),
    ]
    return [
        *key,
        _time(d, times.copy()),
        *(mine + other if side == LEFT else other + mine),
        *map(pa.array, control),
    ]


def _side_columns(d: JoinDefinition, side: int, times: Int64s, valid: Bytes, payload: pa.Table) -> Arrays:
    found: Arrays = []
    for column, kind in d.side_columns[side]:
        if column == d.times[side]:
            found.append(from_words(times.copy(), valid, kind))
        else:
            found.append(whole(payload.column(column)))
    return found


def _time(d: JoinDefinition, times: Int64s) -> pa.Array:
    return from_words(times, np.ones(len(times), np.uint8), d.time_type)


def _key_of_left(d: JoinDefinition, has_left: npt.NDArray[np.bool_], payloads: Sequence[pa.Table]) -> Arrays:
    """Returns the key columns of pairs whose keys differ: those of left, and of right where it came out alone."""
    left, right = ([whole(payload.column(c)) for c, _ in d.key] for payload in payloads)
    if has_left.all():
        return left
    return [pc.if_else(pa.array(has_left), own, other) for own, other in zip(left, right, strict=True)]


def _key(join: JoinOperator, keys: Int64s, at: Int64s, sides: Bytes) -> Arrays:
    codec = join.definition.key_codec
    if codec.fits_word:
        return codec.decode(keys.copy(), at, at, np.empty(0, np.uint8))
    starts = np.zeros(len(at) + 1, np.int64)
    data = np.empty(int((at & LENGTH_MAX).sum()), np.uint8)
    left, right = (join.rings[side].arrays.bytes for side in SIDES)
    kernels.gather_bytes(left, right, sides, np.ascontiguousarray(at), starts, data)
    return codec.decode(keys, at, starts, data)
