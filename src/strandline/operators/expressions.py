"""Expressions over the columns of tuples, as they are written, compared, kept in stream.json and evaluated.

A user writes them with pyarrow: `pc.field("price") * pc.field("pieces") > 100`. pyarrow's own objects can be neither
compared nor hashed, and tell nothing about themselves but their text, so everything else has a `Formula`: that text,
and the bytes in which Arrow itself sends an expression from one process to another.
"""

from __future__ import annotations

import base64
import binascii
import ctypes
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from strandline.arrow_types import simple_type
from strandline.errors import CorruptManifestError, OptionError, SchemaError

EXAMPLE = 'for example pc.field("price") > 0, with import pyarrow.compute as pc'


@dataclass(frozen=True, slots=True)
class Formula:
    """An expression; two are equal if they say the same."""

    text: str
    """What it says, in full: equal texts compute the same."""
    arrow: str = field(compare=False, repr=False)
    """How it goes back into an expression: Arrow's serialisation, as text."""

    @classmethod
    def of(cls, expression: Any, what: str) -> Formula:
        """The formula of a pyarrow expression; `OptionError` about `what` if it is none, or not one of single tuples.

        What a tuple gives must depend on nothing but the tuple: not on its neighbours, nor on chance.
        """
        if not isinstance(expression, pc.Expression):
            raise OptionError(f"{what}: {expression!r} is not a pyarrow expression", todo=f"write it so, {EXAMPLE}")
        try:
            data = _serialised(expression)
        except pa.ArrowNotImplementedError:
            raise OptionError(
                f"{what}: {expression} refers to a column by its place", todo='name the columns: pc.field("price")'
            ) from None
        for key, function in _parts(data):
            if key == b"call" and not _is_of_single_tuples(function.decode()):
                raise OptionError(
                    f"{what}: {function.decode()} does not compute its values tuple by tuple",
                    where=str(expression),
                    todo="use functions of single tuples; windows and aggregates are for what concerns several",
                )
        return cls(_text(expression, data), base64.b64encode(data).decode())

    @classmethod
    def from_json(cls, body: Mapping[str, str]) -> Formula:
        """What `to_json` gave."""
        return cls(body["text"], body["arrow"])

    def to_json(self) -> dict[str, str]:
        """For stream.json. `text` is what has to be the same for as long as the stream lives; `arrow` is not."""
        return {"text": self.text, "arrow": self.arrow}

    @property
    def expression(self) -> Any:
        """As pyarrow has it."""
        return _expression(self.arrow)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, each once."""
        return _columns(self.arrow)

    def type_over(self, schema: pa.Schema, what: str) -> pa.DataType:
        """The type of its values over tuples of this schema; `SchemaError` about `what` if it cannot be computed."""
        for column in self.columns:
            if column not in schema.names:
                raise SchemaError(
                    f"{what}: there is no column {column!r}",
                    where=f"columns: {', '.join(schema.names)}",
                    todo="name a column of the input stream",
                )
        try:
            return self.over(schema.empty_table()).type
        except (pa.ArrowException, NotImplementedError) as error:
            raise SchemaError(
                f"{what}: {self.text} cannot be computed: {str(error).splitlines()[0]}",
                where=", ".join(f"{c} {schema.field(c).type}" for c in self.columns),
                todo='cast a column or a number, for example pc.field("price").cast("double")',
            ) from None

    def over(self, table: pa.Table) -> pa.ChunkedArray:
        """Its value for each row of the table, in their order."""
        from pyarrow.acero import Declaration, ProjectNodeOptions, TableSourceNodeOptions  # half a second to load

        rows = Declaration("table_source", TableSourceNodeOptions(table))
        value = Declaration("project", ProjectNodeOptions([self.expression], ["value"]))
        return Declaration.from_sequence([rows, value]).to_table(use_threads=False).column(0)


def canonical(expression: Any) -> str:
    """The text of an expression, the same for those that compute the same."""
    return Formula.of(expression, "an expression").text


def schema_of(types: Mapping[str, str]) -> pa.Schema:
    """The Arrow schema of columns by Spark's names of their types; those of structs, arrays and maps are left out."""
    found = ((name, simple_type(kind)) for name, kind in types.items())
    return pa.schema([(name, kind) for name, kind in found if kind is not None])


def _text(expression: Any, data: bytes) -> str:
    """pyarrow's text. Lists come in it over several lines and shortened, so a checksum stands for their values."""
    text = str(expression)
    if "\n" not in text:
        return text
    values = repr([c.to_pylist() for c in pa.ipc.open_file(pa.py_buffer(data)).read_all().columns])
    return re.sub(r"\n\s*", " ", text) + f" #{xxhash.xxh3_64_hexdigest(values.encode())}"


def _is_of_single_tuples(function: str) -> bool:
    """A cast is one of the functions that Arrow puts together from others, and the only one of them that is."""
    return function == "cast" or (function != "random" and pc.get_function(function).kind == "scalar")


def _serialised(expression: Any) -> bytes:
    return bytes(expression.__reduce__()[1][0])


@lru_cache(maxsize=64)
def _expression(arrow: str) -> Any:
    try:
        return pc.Expression._deserialize(pa.py_buffer(base64.b64decode(arrow, validate=True)))
    except (pa.ArrowException, binascii.Error) as error:
        raise CorruptManifestError(
            f"an expression in stream.json cannot be read: {error}", todo="restore the file from a copy"
        ) from None


@lru_cache(maxsize=64)
def _columns(arrow: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    inner = 0
    for key, value in _parts(base64.b64decode(arrow)):
        if key == b"nested_field_ref":
            inner = int(value)
        elif key == b"field_ref":
            found |= {} if inner < 0 else {value.decode(): None}
            inner = -(abs(inner) - 1) if abs(inner) > 1 else 0
    return tuple(found)


def _parts(data: bytes) -> list[tuple[bytes, bytes]]:
    """What a serialised expression is made of: calls, columns, literals, in the order of its text.

    They are metadata of an Arrow schema, some with the same key. pyarrow shows those as a dictionary, of each key the
    last, but hands them out in full through Arrow's C data interface: a count, then lengths and bytes.
    """
    capsule = pa.ipc.open_file(pa.py_buffer(data)).schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = ctypes.cast(pointer(capsule, b"arrow_schema"), ctypes.POINTER(ctypes.c_void_p))[2]
    found: list[bytes] = []
    if at:
        count = ctypes.c_int32.from_address(at).value
        at += 4
        for _ in range(2 * count):
            length = ctypes.c_int32.from_address(at).value
            found.append(ctypes.string_at(at + 4, length))
            at += 4 + length
    return list(zip(found[::2], found[1::2], strict=True))
