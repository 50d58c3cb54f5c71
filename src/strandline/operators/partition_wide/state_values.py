"""The state of a user's object as rows of bytes, and back: by name, type and piece, nothing is pickled.

A value is its bytes, in pieces of bounded size, beside a word about its type in JSON:

    {"numpy": "<f8", "shape": [3, 4], "order": "C"}     an array; "order" says how its elements lie
    {"number": "<f4"}                                   a NumPy number
    {"arrow": "array"}, {"arrow": "chunked"}            an Arrow array, as a stream of Arrow's IPC with one column
    "boolean", "integer", "double", "string", "bytes"   Python's own; an integer is its digits
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from strandline.errors import CorruptManifestError, InputError

CELL_BYTES_MAX = 1 << 20
"""A row has so many bytes of a value at most."""
_PLAIN_DTYPES = "biufcmMSU"
_PLAIN_TYPES = ("boolean", "integer", "double", "string", "bytes")
_DIMENSIONS_MAX = 32


@dataclass(frozen=True, slots=True)
class StateRow:
    """A piece of a value."""

    name: str | None
    """None in the only row of a state without values."""
    kind: str | None
    data: bytes

    def checksum(self, number: int) -> int:
        """Returns a checksum over the row and its place in the state; it fits 64 bits with a sign."""
        digest = xxhash.xxh3_64(json.dumps([number, self.name, self.kind]).encode())
        digest.update(self.data)
        return int(digest.intdigest()) - (1 << 63)


State = Sequence[StateRow]
"""A whole state, in order; it has at least one row."""


def state_bytes(state: State) -> int:
    """Returns how much there is of it."""
    return sum(len(row.data) for row in state)


def encoded(values: Any, owner: str) -> State:
    """Returns the rows of `get_checkpoint`'s value; raises InputError with the name of a value that cannot be saved."""
    if not isinstance(values, dict):
        raise InputError(
            f"{owner}.get_checkpoint returned {_type(values)}, not a dict",
            todo="return a dict of names and values; {} if there is no state",
        )
    rows = [row for name, value in values.items() for row in _rows(name, value, owner)]
    return rows or [StateRow(None, None, b"")]


def decoded(state: State) -> dict[str, Any]:
    """Returns what `get_checkpoint` returned, in new objects that may be written to."""
    return {name: _value(json.loads(kinds[-1]), b"".join(pieces)) for name, (kinds, pieces) in _by_name(state).items()}


def _by_name(state: State) -> dict[str, tuple[list[str], list[bytes]]]:
    """Returns of each value the words about its type, and its bytes, a piece a row."""
    found: dict[str, tuple[list[str], list[bytes]]] = {}
    for row in state:
        if row.name is not None and row.kind is not None:
            kinds, pieces = found.setdefault(row.name, ([], []))
            kinds.append(row.kind)
            pieces.append(row.data)
    return found


def first_unsound(state: State) -> str | None:
    """Returns the name of the first value that `decoded` could not make of its bytes; None if there is none.

    The bytes are of a file: what NumPy and Arrow would believe is checked here, large arrays without a copy.
    """
    for row in state:
        if (row.name is None or row.kind is None) and len(state) > 1:
            return str(row.name)
    for name, (kinds, pieces) in _by_name(state).items():
        try:
            (kind,) = set(kinds)
            _require_sound(json.loads(kind), pieces)
        except (ValueError, TypeError, KeyError, IndexError, struct.error, pa.ArrowException, OSError, RecursionError):
            return name
    return None


def require_whole(found: Sequence[tuple[int, int, StateRow]], rows: int, where: str) -> State:
    """Returns the rows in their order, checked by their checksums; raises CorruptManifestError if one is missing."""
    by_number = {number: row for number, checksum, row in found if row.checksum(number) == checksum}
    if len(by_number) != rows or len(found) != rows or any(number not in by_number for number in range(rows)):
        raise CorruptManifestError(
            f"of the {rows:,} rows of a saved state {len(by_number):,} are there and sound",
            where=where,
            todo="run `strandline verify` on the stream",
        )
    return [by_number[number] for number in range(rows)]


# ---------------------------------------------------------------------- into bytes


def _rows(name: Any, value: Any, owner: str) -> Iterator[StateRow]:
    if not isinstance(name, str):
        raise InputError(
            f"{owner}.get_checkpoint: the name {name!r} is of type {_type(name)}", todo="names are texts: str(name)"
        )
    if not name or name.startswith("_"):
        raise InputError(
            f"{owner}.get_checkpoint: the name {name!r} is reserved",
            todo="use a name with letters that does not begin with _",
        )
    found = _bytes_of(value)
    if found is None:
        raise InputError(
            f"{owner}.get_checkpoint: {name!r} is of type {_type(value)}, which cannot be saved",
            todo="return NumPy arrays (not of objects), Arrow arrays, numbers, truth values, texts or bytes; nothing "
            "is pickled, so take others apart into them",
        )
    kind, data = json.dumps(found[0]), memoryview(found[1])
    for first in range(0, max(1, len(data)), CELL_BYTES_MAX):
        yield StateRow(name, kind, bytes(data[first : first + CELL_BYTES_MAX]))


def _bytes_of(value: Any) -> tuple[Any, bytes | memoryview] | None:
    """Returns the word about its type and the bytes of a value; None if it cannot be saved."""
    if type(value) is np.ndarray:
        return _of_numpy(value)
    if isinstance(value, np.generic):
        return ({"number": value.dtype.str}, value.tobytes()) if value.dtype.kind in _PLAIN_DTYPES else None
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return {"arrow": "array" if isinstance(value, pa.Array) else "chunked"}, _ipc(value)
    if type(value) is bool:
        return "boolean", b"\1" if value else b"\0"
    if type(value) is int:
        return "integer", hex(value).encode()
    if type(value) is float:
        return "double", struct.pack("<d", value)
    if type(value) is str:
        return "string", value.encode("utf-8", "surrogatepass")
    return ("bytes", value) if type(value) is bytes else None


def _of_numpy(array: np.ndarray[Any, Any]) -> tuple[Any, bytes | memoryview] | None:
    if array.dtype.kind not in _PLAIN_DTYPES:
        return None
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    flat = np.ravel(array, order=order)  # type: ignore[call-overload]
    shape = {"numpy": array.dtype.str, "shape": list(array.shape), "order": order}
    return shape, memoryview(flat.view(np.uint8)) if flat.size and flat.dtype.itemsize else b""


def _ipc(value: pa.Array | pa.ChunkedArray) -> memoryview:
    sink = pa.BufferOutputStream()
    table = pa.table([value], names=["value"])
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def _type(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{type(value).__module__}.{type(value).__qualname__} of {value.dtype}"
    module = type(value).__module__
    return type(value).__qualname__ if module == "builtins" else f"{module}.{type(value).__qualname__}"


# ---------------------------------------------------------------------- and back


def _require_sound(kind: Any, pieces: Sequence[bytes]) -> None:
    """Raises any of several errors if these bytes are no such value."""
    if kind in (*_PLAIN_TYPES, {"arrow": "array"}, {"arrow": "chunked"}):
        _value(kind, b"".join(pieces))
        return
    if "number" in kind:
        kind = {"numpy": kind["number"], "shape": [], "order": "C"}
    dtype, shape = np.dtype(kind["numpy"]), kind["shape"]
    is_shape = len(shape) <= _DIMENSIONS_MAX and all(type(n) is int and n >= 0 for n in shape)
    if dtype.kind not in _PLAIN_DTYPES or not is_shape or kind["order"] not in ("C", "F"):
        raise ValueError(kind)
    if sum(map(len, pieces)) != math.prod(shape) * dtype.itemsize:
        raise ValueError(kind)
    if dtype.kind == "b" and any(np.frombuffer(piece, np.uint8).max(initial=0) > 1 for piece in pieces):
        raise ValueError("NumPy counts on truth values that are 0 or 1")


def _value(kind: Any, data: bytes) -> Any:
    if isinstance(kind, Mapping):
        return _array(kind, data)
    if kind == "boolean":
        return data == b"\1"
    if kind == "integer":
        return int(data, 16)
    if kind == "double":
        return struct.unpack("<d", data)[0]
    return data.decode("utf-8", "surrogatepass") if kind == "string" else data


def _array(kind: Mapping[str, Any], data: bytes) -> Any:
    if "arrow" in kind:
        table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)  # Arrow believes what a stream says of places in its bytes
        (column,) = table.columns
        return column if kind["arrow"] == "chunked" else _one(column)
    if "number" in kind:
        return np.frombuffer(data, kind["number"])[0]
    dtype = np.dtype(kind["numpy"])
    flat = np.frombuffer(bytearray(data), dtype) if dtype.itemsize and data else np.zeros(kind["shape"], dtype)
    return flat.reshape(kind["shape"], order=kind["order"])


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
