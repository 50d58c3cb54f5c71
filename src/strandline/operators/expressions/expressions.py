"""Expressions over the columns of tuples, as they are written, compared, kept in stream.json and evaluated.

A user writes them with pyarrow: `pc.field("price") * pc.field("pieces") > 100`. pyarrow's own objects can be neither
compared nor hashed, so everything else has a `Formula`: a text that says everything, and the bytes in which Arrow
itself sends an expression from one process to another.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from strandline.arrow_types import simple_type
from strandline.errors import CorruptManifestError, OptionError, SchemaError
from strandline.operators.expressions.expression_tree import Call, Column, Tree, nodes, tree_of

VALUE_ERRORS = (pa.ArrowInvalid, pa.ArrowIndexError)
"""The errors of Arrow about values: division by zero, a text that is no number, a product that does not fit."""
EXAMPLE = 'for example pc.field("price") > 0, with import pyarrow.compute as pc'


@dataclass(frozen=True, slots=True)
class Formula:
    """An expression; two are equal if Arrow writes them alike."""

    text: str = field(compare=False)
    """The expression in words, with types and options: where they differ, so do the texts."""
    arrow: str = field(repr=False)
    """The expression that is evaluated: Arrow's serialisation, as text."""

    @classmethod
    def of(cls, expression: Any, what: str) -> Formula:
        """Returns the formula of a pyarrow expression; raises `OptionError` about `what` otherwise.

        What a tuple gives must depend on nothing but the tuple: not on its neighbours, nor on chance.
        """
        if not isinstance(expression, pc.Expression):
            raise OptionError(
                f"{what}: {expression!r} is not a pyarrow expression", todo=f"write an expression, {EXAMPLE}"
            )
        try:
            data = _serialised(expression)
        except pa.ArrowNotImplementedError:
            raise OptionError(
                f"{what}: {expression} refers to a column by its place", todo='name the columns: pc.field("price")'
            ) from None
        tree = tree_of(data)
        for function in (node.function for node in nodes(tree) if isinstance(node, Call)):
            if not _is_of_arrow(function):
                raise OptionError(
                    f"{what}: {function} is a function of this process, and Spark's workers do not have it",
                    where=str(tree),
                    todo="use functions of pyarrow.compute, or compute the column with Spark, before sl.source(…)",
                )
            if not _is_of_single_tuples(function):
                raise OptionError(
                    f"{what}: {function} does not compute its values tuple by tuple",
                    where=str(tree),
                    todo="use functions of single tuples; for several tuples use windows and aggregates",
                )
        return cls(str(tree), base64.b64encode(data).decode())

    @property
    def tree(self) -> Tree:
        """Its calls, columns and literals."""
        return _tree(self.arrow)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, each once."""
        return tuple(dict.fromkeys(node.path[0] for node in nodes(self.tree) if isinstance(node, Column)))

    def known_as(self, stored: Mapping[str, str]) -> Formula:
        """Returns the formula with the stream's text (`stored`: texts and Arrow's form of each).

        Another Arrow may have named a function or an option otherwise; this one translates what that has written.
        """
        if self.text in stored:
            return self
        return next((replace(self, text=text) for text, arrow in stored.items() if _today(arrow) == self.arrow), self)

    def type_over(self, schema: pa.Schema, what: str) -> pa.DataType:
        """Returns the type of its values over this schema; SchemaError about `what` if it cannot be computed."""
        for column in self.columns:
            if column not in schema.names:
                raise SchemaError(
                    f"{what}: there is no column {column!r}",
                    where=f"columns: {', '.join(schema.names)}",
                    todo="name a column of the input stream",
                )
        kinds = [schema.field(column).type for column in self.columns]
        found: Exception | None = None
        for row in _rows(self.columns, kinds):
            try:
                return self.over(row).type
            except VALUE_ERRORS as error:
                found = found or error
            except (pa.ArrowException, NotImplementedError) as error:
                found = error
                break
        raise SchemaError(
            f"{what}: {self.text} cannot be computed: {str(found).splitlines()[0]}",
            where=", ".join(f"{column} {kind}" for column, kind in zip(self.columns, kinds, strict=True)),
            todo=_way_out(kinds),
        ) from None

    def require_truth(self, schema: pa.Schema, what: str, shown: str) -> None:
        """Raises SchemaError if its values over this schema are not true or false; see `type_over` for `what`."""
        kind = self.type_over(schema, what)
        if not pa.types.is_boolean(kind):
            raise SchemaError(f"{shown} is a {kind}, not true or false", todo='compare it: pc.field("price") > 0')

    def over(self, table: pa.Table) -> pa.ChunkedArray:
        """Returns its value for each row of the table, in their order."""
        found = self.tree.value(table)
        if isinstance(found, pa.Scalar):
            found = pa.repeat(found, table.num_rows)
        return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found])


def schema_of(types: Mapping[str, str]) -> pa.Schema:
    """Returns the Arrow schema of columns with these Spark types, without structs, arrays and maps."""
    found = ((name, simple_type(kind)) for name, kind in types.items())
    return pa.schema([(name, kind) for name, kind in found if kind is not None])


def _rows(columns: Sequence[str], kinds: Sequence[pa.DataType]) -> Iterator[pa.Table]:
    """Yields a row of nulls, then one of ones: without a row Arrow would run nothing and find no error.

    Expressions of which each row gives an error are wrong, whatever the tuples are; one row alone may be to blame.
    """
    fields = list(zip(columns, kinds, strict=True))
    yield pa.table({"": pa.nulls(1), **{column: pa.nulls(1, kind) for column, kind in fields}})
    yield pa.table({"": pa.nulls(1), **{column: _one(kind) for column, kind in fields}})


def _one(kind: pa.DataType) -> pa.Array:
    """Returns it as a value of this type, null if it has none."""
    for one in (pa.array([1]), pa.array([1], pa.int32()), pa.array(["1"])):
        with suppress(pa.ArrowException):
            return one.cast(kind)
    return pa.nulls(1, kind)


def _way_out(kinds: Sequence[pa.DataType]) -> str:
    """Returns what to do about an expression over columns of these types that cannot be computed."""
    if any(pa.types.is_timestamp(kind) and kind.tz for kind in kinds):
        return "compare times with a datetime that says its zone: datetime(2026, 1, 31, tzinfo=timezone.utc)"
    if any(pa.types.is_timestamp(kind) or pa.types.is_date(kind) for kind in kinds):
        return (
            "compare times with a datetime without a zone, dates with a date: datetime(2026, 1, 31), date(2026, 1, 31)"
        )
    if any(pa.types.is_decimal(kind) for kind in kinds):
        return 'cast it to fewer digits, for example pc.field("price").cast(pa.decimal128(18, 2)); 38 are the most'
    return 'cast a column or a number, for example pc.field("price").cast("double")'


def _is_of_arrow(function: str) -> bool:
    """Returns whether a function is Arrow's own, and not registered by a user in this process only.

    pyarrow makes a Python function of each when it is imported; only a cast has one that was written by hand.
    """
    return function in ("cast", "random") or hasattr(getattr(pc, function, None), "__arrow_compute_function__")


def _is_of_single_tuples(function: str) -> bool:
    """Returns whether a function works on single tuples. A cast does, though Arrow makes it of other functions."""
    return function == "cast" or (function != "random" and pc.get_function(function).kind == "scalar")


def _serialised(expression: Any) -> bytes:
    return bytes(expression.__reduce__()[1][0])


def _today(arrow: str) -> str | None:
    """Returns how this Arrow writes what another has written; None if it cannot read it."""
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
