"""The columns of results and of footprints, made of pairs and of kept tuples; and kept tuples made of footprints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline import arrow_rows
from strandline.arrow_rows import Rows, Sizes, in_order, largest, portions, rows_of, sizes_at, stacked
from strandline.control_columns import OFFSET
from strandline.operators.join import ring_kernels as kernels
from strandline.operators.join.definition import ORDINAL_COLUMN, SIDE_COLUMN, JoinDefinition, stored_type
from strandline.operators.join.join_windows import LEFT, RIGHT, SIDES
from strandline.operators.join.tuple_record import HEAD, SAVED, TAIL, Pairs
from strandline.operators.kernels.arrow_words import from_words, validity, whole, words_of
from strandline.operators.kernels.kernel_arrays import Bytes, Int64s
from strandline.operators.open_windows.record import LENGTH_MAX
from strandline.operators.operator import TAKEN_IN, Saved
from strandline.operators.unsound_footprint import require_sound, require_values

if TYPE_CHECKING:
    from strandline.operators.join.join_operator import JoinOperator

Arrays = list[pa.Array]
_ROWS_MIN = 1 << 16
"""Fewer footprints are not worth the look for older ones among them."""


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
        yield pairs.rows(slice(begin, end))


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
    join: JoinOperator, side: int, names: tuple[str, ...], places: Int64s, times: Int64s, new: Sequence[Rows]
) -> dict[str, pa.Array]:
    """Returns the columns of these names of tuples of one side; those of a key that is to be equal are left out."""
    d = join.definition
    wanted = [c for c, _ in d.payload(side) if c in names]
    payload = join.payloads[side].taken(places, new, wanted)
    found = {c: whole(payload.column(c)) for c in wanted}
    if d.times[side] in names:
        found[d.times[side]] = from_words(times.copy(), np.ones(len(times), np.uint8), d.time_types[side])
    return found


def pair_values(
    join: JoinOperator, side: int, names: tuple[str, ...], pairs: Pairs, new: Sequence[Rows]
) -> dict[str, pa.Array]:
    """Returns the columns of these names of one side of pairs, which have the same key."""
    d = join.definition
    places, times = (pairs.left, pairs.left_times) if side == LEFT else (pairs.right, pairs.right_times)
    found = side_values(join, side, names, places, times, new)
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
    return [*key, _time(d, times.copy()), *(mine + other if side == LEFT else other + mine), *map(pa.array, control)]


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


# ---------------------------------------------------------------------- footprints back in: of each tuple the newest


def load_tuples(join: JoinOperator, newest_first: Iterable[Saved]) -> None:
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
        own = [column for column, _ in definition.side_columns[side]]
        column = newest.column(definition.names[side][own.index(definition.times[side])])
        require_sound((sides != side) | (validity(column) == 1), "the tuple has no time", at)


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
    table = pa.concat_tables(parts)
    ordinals, positions = (words_of(table.column(name), "long")[0] for name in (ORDINAL_COLUMN, OFFSET))
    sides = table.column(SIDE_COLUMN).fill_null(0).to_numpy()  # joined with itself, a stream has a tuple on both
    order = np.lexsort((positions, sides, ordinals))
    is_last = np.append((np.diff(ordinals[order]) != 0) | (np.diff(sides[order]) != 0), True)
    return in_order(table, order[is_last])


def _tuples(definition: JoinDefinition, side: int, newest: pa.Table) -> pa.Table:
    """Returns the input tuples of one side that footprints hold."""
    footprints = newest.filter(pc.equal(newest.column(SIDE_COLUMN), side))
    columns = {c: footprints.column(c) for c, _ in definition.key}
    for name, (column, _) in zip(definition.names[side], definition.side_columns[side], strict=True):
        columns[column] = footprints.column(name)
    return pa.table({**columns, OFFSET: footprints.column(ORDINAL_COLUMN)})
