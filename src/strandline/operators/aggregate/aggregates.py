"""Aggregates: what is computed over the tuples of a window, how its state is kept, and what type comes out.

Types go by Spark's names ("long", "decimal(10,2)"), results and nulls follow Spark SQL. The state of an aggregate is
one to three 64-bit words in the record of its window; `Op` says which words, and what a tuple does to them.
"""

from __future__ import annotations

import builtins
import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from strandline.arrow_types import decimal_of
from strandline.card import card
from strandline.errors import OptionError, SchemaError
from strandline.operators.expressions.expressions import Formula
from strandline.operators.kernels.arrow_words import BYTES, FLOATS, INTEGERS, WORDS
from strandline.operators.kernels.wide import DIGITS_MAX, WORD_DIGITS_MAX

APPROXIMATE = "_is_approximate"
"""Behind the name of a result in the column that says whether it is one."""
EXACT_UP_TO, EXACT_MAX = 1_000, 1_000_000


class Op(enum.IntEnum):
    """The effect of a tuple on the state. The comment names the words; FLAG is 0 (no value), 1 (a value), 2 (null)."""

    COUNT = 0  # n
    SUM_INT = 1  # sum, n
    SUM_FLOAT = 2  # sum, n
    MOMENTS = 3  # n, mean, m2
    MIN_INT = 4  # value, flag
    MAX_INT = 5  # value, flag
    MIN_FLOAT = 6  # value, flag
    MAX_FLOAT = 7  # value, flag
    MIN_BYTES = 8  # value, flag
    MAX_BYTES = 9  # value, flag
    FIRST = 10  # value, flag
    LAST = 11  # value, flag
    NOTHING = 12  # no words: for an operator that only counts tuples, which every window does anyway
    SUM_WIDE = 13  # low and high word of the sum, n
    FIRST_WHERE = 14  # value, flag, the offset of its tuple
    LAST_WHERE = 15  # value, flag, the offset of its tuple
    SKETCH = 16  # where the bytes of a sketch lie; see `sketches.py`
    HITS = 17  # the number of the window while a kernel runs: for the sketches behind it, of no aggregate of its own


class Read(enum.Enum):
    """How the values of a column reach the kernel."""

    VALIDITY = "validity"  # null or not
    INTEGER = "integer"  # a 64-bit integer
    FLOAT = "float"  # a double, its bits in a word
    BYTES = "bytes"  # where its bytes lie
    WIDE = "wide"  # the low word of 128 bits; the input behind it has the high one
    HIGH = "high"  # the high word of 128 bits


_PARTS = {
    Op.COUNT: (("n", "long"),),
    Op.SUM_INT: (("sum", "long"), ("n", "long")),
    Op.SUM_FLOAT: (("sum", "double"), ("n", "long")),
    Op.MOMENTS: (("n", "long"), ("mean", "double"), ("m2", "double")),
}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A function over a column, as the user writes it: `avg("item_price", where=pc.field("pieces") > 0)`."""

    function: str
    column: str | None = None
    where: Formula | None = None
    """Which tuples it takes; None: all."""
    options: tuple[tuple[str, Any], ...] = ()
    """The other options of the user, by name."""

    def __repr__(self) -> str:
        """Returns the call that makes it."""
        column = [] if self.column is None else [json.dumps(self.column, ensure_ascii=False)]
        usual = ("exact_up_to", EXACT_UP_TO)
        options = [str(v) if name == "p" else f"{name}={v}" for name, v in self.options if (name, v) != usual]
        where = [] if self.where is None else [f"where={self.where.text}"]
        return f"{self.function}({', '.join([*column, *options, *where])})"

    def _repr_html_(self) -> str:
        return card(repr(self), {})

    def to_json(self, kind: str) -> list[Any]:
        """Returns the JSON for stream.json; `kind` is the column's type."""
        more = {**dict(self.options), **({"where": self.where.text} if self.where is not None else {})}
        return [self.function, self.column, kind, *([more] if more else [])]

    @classmethod
    def from_json(cls, body: Sequence[Any], expressions: Mapping[str, str]) -> Aggregate:
        """Returns what `to_json` gave; `expressions` has Arrow's form of each text."""
        function, column, _, *rest = body
        options = dict(rest[0]) if rest else {}
        text = options.pop("where", None)
        where = None if text is None else Formula(text, expressions[text])
        return cls(function, column, where, tuple(options.items()))

    def known_as(self, stored: Mapping[str, str]) -> Aggregate:
        """Returns the aggregate with the stream's text for its condition; see `Formula.known_as`."""
        return self if self.where is None else replace(self, where=self.where.known_as(stored))


@dataclass(frozen=True, slots=True)
class Accumulator:
    """An aggregate over a column of a known type."""

    name: str
    aggregate: Aggregate
    type: str
    """The column's."""
    result: str
    """The result's."""
    op: Op | None
    """None: the number of tuples, which every window keeps anyway."""
    read: Read

    @property
    def function(self) -> str:
        """The name of the function."""
        return self.aggregate.function

    @property
    def column(self) -> str | None:
        """Over which column; None: over tuples."""
        return self.aggregate.column

    @property
    def where(self) -> Formula | None:
        """Which tuples it takes; None: all."""
        return self.aggregate.where

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Names and types of the state's parts, as a footprint has them in columns."""
        if self.op is None:
            return ()
        if self.op is Op.SUM_WIDE:
            scale = (decimal_of(self.type) or (0, 0))[1]
            return ("sum", f"decimal({DIGITS_MAX},{scale})"), ("n", "long")
        if self.op is Op.SKETCH:
            return (("sketch", "binary"),)
        place = (("at", "long"),) if self.op in (Op.FIRST_WHERE, Op.LAST_WHERE) else ()
        return _PARTS.get(self.op, (("value", self.type), ("flag", "long"), *place))

    @property
    def places(self) -> tuple[int, ...]:
        """Where each part begins among the words of the state, and where the state ends: a wide sum is two words."""
        return (0, 2, 3) if self.op is Op.SUM_WIDE else tuple(range(len(self.parts) + 1))

    @property
    def count_place(self) -> int | None:
        """The word in which a sum that can overflow keeps how many values it has; None if it is no such sum."""
        return {Op.SUM_INT: 1, Op.SUM_WIDE: 2}.get(self.op) if self.op is not None else None

    @property
    def more_digits(self) -> int:
        """How many digits a mean of decimals has behind the point that its column does not have."""
        result, column = decimal_of(self.result), decimal_of(self.type)
        return result[1] - column[1] if result and column else 0

    @property
    def is_bytes(self) -> bool:
        """True if the first word says where the value lies instead of being it."""
        return self.op is Op.SKETCH or (self.read is Read.BYTES and self.op is not Op.COUNT)

    @property
    def results(self) -> list[tuple[str, str]]:
        """Names and types of the results' columns."""
        more = [(f"{self.name}{APPROXIMATE}", "boolean")] if self.op is Op.SKETCH else []
        return [(self.name, self.result), *more]


def count_all(*, where: Any = None) -> Aggregate:
    """Returns how many tuples the window has; with `where`, for how many of them that pyarrow expression is true."""
    return Aggregate("count_all", None, _condition("count_all", where))


class _Over(Protocol):
    def __call__(self, column: str, *, where: Any = None) -> Aggregate: ...


def _over(function: str, doc: str) -> _Over:
    def make(column: str, *, where: Any = None) -> Aggregate:
        if not isinstance(column, str):
            raise OptionError(f"{function}({column!r}) does not name a column", todo=f'write {function}("column")')
        return Aggregate(function, column, _condition(function, where))

    make.__name__ = make.__qualname__ = function
    make.__doc__ = f"{doc} With `where`, over the tuples for which that pyarrow expression is true."
    return make


def _condition(function: str, where: Any) -> Formula | None:
    return None if where is None else Formula.of(where, f"{function}(where=…)")


count = _over("count", "How many tuples of the window have a value in the column.")
sum = _over("sum", "The sum; null without values. A sum that overflows is an error, not a wrapped number.")
min = _over("min", "The smallest value; NaN counts as the largest, as in Spark.")
max = _over("max", "The largest value; NaN counts as the largest, as in Spark.")
avg = _over("avg", "The mean; null without values.")
variance = _over("variance", "The sample variance; null with fewer than two values.")
stddev = _over("stddev", "The sample standard deviation; null with fewer than two values.")
first = _over("first", "The value of the window's first tuple, null or not.")
last = _over("last", "The value of the window's last tuple, null or not.")


def count_distinct(column: str, *, exact_up_to: int = EXACT_UP_TO, where: Any = None) -> Aggregate:
    """Returns how many distinct values the column has in the window, nulls not counted.

    Exact for up to `exact_up_to` values, then an estimate (HyperLogLog with 4,096 registers, standard error 1.6 % at
    every size); the column `<name>_is_approximate` says which.
    """
    options = (("exact_up_to", _exact_up_to("count_distinct", exact_up_to)),)
    return replace(_over("count_distinct", "")(column, where=where), options=options)


def percentile(column: str, p: float, *, exact_up_to: int = EXACT_UP_TO, where: Any = None) -> Aggregate:
    """Returns the value below which the fraction `p` of the values lies, as Spark's `percentile`; null without values.

    Exact as long as the window has at most `exact_up_to` distinct values, then within 0.4 % of the value of that rank
    (more if values lie so far apart that 2,048 buckets do not do); the column `<name>_is_approximate` says which.
    """
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1:
        raise OptionError(f"percentile({column!r}, {p!r}): {p!r} is not between 0 and 1", todo="0.5 is the median")
    options = (("p", float(p)), ("exact_up_to", _exact_up_to("percentile", exact_up_to)))
    return replace(_over("percentile", "")(column, where=where), options=options)


def _exact_up_to(function: str, values: Any) -> int:
    if isinstance(values, bool) or not isinstance(values, int) or not 0 <= values <= EXACT_MAX:
        raise OptionError(
            f"{function}(exact_up_to={values!r}) is not a number of values", todo=f"use 0 to {EXACT_MAX:,}"
        )
    return values


_NUMBERS = "integers, floats and decimals"
_ORDERED = "numbers, booleans, times, strings and binary"


def resolve(name: str, aggregate: Aggregate, types: Mapping[str, str]) -> Accumulator:
    """Returns how to compute `name=aggregate` over columns of these types; `SchemaError` if that makes no sense."""
    function, column = aggregate.function, aggregate.column
    if column is None:
        op = None if aggregate.where is None else Op.COUNT
        return Accumulator(name, aggregate, "long", "long", op, Read.VALIDITY)
    if column not in types:
        raise SchemaError(
            f"{name}={function}({column!r}): there is no column {column!r}",
            where=f"columns: {', '.join(types)}",
            todo="name a column of the input stream",
        )
    kind = types[column]
    found = _plan(function, kind)
    if found is None:
        takes = _NUMBERS if function in ("sum", "avg", "variance", "stddev", "percentile") else _ORDERED
        raise SchemaError(
            f"{name}={function}({column!r}): {function} does not take a {kind}",
            todo=f"it takes {takes}; cast the column before it enters the stream",
        )
    op, read, result = found
    if aggregate.where is not None:
        op = {Op.FIRST: Op.FIRST_WHERE, Op.LAST: Op.LAST_WHERE}.get(op, op)
    return Accumulator(name, aggregate, kind, result, op, read)


def _plan(function: str, kind: str) -> tuple[Op, Read, str] | None:
    if function == "count":
        return Op.COUNT, Read.VALIDITY, "long"
    decimal = decimal_of(kind)
    whole = kind in WORDS or (decimal is not None and decimal[0] <= WORD_DIGITS_MAX)
    number = kind in INTEGERS or kind in FLOATS or decimal is not None
    if function == "percentile":
        return (Op.SKETCH, Read.FLOAT, "double") if number else None
    if function in ("variance", "stddev"):
        return (Op.MOMENTS, Read.FLOAT, "double") if number else None
    if function in ("sum", "avg"):
        if not number:
            return None
        if decimal is not None:
            op, read = (Op.SUM_INT, Read.INTEGER) if whole else (Op.SUM_WIDE, Read.WIDE)
            return op, read, _wider(*decimal, *((10, 0) if function == "sum" else (4, 4)))
        if function == "sum" and kind in INTEGERS:
            return Op.SUM_INT, Read.INTEGER, "long"
        return Op.SUM_FLOAT, Read.FLOAT, "double"
    if not whole and kind not in FLOATS and kind not in BYTES and decimal is None:
        return None
    read = Read.INTEGER if whole else Read.FLOAT if kind in FLOATS else Read.BYTES
    if function == "count_distinct":
        return Op.SKETCH, read, "long"
    if function in ("first", "last"):
        return Op[function.upper()], read, kind
    return Op[f"{function.upper()}_{_SUFFIX[read]}"], read, kind


def _wider(precision: int, scale: int, digits: int, behind: int) -> str:
    """Returns the decimal type with so many more digits, and behind the point; as in Spark, no more than there are."""
    return f"decimal({builtins.min(precision + digits, DIGITS_MAX)},{builtins.min(scale + behind, DIGITS_MAX)})"


_SUFFIX = {Read.INTEGER: "INT", Read.FLOAT: "FLOAT", Read.BYTES: "BYTES"}


def state_columns(accumulators: Sequence[Accumulator]) -> list[tuple[str, str]]:
    """Names and types of the columns in which footprints keep the state."""
    return [(f"_{a.name}_{part}", kind) for a in accumulators for part, kind in a.parts]
