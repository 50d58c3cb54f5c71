"""Between Arrow tables and what kernels know: input tuples in, results and footprints out, footprints back in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.arrow_types import decimal_of
from strandline.control_columns import OFFSET
from strandline.operators.aggregate import sketches
from strandline.operators.aggregate.aggregates import Accumulator, Op, Read
from strandline.operators.aggregate.conditions import validity_where
from strandline.operators.aggregate.definition import END, OPENED, ROWS, START, AggregateDefinition
from strandline.operators.kernels.arrow_words import (
    arrow_type,
    doubles_of,
    from_bytes,
    from_doubles,
    from_words,
    validity,
    wide_words_of,
    words_of,
)
from strandline.operators.kernels.kernel_arrays import Bytes, Int64s
from strandline.operators.kernels.wide import from_pairs, means
from strandline.operators.open_windows.arrays import NO_BATCH, Batch, State, keys_of, sealed_batch
from strandline.operators.open_windows.byte_arena import gathered
from strandline.operators.open_windows.record import END as END_WORD
from strandline.operators.open_windows.record import KEY, KEY_AT, OVERFLOWED, POS, T
from strandline.operators.open_windows.record import OPENED as OPENED_WORD
from strandline.operators.open_windows.record import ROWS as ROWS_WORD
from strandline.operators.open_windows.record import START as START_WORD
from strandline.operators.operator import TAKEN_IN
from strandline.operators.unsound_footprint import require_sound, require_values


def input_batch(definition: AggregateDefinition, table: pa.Table, held: int) -> Batch:
    """Returns input tuples for the kernels. Positions of bytes continue from `held`, the bytes of the state."""
    offsets, _ = words_of(table.column(OFFSET), "long")
    times = (
        words_of(table.column(definition.time[0]), definition.time[1])[0] if definition.window.has_times else offsets
    )
    batch, pieces = keys_of(definition, table, held)
    rows = len(offsets)
    values = np.zeros((len(definition.inputs), rows), np.int64)
    valid = np.empty((len(definition.inputs), rows), np.uint8)
    types = {a.column: a.type for a in definition.accumulators if a.column is not None}
    for i, (name, read, where) in enumerate(definition.inputs):
        column = table.column(name or OFFSET)
        if read is Read.VALIDITY:
            valid[i] = validity(column)
        elif read is Read.INTEGER:
            values[i], valid[i] = words_of(column, types[str(name)])
        elif read is Read.FLOAT:
            values[i], valid[i] = doubles_of(column, types[str(name)])
        elif read in (Read.WIDE, Read.HIGH):
            low, high, valid[i] = wide_words_of(column)
            values[i] = low if read is Read.WIDE else high
        else:
            values[i], valid[i] = pieces.references(column, types[str(name)])
        if where is not None:
            valid[i] = validity_where(valid[i], table, definition.conditions.index(where))
    floats, data = values.view(np.float64), pieces.bytes
    return sealed_batch(
        batch._replace(offsets=offsets, times=times, values=values, floats=floats, valid=valid, bytes=data)
    )


# ---------------------------------------------------------------------- results and footprints as columns


class Columns:
    """Records of windows, turned into columns. They may refer to bytes of the state and of the batch at hand."""

    def __init__(self, definition: AggregateDefinition, records: Int64s, state: State, batch: Batch) -> None:
        self._definition = definition
        self._records = records
        self._state = state
        self._batch = batch

    def results(self) -> list[pa.Array]:
        """Returns the columns of results."""
        each = zip(self._definition.accumulators, self._definition.words, strict=False)
        aggregates = [column for a, word in each for column in self._results(a, word)]
        return [*self._key(), self._time(START_WORD), self._end(), *aggregates]

    def footprints(self, open_windows: int) -> list[pa.Array]:
        """Returns the columns of footprints: key and window, no aggregates, then the control columns."""
        end = self._end() if self._definition.window.has_times else pa.array(self._records[:, T] - 1, pa.int64())
        return self._unfinished(end, self._word(T), pa.array(np.full(len(self._records), open_windows)))

    def without_result(self) -> list[pa.Array]:
        """Returns the columns of windows that closed without a result: those of footprints that no batch decides."""
        unknown = pa.nulls(len(self._records), pa.int64())
        return self._unfinished(self._end(), unknown, unknown)

    def _unfinished(self, end: pa.Array, taken_in: pa.Array, open_windows: pa.Array) -> list[pa.Array]:
        """Returns the columns of windows in which those of aggregates are null."""
        each = list(zip(self._definition.accumulators, self._definition.words, strict=False))
        nothing = [pa.nulls(len(self._records), arrow_type(kind)) for a, _ in each for _, kind in a.results]
        control = [taken_in, open_windows, self._word(ROWS_WORD), self._word(OPENED_WORD)]
        parts = [
            self._part(a, part, kind, word + place)
            for a, word in each
            for (part, kind), place in zip(a.parts, a.places, strict=False)
        ]
        return [*self._key(), self._time(START_WORD), end, *nothing, *control, *parts]

    def _key(self) -> list[pa.Array]:
        at = self._records[:, KEY_AT]
        starts, data = (_NOWHERE, NO_BATCH.bytes) if self._definition.key_codec.fits_word else self._bytes(at)
        return self._definition.key_codec.decode(np.ascontiguousarray(self._records[:, KEY]), at, starts, data)

    def _word(self, word: int) -> pa.Array:
        return pa.array(self._records[:, word], pa.int64())

    def _time(self, word: int, less: int = 0) -> pa.Array:
        words = self._records[:, word] - less
        return from_words(words, np.ones(len(words), np.uint8), self._definition.time_type)

    def _end(self) -> pa.Array:
        return self._time(END_WORD, self._definition.window.overreach)

    def _bytes(self, at: Int64s) -> tuple[Int64s, Bytes]:
        return gathered(at, self._state, self._batch)

    def _value(self, a: Accumulator, word: int) -> pa.Array:
        """Returns the value of a min, max, first or last."""
        words = np.ascontiguousarray(self._records[:, word])
        valid = (self._records[:, word + 1] == 1).astype(np.uint8)
        if a.read is Read.BYTES:
            starts, data = self._bytes(np.where(valid, words, 0))
            return from_bytes(starts, data, valid, a.type)
        return from_doubles(words, valid, a.type) if a.read is Read.FLOAT else from_words(words, valid, a.type)

    def _part(self, a: Accumulator, part: str, kind: str, word: int) -> pa.Array:
        """Returns one part of the state as a column."""
        if part == "value":
            return self._value(a, word)
        if part == "sketch":
            return from_bytes(*self._bytes(self._records[:, word]), np.ones(len(self._records), np.uint8), kind)
        if decimal_of(kind):
            return from_pairs(
                self._records[:, word : word + 2], np.ones(len(self._records), np.uint8), arrow_type(kind)
            )
        words = np.ascontiguousarray(self._records[:, word])
        return pa.array(words.view(np.float64) if kind == "double" else words)

    def _results(self, a: Accumulator, word: int) -> list[pa.Array]:
        if a.op is not Op.SKETCH:
            return [self._result(a, word)]
        starts, data = self._bytes(self._records[:, word])
        return sketches.results(a, data.view(np.int64), starts // 8)

    def _result(self, a: Accumulator, word: int) -> pa.Array:
        records = self._records
        if a.op is None:
            return self._word(ROWS_WORD)
        if a.op is Op.COUNT:
            return self._word(word)
        if a.op is Op.SUM_INT:
            return _sum(a, records[:, word], records[:, word] >> 63, records[:, word + 1])
        if a.op is Op.SUM_WIDE:
            return _sum(a, *records[:, word : word + 3].T)
        if a.op is Op.SUM_FLOAT:
            total = np.ascontiguousarray(records[:, word]).view(np.float64)
            n = records[:, word + 1]
            return pa.array(total / np.maximum(n, 1) if a.function == "avg" else total, mask=_none(n == 0))
        if a.op is Op.MOMENTS:
            n, m2 = records[:, word], np.ascontiguousarray(records[:, word + 2]).view(np.float64)
            spread = m2 / np.maximum(n - 1, 1)
            return pa.array(np.sqrt(spread) if a.function == "stddev" else spread, mask=_none(n < 2))
        return self._value(a, word)


_NOWHERE = np.zeros(1, np.int64)


def _none(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    return mask if mask.any() else None


def _sum(a: Accumulator, low: Int64s, high: Int64s, n: Int64s) -> pa.Array:
    """Returns exact sums of integers or decimals, of so many values each; of `avg` their means, as Spark has them."""
    if a.function == "avg":
        pairs, exists = means(low, high, n, a.more_digits)
        return from_pairs(pairs, exists, arrow_type(a.result))
    exists = (n > 0).astype(np.uint8)
    if a.op is Op.SUM_INT:
        return from_words(np.ascontiguousarray(low), exists, a.result)
    return from_pairs(np.stack([low, high], axis=1), exists, arrow_type(a.result))


# ---------------------------------------------------------------------- footprints back in


def footprint_records(definition: AggregateDefinition, table: pa.Table, held: int) -> tuple[Int64s, Batch]:
    """Returns records as footprints have them, and their keys as a batch, into whose bytes the words of texts point.

    Raises UnsoundFootprintError about a footprint that tuples cannot have made.
    """
    records = _window_records(definition, table)
    records[:, T], _ = words_of(table.column(TAKEN_IN), "long")
    records[:, ROWS_WORD], _ = words_of(table.column(ROWS), "long")
    records[:, OPENED_WORD], _ = words_of(table.column(OPENED), "long")
    batch, pieces = keys_of(definition, table, held)
    for a, word in zip(definition.accumulators, definition.words, strict=False):
        for (part, kind), i in zip(a.parts, a.places, strict=False):
            column = table.column(f"_{a.name}_{part}")
            if part == "sum" and decimal_of(kind):
                records[:, word + i], records[:, word + i + 1], _ = wide_words_of(column)
            elif part not in ("value", "sketch"):
                read = doubles_of if kind == "double" else words_of
                records[:, word + i], _ = read(column, kind)
            elif a.is_bytes:
                records[:, word + i], _ = pieces.references(column, kind)
            else:
                records[:, word + i], _ = (doubles_of if a.read is Read.FLOAT else words_of)(column, kind)
    _require_sound_windows(definition, table, records)
    return records, sealed_batch(batch._replace(bytes=pieces.bytes))


def closed_records(definition: AggregateDefinition, table: pa.Table, held: int) -> tuple[Int64s, Batch]:
    """Returns what results say of the windows that closed with them."""
    batch, pieces = keys_of(definition, table, held)
    return _window_records(definition, table), sealed_batch(batch._replace(bytes=pieces.bytes))


def _window_records(definition: AggregateDefinition, table: pa.Table) -> Int64s:
    """Returns records with the windows of these rows of the output, and where those stand in it."""
    records = np.zeros((table.num_rows, definition.width), np.int64)
    records[:, POS], _ = words_of(table.column(OFFSET), "long")
    records[:, START_WORD], _ = words_of(table.column(START), definition.time_type)
    records[:, END_WORD] = words_of(table.column(END), definition.time_type)[0] + definition.window.overreach
    return records


def key_and_window(definition: AggregateDefinition, records: Int64s, state: State, batch: Batch) -> str:
    """Returns the key of the first of these windows, and where it begins, for messages."""
    columns = Columns(definition, records, state, batch)
    names = [*(c for c, _ in definition.key), START]
    values: Sequence[pa.Array] = [*columns._key(), columns._time(START_WORD)]
    return ", ".join(f"{name}={value[0].as_py()!r}" for name, value in zip(names, values, strict=True))


def _require_sound_windows(definition: AggregateDefinition, table: pa.Table, records: Int64s) -> None:
    """Raises UnsoundFootprintError if footprints, and the records made of them, hold what tuples cannot have made."""
    at, rows = records[:, POS], records[:, ROWS_WORD]
    parts = [f"_{a.name}_{part}" for a in definition.accumulators for part, _ in a.parts if part != "value"]
    require_values(table, [START, END, TAKEN_IN, ROWS, OPENED, *parts])
    taken_in, opened = records[:, T], records[:, OPENED_WORD]
    is_opened = (opened >= 0) & (opened < taken_in)
    require_sound(is_opened, "the window was opened behind what the footprint holds", at)
    require_sound(rows >= 1, "the window has no tuples", at)
    if definition.window.has_times:
        require_sound(records[:, START_WORD] < records[:, END_WORD], "the window ends before it begins", at)
    else:
        require_sound(rows < definition.window.size, "the window has as many tuples as one that is complete", at)
    for a, word in zip(definition.accumulators, definition.words, strict=False):
        if a.op is Op.SKETCH:
            found = sketches.first_unsound(a, table.column(f"_{a.name}_sketch"), rows)
            require_sound(np.arange(len(rows)) != found, f"the sketch of {a.name} is none", at)
        else:
            _require_sound_numbers(a, table, records[:, word : word + a.places[-1]], rows, at)


def _require_sound_numbers(a: Accumulator, table: pa.Table, words: Int64s, rows: Int64s, at: Int64s) -> None:
    """Raises UnsoundFootprintError unless tuples can have made these words of an aggregate of fixed size."""
    places = {part: place for (part, _), place in zip(a.parts, a.places, strict=False)}
    if "n" in places:
        n = words[:, places["n"]]
        least = OVERFLOWED if a.count_place is not None else 0
        require_sound((n >= least) & (n <= rows), f"{a.name} has taken more values than there are tuples, or less", at)
        decimal = decimal_of(a.type)
        if a.op is Op.SUM_INT and decimal is not None:
            is_sum = (n == OVERFLOWED) | (np.abs(words[:, 0].astype(np.float64)) <= n * 10.0 ** decimal[0])
            require_sound(is_sum, f"the sum of {a.name} is larger than its values can be", at)
    if "flag" in places:
        flags, is_valid = words[:, places["flag"]], validity(table.column(f"_{a.name}_value")) == 1
        is_flag = (flags >= 0) & (flags <= 2)  # no tuple yet, a value, a null
        require_sound(is_flag & ((flags == 1) == is_valid), f"the value of {a.name} contradicts its flag", at)
