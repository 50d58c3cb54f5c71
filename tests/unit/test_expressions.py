"""Expressions of users: what they say, what they read, what they give, and which of them are refused at once."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline.errors import CorruptManifestError, OptionError, SchemaError
from strandline.operators.expressions import Formula, canonical, schema_of

PRICE, PIECES = pc.field("price"), pc.field("pieces")
SCHEMA = pa.schema(
    [("price", pa.float64()), ("pieces", pa.int64()), ("name", pa.string()), ("at", pa.struct([("x", pa.int32())]))]
)


def _formula(expression: object) -> Formula:
    return Formula.of(expression, "where(…)")


def test_an_expression_survives_its_text_form_and_a_pickle() -> None:
    rows = pa.table({"price": [1.5, None, -3.0], "pieces": [2, 3, 4], "name": ["a", "b", "c"]})
    for expression in [PRICE * PIECES, (PRICE > 0) & pc.field("name").isin(["a", "b"]), pc.round(PRICE), pc.scalar(7)]:
        formula = _formula(expression)
        for again in (Formula.from_json(formula.to_json()), pickle.loads(pickle.dumps(formula))):
            assert again == formula
            assert hash(again) == hash(formula)
            assert again.over(rows).equals(formula.over(rows))
    assert _formula(PRICE * PIECES).over(rows).to_pylist() == [3.0, None, -12.0]


def test_expressions_that_differ_anywhere_have_different_texts() -> None:
    many = list(range(100))
    expressions = [
        PRICE > 0.1234567890123456,
        PRICE > 0.1234567890123457,
        PIECES > 0,
        PIECES >= 0,
        pc.field("name").isin(["a b"]),
        pc.field("name").isin(["a\nb"]),
        PIECES.isin(many),
        PIECES.isin([*many[:50], 1000, *many[51:]]),
        pc.round(PRICE, 1),
        pc.round(PRICE, 2),
    ]
    texts = [canonical(e) for e in expressions]
    assert len(set(texts)) == len(texts)
    assert not any("\n" in text for text in texts)
    assert canonical(PIECES.isin(many)) == canonical(PIECES.isin(list(many)))
    assert canonical(PIECES > 0) == "(pieces > 0)"


def test_the_columns_of_an_expression_are_those_it_reads() -> None:
    assert _formula((PRICE > 0) & (PRICE * PIECES < 9)).columns == ("price", "pieces")
    assert _formula((pc.field("at", "x") > 0) & (pc.field("x") > PRICE)).columns == ("at", "x", "price")
    assert _formula(pc.scalar(1)).columns == ()


def test_types_come_from_the_expression() -> None:
    assert _formula(PRICE * PIECES).type_over(SCHEMA, "total") == pa.float64()
    assert _formula(PIECES.cast("double")).type_over(SCHEMA, "pieces") == pa.float64()
    assert _formula(pc.field("at", "x") + PIECES).type_over(SCHEMA, "sum") == pa.int64()
    assert schema_of({"a": "long", "b": "array<long>", "c": "decimal(10,2)"}).names == ["a", "c"]


def test_what_is_no_expression_of_single_tuples_is_refused() -> None:
    for wrong, words in [
        ("price > 0", "is not a pyarrow expression"),
        (pc.field(0) > 1, "by its place"),
        (pc.Expression._call("cumulative_sum", [PRICE], pc.CumulativeOptions()), "tuple by tuple"),
        (pc.Expression._call("random", [], pc.RandomOptions()), "tuple by tuple"),
    ]:
        with pytest.raises(OptionError, match=words):
            _formula(wrong)


def test_unknown_columns_and_wrong_types_are_errors_at_once() -> None:
    with pytest.raises(SchemaError, match="there is no column 'cost'"):
        _formula(pc.field("cost") > 0).type_over(SCHEMA, "where(…)")
    with pytest.raises(SchemaError, match=r"cannot be computed.*no kernel matching"):
        _formula(pc.field("name") * 2).type_over(SCHEMA, "total=…")
    with pytest.raises(CorruptManifestError, match="an expression in stream"):
        _ = Formula("price", "bm90aGluZw==").expression
