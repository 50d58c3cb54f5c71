"""Aggregates whose state has any length: how many distinct values, and percentiles.

The loop over tuples does not compute them. It notes which tuple came to which window (`note_hit`, in
`accumulation.py`), and when it is through, what was noted becomes sketches here, a window after the other; a sketch is
bytes that the record of the window refers to, as it does to a string. Other aggregates pay nothing for it.

Both are exact as long as a window has few distinct values, and say when they are not: behind the result comes a column
`<name>_is_approximate`. What a sketch is follows from the values alone, not from their order nor from where the input
was cut.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from strandline.operators.aggregate import sketch_kernels as kernels
from strandline.operators.aggregate.aggregates import Accumulator, Read
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.kernels.arrow_words import bytes_of
from strandline.operators.kernels.kernel_arrays import Bytes, Float64s, Int64s, sealed
from strandline.operators.open_windows.arrays import HITS, NUMBERS, Batch, State, Trace, sealed_batch
from strandline.operators.open_windows.byte_arena import gathered
from strandline.operators.open_windows.record import BYTES_END, LENGTH_BITS

_WORDS_AT_ONCE = 1 << 22
"""Words of sketches that are worked on together: bounds what that needs beside the state."""
_ALPHA = 0.7213475204444817
"""1 / (2 ln 2)."""
_SIGN = np.int64(-(1 << 63))
_MAX = np.int64((1 << 63) - 1)


def key_words(a: Accumulator) -> int:
    """Returns how many words tell a value from others: it fits one, or two hashes stand for its bytes."""
    return 2 if a.read is Read.BYTES else 1


def elements(a: Accumulator, values: Int64s, held: int, data: Bytes) -> Int64s:
    """Returns values as kernels have them, as elements of sketches."""
    if a.read is Read.BYTES:
        hashes = np.empty((len(values), 2), np.int64)
        kernels.hash_bytes(np.ascontiguousarray(values), held, data, hashes)
        return hashes
    words = _ordered(values.view(np.float64)) if a.read is Read.FLOAT else values
    if a.function == "percentile":
        return np.stack([words, np.ones_like(words)], axis=1)
    return words.reshape(-1, 1)


def _ordered(values: Float64s) -> Int64s:
    """Doubles as integers in the same order; both zeros are one value, and so are all NaN, which is the largest."""
    bits = np.where(np.isnan(values), np.nan, values + 0.0).view(np.int64)
    return np.where(bits < 0, -(bits & _MAX) - 1, bits)


def _doubles(ordered: Int64s) -> Float64s:
    found: Float64s = np.where(ordered < 0, (-(ordered + 1)) | _SIGN, ordered).view(np.float64)
    return found


def folded(
    a: Accumulator, olds: Int64s, starts: Int64s, groups: Int64s, added: Int64s, added_groups: Int64s, count: int
) -> tuple[Int64s, Int64s]:
    """Returns the sketches of so many groups: for each, its old ones and the elements added to it, as one.

    Old sketch i is `olds[starts[i]:starts[i + 1]]` and belongs to `groups[i]`, element i to `added_groups[i]`; groups
    of old ones ascend. Returns the words of the new ones and where each begins (and the last ends).
    """
    order = np.lexsort((*added.T[::-1], added_groups))
    added, added_groups = added[order], added_groups[order]
    every = np.arange(count + 1)
    of_group, added_of_group = np.searchsorted(groups, every), np.searchsorted(added_groups, every)
    stride = added.shape[1]
    size = 1 + kernels.DENSE_WORDS + starts[of_group[1:]] - starts[of_group[:-1]] + np.diff(added_of_group) * stride
    places = np.concatenate([[0], np.cumsum(size)])
    parts, ends = [], [np.zeros(1, np.int64)]
    first = 0
    while first < count:
        last = max(first + 1, int(np.searchsorted(places, places[first] + _WORDS_AT_ONCE, side="right")) - 1)
        out = np.empty(int(places[last] - places[first]), np.int64)
        found = np.empty(last - first, np.int64)
        bound = dict(a.aggregate.options)["exact_up_to"]
        mine = kernels.Sketches(olds, starts, of_group[first : last + 1])
        news = kernels.Elements(np.ascontiguousarray(added).reshape(-1), added_of_group[first : last + 1])
        room = kernels.Folded(out, out.view(np.uint8), found)
        if a.function == "percentile":
            kernels.fold_counts(bound, mine, news, room)
        else:
            kernels.fold_distinct(bound, stride, mine, news, room)
        parts.append(out[: found[-1]].copy())
        ends.append(found + ends[-1][-1])
        first = last
    return np.concatenate(parts) if parts else np.empty(0, np.int64), np.concatenate(ends)


def first_unsound(a: Accumulator, column: pa.ChunkedArray, rows: Int64s) -> int:
    """Returns the number of the first of these sketches, as footprints have them, that no values can have made.

    -1 if there is none. `rows` says how many tuples each window has.
    """
    starts, data, _ = bytes_of(column, "binary")
    is_whole = np.diff(starts) % 8 == 0
    if not is_whole.all():
        return int(np.argmin(is_whole))
    words = sealed(data[starts[0] : starts[-1]].copy().view(np.int64))
    options, places = dict(a.aggregate.options), sealed((starts - starts[0]) // 8)
    has_counts = a.function == "percentile"
    return int(kernels.first_unsound(options["exact_up_to"], key_words(a), has_counts, words, places, sealed(rows)))


# ---------------------------------------------------------------------- results


def results(a: Accumulator, words: Int64s, starts: Int64s) -> list[pa.Array]:
    """Returns the result of each sketch, and whether it is approximate."""
    lengths = np.diff(starts)
    heads = np.zeros(len(lengths), np.int64)
    heads[lengths > 0] = words[starts[:-1][lengths > 0]]
    is_approximate = pa.array(heads > 0)
    if a.function == "percentile":
        return [_percentiles(dict(a.aggregate.options)["p"], words, starts, heads), is_approximate]
    counts = (lengths - 1) // key_words(a) * (lengths > 0)
    for i in np.flatnonzero(heads == kernels.DENSE):
        registers = words[starts[i] + 1 : starts[i + 1]].view(np.uint8)
        counts[i] = estimate(np.bincount(registers, minlength=66).tolist())
    return [pa.array(counts), is_approximate]


def estimate(ranks: list[int]) -> int:
    """Returns how many distinct values registers stand for, of which so many have each rank.

    This is the improved raw estimator of Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017),
    algorithm 6. It has no bias at any size, so it needs no linear counting for few values and no tables. It uses sums,
    products and square roots only: the result is the same on every machine.
    """
    m, highest = kernels.REGISTERS, 64 - kernels.INDEX_BITS + 1
    total = m * _tau(1 - ranks[highest] / m)
    for rank in range(highest - 1, 0, -1):
        total = 0.5 * (total + ranks[rank])
    total += m * _sigma(ranks[0] / m)
    # No stream fills all registers, but a forged state may: the result is a number then, too.
    return min(round(_ALPHA * m * m / total), int(_MAX)) if total else int(_MAX)


def _sigma(x: float) -> float:
    """Returns x + x^2 + 2 x^4 + 4 x^8 + ..., what registers without a value contribute; infinity for 1."""
    if x == 1.0:
        return math.inf
    found, before, factor = x, -1.0, 1.0
    while found != before:
        x, before = x * x, found
        found, factor = found + x * factor, 2 * factor
    return found


def _tau(x: float) -> float:
    """Returns (1 - x - (1 - x^(1/2))^2 / 2 - (1 - x^(1/4))^2 / 4 - ...) / 3, what full registers contribute."""
    if x in (0.0, 1.0):
        return 0.0
    found, before, factor = 1 - x, -1.0, 1.0
    while found != before:
        x, before, factor = math.sqrt(x), found, 0.5 * factor
        found -= (1 - x) * (1 - x) * factor
    return found / 3


def _percentiles(p: float, words: Int64s, starts: Int64s, bits: Int64s) -> pa.Array:
    """Returns percentiles: between two values along a straight line, as in Spark; of buckets, the nearest middle."""
    keys, position = np.zeros((len(bits), 2), np.int64), np.zeros(len(bits))
    kernels.at_rank(p, words, starts, keys, position)
    low, high = _doubles(keys[:, 0]), _doubles(keys[:, 1])
    with np.errstate(invalid="ignore"):
        between = low + (position - np.floor(position)) * (high - low)
    found = np.where(keys[:, 0] == keys[:, 1], low, between)
    for i in np.flatnonzero(bits > 0):
        found[i] = middle(int(keys[i, 0]), int(bits[i]))
    return pa.array(found, mask=np.diff(starts) == 0)


def middle(key: int, bits: int) -> float:
    """Returns the value in the middle of a bucket; of those that hold zero or infinity, that."""
    if key in (0, -1):
        return 0.0
    ordered = (key << bits) + (1 << (bits - 1))
    value: float = _doubles(np.array([ordered]))[0].item()
    if math.isnan(value):  # infinity and NaN are in buckets of their own, unless they are very coarse
        least: float = _doubles(np.array([key << bits]))[0].item()
        most: float = _doubles(np.array([((key + 1) << bits) - 1]))[0].item()
        return next((x for x in (least, most) if math.isinf(x)), math.nan)
    return value


def room_for_hits(trace: Trace, definition: AggregateDefinition, rows: int) -> Trace:
    """Returns the trace with room for what so many tuples can come to, nothing noted yet."""
    trace.counts[HITS] = trace.counts[NUMBERS] = 0
    if not definition.sketches:
        return trace
    most = rows * (definition.window.overlap + 2) + 1
    return trace._replace(
        hits=np.empty((most, 2), np.int64), numbered=np.empty((most, 1 + len(definition.sketches)), np.int64)
    )


def sketched(definition: AggregateDefinition, state: State, batch: Batch, trace: Trace, results: Int64s) -> Batch:
    """Lets windows and results refer to what their sketches have become: bytes of the batch that is returned."""
    count = int(trace.counts[NUMBERS])
    if not count:
        return batch
    numbered, hits = trace.numbered[:count], trace.hits[: trace.counts[HITS]]
    group = _groups(count, hits[hits[:, 1] < 0])
    hits = hits[hits[:, 1] >= 0]
    held = int(state.header[BYTES_END])
    word = definition.hit_word
    data, end = [batch.bytes], held + len(batch.bytes)
    slots = numbered[:, 0]
    is_there = state.records[slots, word] == np.arange(1, count + 1)
    for place, j in enumerate(definition.sketches, start=1):
        a = definition.accumulators[j]
        row = definition.inputs.index((a.column, a.read, a.where))
        counts = batch.valid[row, hits[:, 1]] == 1
        rows = hits[counts, 1]
        added = elements(a, np.ascontiguousarray(batch.values[row, rows]), held, batch.bytes)
        order = np.argsort(group, kind="stable")
        starts, olds = gathered(numbered[order, place], state, batch)
        words, ends = folded(
            a, olds.view(np.int64), starts // 8, group[order], added, group[hits[counts, 0] - 1], count
        )
        refs = (end + 8 * ends[:-1]) << LENGTH_BITS | 8 * np.diff(ends)
        state.records[slots[is_there], word + place] = refs[is_there]
        closed = results[:, word] > 0
        results[closed, word + place] = refs[results[closed, word] - 1]
        data.append(words.view(np.uint8))
        end += 8 * len(words)
    state.records[slots[is_there], word] = 0
    return sealed_batch(batch._replace(bytes=np.concatenate(data)))


def _groups(count: int, joined: Int64s) -> Int64s:
    """Returns for each window that was met, the one that it is part of in the end: itself, or what swallowed it."""
    into = np.arange(count)
    into[-joined[:, 1] - 2] = joined[:, 0] - 1
    while not np.array_equal(further := into[into], into):
        into = further
    return into
