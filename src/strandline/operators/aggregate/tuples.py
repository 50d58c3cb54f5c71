"""Between Arrow tables and what kernels know: input tuples in, results and footprints out, footprints back in."""

from __future__ import annotations

import decimal
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.arrow_types import decimal_of
from strandline.control_columns import OFFSET
from strandline.operators.aggregate import sketches
from strandline.operators.aggregate.aggregates import Accumulator, Op, Read
from strandline.operators.aggregate.conditions import holds, validity_where
from strandline.operators.aggregate.definition import END, OPENED, ROWS, START, AggregateDefinition
from strandline.operators.kernels.arrow_words import (
    arrow_type,
    doubles_of,
    from_bytes,
    from_doubles,
    from_words,
    null_column,
    validity,
    wide_words_of,
    words_of,
)
from strandline.operators.kernels.kernel_arrays import Bytes, Int64s
from strandline.operators.kernels.wide import from_pairs, means
from strandline.operators.open_windows.arrays import Batch, State, keys_of, sealed_batch
from strandline.operators.open_windows.byte_arena import gathered
from strandline.operators.open_windows.record import END as END_WORD
from strandline.operators.open_windows.record import KEY, KEY_AT, POS, T
from strandline.operators.open_windows.record import OPENED as OPENED_WORD
from strandline.operators.open_windows.record import ROWS as ROWS_WORD
from strandline.operators.open_windows.record import START as START_WORD
from strandline.operators.operator import TAKEN_IN


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
            valid[i] = validity_where(valid[i], holds(table, definition.conditions.index(where)))
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
        definition, rows = self._definition, len(self._records)
        nothing = [null_column(kind, rows) for a in definition.accumulators for _, kind in a.results]
        end = self._end() if definition.window.has_times else pa.array(self._records[:, T] - 1, pa.int64())
        control = [self._word(T), pa.array(np.full(rows, open_windows)), self._word(ROWS_WORD), self._word(OPENED_WORD)]
        return [*self._key(), self._time(START_WORD), end, *nothing, *control, *self._state_parts()]

    def without_result(self) -> list[pa.Array]:
        """Returns the columns of windows that closed without a result: those of footprints that no batch decides."""
        definition, rows = self._definition, len(self._records)
        nothing = [null_column(kind, rows) for a in definition.accumulators for _, kind in a.results]
        unknown = null_column("long", rows)
        control = [unknown, unknown, self._word(ROWS_WORD), self._word(OPENED_WORD)]
        ends = [self._time(START_WORD), self._end()]
        return [*self._key(), *ends, *nothing, *control, *self._state_parts()]

    def _state_parts(self) -> list[pa.Array]:
        return [
            self._part(a, part, kind, word + place)
            for a, word in zip(self._definition.accumulators, self._definition.words, strict=False)
            for (part, kind), place in zip(a.parts, a.places, strict=False)
        ]

    def _key(self) -> list[pa.Array]:
        at = self._records[:, KEY_AT]
        starts, data = (_NOWHERE, _NO_BYTES) if self._definition.key_codec.fits_word else self._bytes(at)
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
            return _integer_sum(a, np.ascontiguousarray(records[:, word]), records[:, word + 1])
        if a.op is Op.SUM_WIDE:
            return _wide_sum(a, records[:, word : word + 3])
        if a.op is Op.SUM_FLOAT:
            total = np.ascontiguousarray(records[:, word]).view(np.float64)
            n = records[:, word + 1]
            return pa.array(total / np.maximum(n, 1) if a.function == "avg" else total, mask=_none(n == 0))
        if a.op is Op.MOMENTS:
            n, m2 = records[:, word], np.ascontiguousarray(records[:, word + 2]).view(np.float64)
            spread = m2 / np.maximum(n - 1, 1)
            return pa.array(np.sqrt(spread) if a.function == "stddev" else spread, mask=_none(n < 2))
        return self._value(a, word)


_NOWHERE, _NO_BYTES = np.zeros(1, np.int64), np.empty(0, np.uint8)


def _none(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    return mask if mask.any() else None


def _integer_sum(a: Accumulator, total: Int64s, n: Int64s) -> pa.Array:
    if a.function == "sum":
        return from_words(total, (n > 0).astype(np.uint8), a.result)
    return _decimal_mean(a, total, n)


def _wide_sum(a: Accumulator, words: Int64s) -> pa.Array:
    if a.function == "sum":
        return from_pairs(words[:, :2], (words[:, 2] > 0).astype(np.uint8), arrow_type(a.result))
    pairs, exists = means(words[:, 0], words[:, 1], words[:, 2], a.more_digits)
    return from_pairs(pairs, exists, arrow_type(a.result))


def _decimal_mean(a: Accumulator, total: Int64s, n: Int64s) -> pa.Array:
    """Returns means with four more digits, the last one rounded half up, as Spark has it."""
    count = np.maximum(n, 1)
    if len(total) and max(-int(total.min()), int(total.max())) > (1 << 62) // 20_000:
        scaled = np.array(
            [
                (2 * abs(t) * 10_000 + c) // (2 * c) * (-1 if t < 0 else 1)
                for t, c in zip(total.tolist(), count.tolist(), strict=True)
            ],
            dtype=object,
        )
        precision, scale = decimal_of(a.result) or (0, 0)
        exact = decimal.Context(prec=38)
        values = [exact.scaleb(decimal.Decimal(int(v)), -scale) if k else None for v, k in zip(scaled, n, strict=True)]
        return pa.array(values, pa.decimal128(precision, scale))
    magnitude = (2 * np.abs(total) * 10_000 + count) // (2 * count)
    return from_words(np.where(total < 0, -magnitude, magnitude), (n > 0).astype(np.uint8), a.result)


# ---------------------------------------------------------------------- footprints back in


def footprint_records(definition: AggregateDefinition, table: pa.Table, held: int) -> tuple[Int64s, Batch]:
    """Records as footprints have them, and their keys as a batch; the first word of strings points into its bytes."""
    rows = table.num_rows
    records = np.zeros((rows, definition.width), np.int64)
    records[:, START_WORD], _ = words_of(table.column(START), definition.time_type)
    records[:, END_WORD] = words_of(table.column(END), definition.time_type)[0] + definition.window.overreach
    records[:, T], _ = words_of(table.column(TAKEN_IN), "long")
    records[:, POS], _ = words_of(table.column(OFFSET), "long")
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
    return records, sealed_batch(batch._replace(bytes=pieces.bytes))


def closed_records(definition: AggregateDefinition, table: pa.Table, held: int) -> tuple[Int64s, Batch]:
    """Returns what results say of the windows that closed with them."""
    records = np.zeros((table.num_rows, definition.width), np.int64)
    records[:, POS], _ = words_of(table.column(OFFSET), "long")
    records[:, START_WORD], _ = words_of(table.column(START), definition.time_type)
    records[:, END_WORD] = words_of(table.column(END), definition.time_type)[0] + definition.window.overreach
    batch, pieces = keys_of(definition, table, held)
    return records, sealed_batch(batch._replace(bytes=pieces.bytes))


def key_and_window(definition: AggregateDefinition, records: Int64s, state: State, batch: Batch) -> str:
    """Returns the key of the first of these windows, and where it begins, for messages."""
    columns = Columns(definition, records, state, batch)
    names = [*(c for c, _ in definition.key), START]
    values: Sequence[pa.Array] = [*columns._key(), columns._time(START_WORD)]
    return ", ".join(f"{name}={value[0].as_py()!r}" for name, value in zip(names, values, strict=True))
