"""Arrow columns as plain words or bytes, and back. Nothing here looks at rows one by one."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.arrow_types import decimal_of, simple_type
from strandline.errors import InputError
from strandline.operators.kernels.kernel_arrays import Bytes, Int64s, sealed
from strandline.operators.kernels.wide import (
    WORD_DIGITS_MAX,
    doubles,
    from_ordered_bytes,
    from_pairs,
    ordered_bytes,
    pairs_of,
)
from strandline.operators.open_windows.record import LENGTH_MAX

Column: TypeAlias = pa.Array | pa.ChunkedArray

INTEGERS = ("byte", "short", "integer", "long")
FLOATS = ("float", "double")
BYTES = ("string", "binary")
WORDS = (*INTEGERS, "boolean", "date", "timestamp", "timestamp_ntz")
"""Types whose values are whole numbers of at most 64 bits, decimals of up to 18 digits aside."""


def arrow_type(kind: str) -> pa.DataType:
    """Returns the Arrow type of a Spark type that kernels know."""
    found = simple_type(kind)
    assert found is not None, kind
    return found


def whole(column: Column) -> pa.Array:
    """Returns the column in one piece."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def validity(column: Column) -> Bytes:
    """Returns 1 where there is a value, 0 where there is none."""
    array = whole(column)
    if array.null_count == 0:
        return sealed(np.ones(len(array), np.uint8))
    return sealed(np.asarray(array.is_valid()).astype(np.uint8))


def words_of(column: Column, kind: str) -> tuple[Int64s, Bytes]:
    """Returns whole numbers (integers, booleans, dates, timestamps, decimals without their point) and validity."""
    array = whole(column)
    valid = validity(array)
    if decimal_of(kind):
        low = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset : 2 * (array.offset + len(array)) : 2]
        return sealed(np.where(valid, low, 0)), valid
    if array.null_count:
        array = array.fill_null(pa.scalar(0, pa.int64()).cast(_plain(array.type)).cast(array.type))
    if pa.types.is_boolean(array.type):
        return sealed(np.asarray(array.cast(pa.uint8())).astype(np.int64)), valid
    return sealed(np.asarray(array.view(_plain(array.type))).astype(np.int64, copy=False)), valid


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date(kind) else kind


def wide_words_of(column: Column) -> tuple[Int64s, Int64s, Bytes]:
    """Returns low and high words of decimals, and validity."""
    array = whole(column)
    valid = validity(array)
    pairs = np.where(valid[:, None] != 0, pairs_of(array), 0)
    return sealed(pairs[:, 0]), sealed(pairs[:, 1]), valid


def doubles_of(column: Column, kind: str) -> tuple[Int64s, Bytes]:
    """Numbers as doubles, their bits in words, and validity."""
    array = whole(column)
    valid = validity(array)
    decimal = decimal_of(kind)
    if decimal:
        if decimal[0] > WORD_DIGITS_MAX:
            return sealed(np.where(valid, doubles(pairs_of(array), decimal[1]), 0.0).view(np.int64)), valid
        words, _ = words_of(array, kind)
        return sealed((words / 10.0 ** decimal[1]).view(np.int64)), valid
    if array.null_count:
        array = array.fill_null(pa.scalar(0, array.type))
    return sealed(np.ascontiguousarray(np.asarray(array).astype(np.float64, copy=False)).view(np.int64)), valid


def bytes_of(column: Column, kind: str) -> tuple[Int64s, Bytes, Bytes]:
    """Returns where each value begins (and the last ends), the bytes, and validity."""
    array = whole(column)
    valid = validity(array)
    if decimal_of(kind):
        data = ordered_bytes(pairs_of(array)).reshape(-1)
        return sealed(np.arange(len(array) + 1, dtype=np.int64) * 16), sealed(data), valid
    if array.null_count:  # the bytes under a null mean nothing
        array = array.fill_null(b"" if kind == "binary" else "")
    buffers = array.buffers()
    starts = np.frombuffer(buffers[1], np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    data = np.frombuffer(buffers[2], np.uint8) if buffers[2] else np.empty(0, np.uint8)
    if len(starts) and np.diff(starts).max(initial=0) > LENGTH_MAX:
        raise InputError(
            f"a value has {np.diff(starts).max()} bytes", todo=f"operators take at most {LENGTH_MAX} bytes a value"
        )
    return sealed(starts), sealed(data), valid


def from_words(words: Int64s, valid: npt.NDArray[np.uint8], kind: str) -> pa.Array:
    """Returns the column that `words_of` took apart."""
    mask = None if valid.all() else valid == 0
    if decimal_of(kind):
        return from_pairs(np.stack([words, words >> 63], axis=1), valid, arrow_type(kind))
    target = arrow_type(kind)
    if kind == "boolean":
        return pa.array(words != 0, mask=mask)
    return pa.array(words, pa.int64(), mask=mask).cast(_plain(target)).view(target)


def from_doubles(words: Int64s, valid: npt.NDArray[np.uint8], kind: str) -> pa.Array:
    """Returns the column that `doubles_of` took apart (floats only)."""
    mask = None if valid.all() else valid == 0
    return pa.array(words.view(np.float64), pa.float64(), mask=mask).cast(arrow_type(kind), safe=False)


def from_bytes(starts: Int64s, data: Bytes, valid: npt.NDArray[np.uint8], kind: str) -> pa.Array:
    """Returns the column that `bytes_of` took apart."""
    bits = None if valid.all() else pa.array(valid != 0).buffers()[1]
    if decimal_of(kind):
        pairs = np.zeros((len(valid), 2), np.int64)
        pairs[valid != 0] = from_ordered_bytes(data)
        return from_pairs(pairs, valid, arrow_type(kind))
    if starts[-1] > np.iinfo(np.int32).max:
        raise InputError("more than 2 GiB of strings in one step", todo="use smaller batches (max_tuples_per_batch)")
    return pa.Array.from_buffers(
        arrow_type(kind), len(valid), [bits, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(data)]
    )


def null_column(kind: str, rows: int) -> pa.Array:
    """Returns a column without values."""
    return pa.nulls(rows, arrow_type(kind))
