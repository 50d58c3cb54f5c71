"""Expressions give what `pyarrow.compute` gives over arrays, row by row and all at once, here and after a journey."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline.errors import SchemaError
from strandline.operators.expressions.expressions import Formula

TABLE = pa.table(
    {
        "i": pa.array([3, None, -7, 0, 2**40, 1], pa.int64()),
        "j": pa.array([1, 2, None, 4, -5, 6], pa.int32()),
        "x": pa.array([0.5, float("nan"), None, -0.0, 1e300, float("inf")]),
        "s": pa.array(["a", "", None, "Äpfel", "aa", "b c"]),
        "b": pa.array([True, None, False, True, False, None]),
        "t": pa.array([0, 10**15, None, -1, 1, 2], pa.timestamp("us")),
    }
)
Made = tuple[Any, Any]
"""An expression, and what Arrow computes of the arrays themselves."""


def column(name: str) -> Made:
    return pc.field(name), TABLE.column(name)


def call(function: Callable[..., Any], *given: Made, **options: Any) -> Made:
    return function(*(e for e, _ in given), **options), function(*(v for _, v in given), **options)


def literal(value: Any) -> Made:
    return pc.scalar(value), pa.scalar(value)


def number(rng: Random, depth: int) -> Made:
    if depth == 0:
        return rng.choice([column("i"), column("j"), column("x"), literal(rng.randint(-9, 9)), literal(1.5)])
    match rng.randrange(8):
        case 0 | 1:
            two = number(rng, depth - 1), number(rng, depth - 1)
            return call(rng.choice([pc.add, pc.subtract_checked, pc.multiply, pc.divide_checked, pc.power]), *two)
        case 2:
            return call(rng.choice([pc.abs, pc.negate, pc.sign, pc.floor, pc.is_nan]), number(rng, depth - 1))
        case 3:
            return call(pc.round, number(rng, depth - 1), ndigits=rng.randint(-2, 2), round_mode="half_to_odd")
        case 4:
            return call(pc.if_else, truth(rng, depth - 1), number(rng, depth - 1), number(rng, depth - 1))
        case 5:
            return call(pc.coalesce, number(rng, depth - 1), number(rng, depth - 1))
        case 6:
            expression, values = number(rng, depth - 1)
            kind = rng.choice(["double", "int64", "int16"])  # floats beside integers are doubles here, on purpose
            is_safe = rng.random() < 0.5
            return expression.cast(kind, safe=is_safe), pc.cast(values, kind, safe=is_safe)
        case _:
            return call(pc.utf8_length, text(rng, depth - 1))


def text(rng: Random, depth: int) -> Made:
    if depth == 0:
        return rng.choice([column("s"), literal("a"), literal("Ä`'\"")])
    match rng.randrange(4):
        case 0:
            return call(rng.choice([pc.utf8_upper, pc.utf8_reverse, pc.utf8_trim_whitespace]), text(rng, depth - 1))
        case 1:
            return call(pc.utf8_slice_codeunits, text(rng, depth - 1), start=rng.randint(-2, 1), stop=2)
        case 2:
            return call(pc.binary_join_element_wise, text(rng, depth - 1), text(rng, depth - 1), literal("-"))
        case _:
            return call(pc.replace_substring, text(rng, depth - 1), pattern="a", replacement="(;)")


def truth(rng: Random, depth: int) -> Made:
    if depth == 0:
        return rng.choice([column("b"), literal(True), call(pc.is_null, column("s"))])
    compare = rng.choice([pc.equal, pc.not_equal, pc.less, pc.greater_equal])
    match rng.randrange(7):
        case 0 | 1:
            return call(compare, number(rng, depth - 1), number(rng, depth - 1))
        case 2:
            return call(compare, text(rng, depth - 1), text(rng, depth - 1))
        case 3:
            return call(compare, column("t"), literal(dt.datetime(1970, 1, 1)))
        case 4:
            return call(rng.choice([pc.and_kleene, pc.or_kleene, pc.xor]), truth(rng, depth - 1), truth(rng, depth - 1))
        case 5:
            values = pa.array(["a", None, "aa"]) if rng.random() < 0.5 else pa.array(["b c"])
            return call(pc.is_in, text(rng, depth - 1), value_set=values, skip_nulls=rng.random() < 0.5)
        case _:
            return call(pc.starts_with, text(rng, depth - 1), pattern="A", ignore_case=rng.random() < 0.5)


def bits(found: Any) -> Any:
    """A column in one piece, doubles by their bits."""
    values = pa.repeat(found, len(TABLE)) if isinstance(found, pa.Scalar) else found
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return values.type, [repr(value) for value in values.to_pylist()]


@pytest.mark.parametrize("seed", range(40))
def test_an_expression_gives_what_arrow_gives_over_the_arrays(seed: int) -> None:
    rng = Random(seed)
    computed = 0
    for _ in range(30):
        state = rng.getstate()
        try:
            expression, values = rng.choice([number, text, truth])(rng, rng.randint(0, 4))
        except (pa.ArrowException, NotImplementedError):  # Arrow itself cannot compute a part of it
            rng.setstate(state)
            rng.random()
            continue
        formula = Formula.of(expression, "it")
        found = formula.over(TABLE)
        assert bits(found) == bits(values), formula.text
        assert bits(pickle.loads(pickle.dumps(formula)).over(TABLE)) == bits(values)
        rows = [formula.over(TABLE.slice(i, 1)) for i in range(len(TABLE))]
        assert bits(pa.chunked_array([chunk for row in rows for chunk in row.chunks])) == bits(values)
        with suppress(SchemaError):  # neither of a null nor of a one can it be computed
            assert formula.type_over(TABLE.schema, "it") == bits(values)[0]
        computed += 1
    assert computed
