"""Expressions over the columns of tuples, as they are written, compared, kept in stream.json and evaluated.

A user writes them with pyarrow: `pc.field("price") * pc.field("pieces") > 100`. pyarrow's own objects can be neither
compared nor hashed, so everything else has a `Formula`: a text that says everything, and the bytes in which Arrow
itself sends an expression from one process to another.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.arrow_types import simple_type
from strandline.errors import CorruptManifestError, OptionError, SchemaError
from strandline.operators.expression_tree import Call, Column, Tree, tree_of

EXAMPLE = 'for example pc.field("price") > 0, with import pyarrow.compute as pc'


@dataclass(frozen=True, slots=True)
class Formula:
    """An expression; two are equal if Arrow writes them alike."""

    text: str = field(compare=False)
    """What it says, with types and options: where they differ, so do the texts."""
    arrow: str = field(repr=False)
    """What is evaluated: Arrow's serialisation, as text."""

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
        tree = tree_of(data)
        for function in (node.function for node in tree.nodes() if isinstance(node, Call)):
            if not _is_of_single_tuples(function):
                raise OptionError(
                    f"{what}: {function} does not compute its values tuple by tuple",
                    where=str(tree),
                    todo="use functions of single tuples; windows and aggregates are for what concerns several",
                )
        return cls(str(tree), base64.b64encode(data).decode())

    @property
    def tree(self) -> Tree:
        """Its calls, columns and literals."""
        return _tree(self.arrow)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, each once."""
        return tuple(dict.fromkeys(node.path[0] for node in self.tree.nodes() if isinstance(node, Column)))

    def known_as(self, stored: Mapping[str, str]) -> Formula:
        """With the text under which a stream has it (`stored`: texts and Arrow's form of each).

        Another Arrow may have named a function or an option otherwise; this one translates what that has written.
        """
        if self.text in stored:
            return self
        return next((replace(self, text=text) for text, arrow in stored.items() if _today(arrow) == self.arrow), self)

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
        found = self.tree.value(table)
        if isinstance(found, pa.Scalar):
            found = pa.repeat(found, table.num_rows)
        return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def schema_of(types: Mapping[str, str]) -> pa.Schema:
    """The Arrow schema of columns by Spark's names of their types; those of structs, arrays and maps are left out."""
    found = ((name, simple_type(kind)) for name, kind in types.items())
    return pa.schema([(name, kind) for name, kind in found if kind is not None])


def _is_of_single_tuples(function: str) -> bool:
    """A cast is one of the functions that Arrow puts together from others, and the only one of them that is."""
    return function == "cast" or (function != "random" and pc.get_function(function).kind == "scalar")


def _serialised(expression: Any) -> bytes:
    return bytes(expression.__reduce__()[1][0])


def _today(arrow: str) -> str | None:
    """How this Arrow writes what another has written; None if it cannot read it."""
    try:
        expression = pc.Expression._deserialize(pa.py_buffer(base64.b64decode(arrow, validate=True)))
    except (pa.ArrowException, binascii.Error):
        return None
    return base64.b64encode(_serialised(expression)).decode()


@lru_cache(maxsize=256)
def _tree(arrow: str) -> Tree:
    try:
        return tree_of(base64.b64decode(arrow, validate=True))
    except (pa.ArrowException, binascii.Error, ValueError, LookupError, StopIteration) as error:
        raise CorruptManifestError(
            f"an expression in stream.json cannot be read: {error}", todo="restore the file from a copy"
        ) from None
