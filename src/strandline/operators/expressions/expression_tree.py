"""An expression as a tree of calls, columns and literals: its text, and its values over a table.

pyarrow's own objects tell neither the type of a literal nor all options of a call. And where Arrow evaluates them
itself, it makes literals as narrow as they fit: over integers `* 1.5` is computed in 32-bit floats. So the tree is read
from Arrow's serialisation, and its calls are those that `pyarrow.compute` makes over arrays, literals as they are.
"""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

_INFIX = {
    "and_kleene": "and",
    "or_kleene": "or",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "add_checked": "+",
    "subtract_checked": "-",
    "multiply_checked": "*",
    "divide_checked": "/",
}
_PLAIN_NAME = re.compile(r"(?!(?:true|false|null|nan|inf|and|or)$)[^\W\d]\w*")
_SHOWN_MAX = 10
"""So many values of a list are in a text; of a longer one a few, and a checksum of all."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or by further names what is inside of a struct."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(n if _PLAIN_NAME.fullmatch(n) else "`" + n.replace("`", "``") + "`" for n in self.path)

    def value(self, table: pa.Table) -> Any:
        """Returns the value of each row."""
        found = table.column(self.path[0])
        return pc.struct_field(found, list(self.path[1:])) if len(self.path) > 1 else found


@dataclass(frozen=True, slots=True)
class Literal:
    """A value of a type."""

    scalar: Any

    def __str__(self) -> str:
        return value_text(self.scalar)

    def value(self, _: pa.Table) -> Any:
        """Returns the value, which all rows have."""
        return self.scalar


@dataclass(frozen=True, slots=True)
class Call:
    """A function of Arrow over what its arguments give."""

    function: str
    arguments: tuple[Column | Literal | Call, ...]
    options: Any
    """A struct with Arrow's own names; None if there are none."""
    arrow_options: Any

    def __str__(self) -> str:
        given = [str(argument) for argument in self.arguments]
        if self.function in _INFIX and self.options is None and len(given) == 2:
            return f"({given[0]} {_INFIX[self.function]} {given[1]})"
        return f"{self.function}({', '.join([*given, *_option_texts(self.options)])})"

    def value(self, table: pa.Table) -> Any:
        """Returns the value of each row; a scalar if there is no column in it."""
        given = [argument.value(table) for argument in self.arguments]
        kinds = [value.type for value in given]
        if any(pa.types.is_decimal(kind) for kind in kinds):
            given = [_exact(v) if isinstance(a, Literal) else v for a, v in zip(self.arguments, given, strict=True)]
        elif pa.float32() in kinds and any(pa.types.is_integer(kind) for kind in kinds):
            # Arrow would make floats of the integers, and fail from 16,777,217 on.
            given = [value.cast(pa.float64()) if value.type == pa.float32() else value for value in given]
        return pc.call_function(self.function, given, self.arrow_options)


Tree = Column | Literal | Call


def nodes(tree: Tree) -> Iterator[Tree]:
    """Yields the tree and all that are in it, from left to right."""
    yield tree
    for argument in tree.arguments if isinstance(tree, Call) else ():
        yield from nodes(argument)


def _exact(scalar: Any) -> Any:
    """Returns an integer beside decimals as a decimal of its digits: as a long it would have 19 of them."""
    return pa.scalar(Decimal(scalar.as_py())) if pa.types.is_integer(scalar.type) and scalar.is_valid else scalar


# ---------------------------------------------------------------------- texts


def value_text(scalar: Any) -> str:
    """Returns a value, and its type unless that is seen: those of true, 1, 1.0 and "1" are.

    >>> [value_text(pa.scalar(v)) for v in (True, 1, 1.0, "1", b"1", None, Decimal("1.0"), [1, None])]
    ['true', '1', '1.0', '"1"', 'binary(31)', 'null', 'decimal128(2, 1)(1.0)', 'int64[1, null]']
    """
    kind = scalar.type
    if not scalar.is_valid:
        return "null" if pa.types.is_null(kind) else f"null({kind})"
    if pa.types.is_nested(kind):
        return f"{kind.value_type if pa.types.is_list(kind) else kind}{_nested_text(scalar)}"
    bare = _bare_text(scalar)
    return bare if kind in (pa.bool_(), pa.int64(), pa.float64(), pa.string()) else f"{kind}({bare})"


def _bare_text(scalar: Any) -> str:
    """Returns the text of a value without its type."""
    kind = scalar.type
    if not scalar.is_valid:
        return "null"
    if pa.types.is_nested(kind):
        return _nested_text(scalar)
    if pa.types.is_floating(kind):
        return repr(float(scalar.as_py()))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return json.dumps(scalar.as_py(), ensure_ascii=False)
    if isinstance(scalar.as_py(), bytes):
        return str(scalar.as_py().hex())
    try:
        return str(scalar.cast(pa.string()).as_py())
    except pa.ArrowException:
        return repr(scalar.as_py())


def _nested_text(scalar: Any) -> str:
    if pa.types.is_struct(scalar.type):
        return "{" + ", ".join(f"{name}={_bare_text(scalar[i])}" for i, name in enumerate(scalar)) + "}"
    if not hasattr(scalar, "values"):
        return repr(scalar.as_py())
    each = [_bare_text(value) for value in scalar.values]
    if len(each) <= _SHOWN_MAX:
        return f"[{', '.join(each)}]"
    digest = xxhash.xxh3_64_hexdigest("\n".join(each).encode())
    return f"[{', '.join(each[:3])}, … {len(each)} values #{digest}]"


def _option_texts(options: Any) -> list[str]:
    """Returns the options that are not false: one that a later Arrow adds, and that is off, changes no text."""
    if options is None:
        return []
    given = {name: options[name] for name in options if name != "_type_name"}
    return [
        f"{name}={value_text(value) if value.is_valid else value.type}"
        for name, value in given.items()
        if not (pa.types.is_boolean(value.type) and value.as_py() is False)
    ]


# ---------------------------------------------------------------------- from Arrow's serialisation


def tree_of(data: bytes) -> Tree:
    """Returns the tree of a serialised expression."""
    file = pa.ipc.open_file(pa.py_buffer(data))
    values = file.read_all()
    parts = iter(_parts(file.schema))

    def value(place: bytes) -> Any:
        return values.column(int(place))[0]

    def read(key: bytes, given: bytes) -> Tree:
        if key == b"literal":
            return Literal(value(given))
        if key == b"field_ref":
            return Column((given.decode(),))
        if key == b"nested_field_ref":
            return Column(tuple([next(parts)[1].decode() for _ in range(int(given))]))
        arguments: list[Tree] = []
        options = arrow_options = None
        for inner, what in parts:
            if inner == b"end":
                break
            if inner == b"options":
                options = value(what)
                arrow_options = _arrow_options(values.select([int(what)]))
            else:
                arguments.append(read(inner, what))
        return Call(given.decode(), tuple(arguments), options, arrow_options)

    return read(*next(parts))


def _arrow_options(one: pa.Table) -> Any:
    """Returns what `call_function` takes. Arrow reads options from what it writes of them: a file of one struct."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, one.schema) as writer:
        writer.write_table(one)
    return pc.FunctionOptions.deserialize(sink.getvalue())


def _parts(schema: pa.Schema) -> list[tuple[bytes, bytes]]:
    """Returns what a serialised expression is made of: calls, columns, literals, in the order of its text.

    They are metadata of an Arrow schema, some with the same key. pyarrow shows those as a dictionary, of each key the
    last, but hands them out in full through Arrow's C data interface: a count, then lengths and bytes.
    """
    capsule = schema.__arrow_c_schema__()
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
