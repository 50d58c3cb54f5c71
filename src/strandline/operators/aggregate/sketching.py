"""Sketches, made of the notes that the loops over tuples have taken."""

from __future__ import annotations

import numpy as np

from strandline.operators.aggregate import sketches
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.kernels.kernel_arrays import Int64s
from strandline.operators.open_windows.arrays import Batch, State, sealed_batch
from strandline.operators.open_windows.byte_arena import gathered
from strandline.operators.open_windows.record import BYTES_END, LENGTH_BITS
from strandline.operators.open_windows.trace import HITS, NUMBERS, Trace


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
        added = sketches.elements(a, np.ascontiguousarray(batch.values[row, rows]), held, batch.bytes)
        order = np.argsort(group, kind="stable")
        starts, olds = gathered(numbered[order, place], state, batch)
        words, ends = sketches.folded(
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
