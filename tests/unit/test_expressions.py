"""Expressions of users: what they say, what they read, what they give, and which of them are refused at once."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strandline.errors import CorruptManifestError, OptionError, SchemaError
from strandline.operators.expressions.expressions import Formula, schema_of

PRICE, PIECES = pc.field("price"), pc.field("pieces")
SCHEMA = pa.schema(
    [("price", pa.float64()), ("pieces", pa.int64()), ("name", pa.string()), ("at", pa.struct([("x", pa.int32())]))]
)


def _formula(expression: object) -> Formula:
    return Formula.of(expression, "where(…)")


def _text(expression: object) -> str:
    return _formula(expression).text


def test_an_expression_survives_a_pickle() -> None:
    rows = pa.table({"price": [1.5, None, -3.0], "pieces": [2, 3, 4], "name": ["a", "b", "c"]})
    for expression in [PRICE * PIECES, (PRICE > 0) & pc.field("name").isin(["a", "b"]), pc.round(PRICE), pc.scalar(7)]:
        formula = _formula(expression)
        again = pickle.loads(pickle.dumps(formula))
        assert again == formula == _formula(expression)
        assert hash(again) == hash(formula)
        assert again.over(rows).equals(formula.over(rows))
    assert _formula(PRICE * PIECES).over(rows).to_pylist() == [3.0, None, -12.0]


@pytest.mark.parametrize(
    "expressions",
    [
        [PRICE > 0.1234567890123456, PRICE > 0.1234567890123457],
        [PIECES > 0, PIECES >= 0, pc.field("(pieces > 0)"), pc.field("pieces", "0")],
        [PIECES / 2, PIECES / 2.0, PIECES / Decimal("2"), PIECES / Decimal("2.0"), pc.divide(PIECES, 2)],
        [PIECES / pc.scalar(pa.scalar(2, kind)) for kind in (pa.int64(), pa.int8(), pa.uint8(), pa.float32())],
        [pc.scalar(v) for v in ("78", b"x", 78, 78.0, "b'x'", True, "true", None, "null", float("nan"), 0.0, -0.0)],
        [pc.scalar(pa.scalar(None, kind)) for kind in (pa.null(), pa.int64(), pa.float64(), pa.string())],
        [pc.field(name) for name in ("null", "nan", "inf", "true", "a.b", "`a`", "a`", "2", "a b")]
        + [pc.field("a", "b"), pc.scalar(None), pc.scalar(True), pc.scalar(2), pc.scalar(float("nan"))],
        [pc.field("name").isin(["a b"]), pc.field("name").isin(["a\nb"]), pc.field("name").isin(["a", "b"])],
        [pc.field("name").isin(['a", "b']), pc.field("name").isin(["a", "b"])],
        [PIECES.isin(range(100)), PIECES.isin([*range(50), 1000, *range(51, 100)])],
        [PIECES.isin(pa.array([], kind)) for kind in (pa.int64(), pa.string())],
        [PIECES.isin(pa.array([1, 2], kind)) for kind in (pa.int64(), pa.int8(), pa.float64())],
        [pc.round(PRICE, 1), pc.round(PRICE, 2), pc.round(PRICE, 1, "down")],
        [PIECES.cast("int32"), PIECES.cast("int16"), PIECES.cast("int32", safe=False)],
        [pc.scalar(pa.scalar(0, pa.timestamp(*kind))) for kind in (["us"], ["ns"], ["us", "UTC"], ["us", "CET"])],
        [pc.scalar([1, 2]), pc.scalar([1.0, 2.0]), pc.scalar([[1], [2]]), pc.scalar([[1, 2]]), pc.scalar({"a": 1})],
    ],
    ids=lambda expressions: str(expressions[0]).partition("\n")[0],
)
def test_expressions_that_differ_anywhere_are_not_equal_and_have_different_texts(expressions: list[Any]) -> None:
    formulas = [_formula(e) for e in expressions]
    texts = [f.text for f in formulas]
    assert len(set(texts)) == len(texts), texts
    assert len(set(formulas)) == len(formulas)
    assert not any("\n" in text for text in texts)


def test_a_text_says_what_a_program_does() -> None:
    for expression, text in [
        ((PIECES / 2.0 > 1) & (PIECES != 3), "(((pieces / 2.0) > 1) and (pieces != 3))"),
        (PIECES.cast("double"), "cast(pieces, to_type=double)"),
        (
            pc.field("at") > datetime(2026, 1, 2, tzinfo=UTC),
            "(at > timestamp[us, tz=UTC](2026-01-02 00:00:00.000000Z))",
        ),
        (pc.if_else(pc.field("a b", "x").is_null(), "é", pc.field("name")), 'if_else(is_null(`a b`.x), "é", name)'),
        (pc.coalesce(PRICE, Decimal("0.50")), "coalesce(price, decimal128(2, 2)(0.50))"),
    ]:
        assert _text(expression) == text
    assert _text(PIECES.isin(range(100))) == _text(PIECES.isin(list(range(100))))
    assert _text(PIECES.isin(range(100))).startswith("is_in(pieces, value_set=int64[0, 1, 2, … 100 values #")


# ---------------------------------------------------------------------- values


NUMBERS = pa.table(
    {
        "byte": pa.array([100, -3, None], pa.int8()),
        "int": pa.array([2**31 - 1, 7, None], pa.int32()),
        "long": pa.array([16777217, 9999999, None]),
        "float": pa.array([0.1, 16777216, None], pa.float32()),
        "double": pa.array([0.1, -1e300, None]),
    }
)


@pytest.mark.parametrize("column", NUMBERS.column_names)
@pytest.mark.parametrize("number", [2, 100, 2.0, 1.5, 0.1, 20000000.0, 2**31])
def test_numbers_are_as_wide_as_over_arrays(column: str, number: float) -> None:
    field, values = pc.field(column), NUMBERS.column(column)
    if column == "float" and isinstance(number, int):
        values = values.cast("double")  # an integer need not fit into 32 bits of a float
    for expression, wanted in [
        (field * number, pc.multiply_checked(values, number)),
        (field / number, pc.divide_checked(values, number)),
        (pc.scalar(number) - field, pc.subtract_checked(number, values)),
        (pc.add(field, number), pc.add(values, number)),
        (field > number, pc.greater(values, number)),
        (pc.if_else(field < number, field, number), pc.if_else(pc.less(values, number), values, number)),
    ]:
        found = _formula(expression).over(NUMBERS)
        assert found.type == wanted.type
        assert found.equals(wanted)


def test_an_integer_beside_decimals_is_one_of_them() -> None:
    money = pa.table({"price": pa.array([Decimal("1.50"), Decimal("-2"), None], pa.decimal128(10, 2))})
    doubled = _formula(PRICE * 2).over(money)
    assert (doubled.type, doubled.to_pylist()) == (pa.decimal128(12, 2), [Decimal("3.00"), Decimal("-4.00"), None])
    assert _formula(PRICE > 0).over(money).to_pylist() == [True, False, None]
    assert _formula(pc.coalesce(PRICE, 0)).over(money).to_pylist() == [
        Decimal("1.50"),
        Decimal("-2.00"),
        Decimal("0.00"),
    ]


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
    with pytest.raises(SchemaError, match=r"cannot be computed.*divide by zero"):
        _formula(pc.greater(pc.scalar(1) / 0, PIECES)).type_over(SCHEMA, "where(…)")
    with pytest.raises(CorruptManifestError, match="an expression in stream"):
        _ = Formula("price", "bm90aGluZw==").tree


@pytest.mark.parametrize(
    ("expression", "todo"),
    [
        (pc.field("at") > datetime(2026, 1, 2), "tzinfo=timezone.utc"),
        (pc.field("at") > "2026-01-02", "tzinfo=timezone.utc"),
        (pc.field("clock") > datetime(2026, 1, 2, tzinfo=UTC), "without a zone"),
        (pc.field("day") == "2026-01-02", "date(2026, 1, 31)"),
        (pc.field("money") * pc.field("money") * pc.field("money"), "fewer digits"),
        (pc.field("name") > 3, "cast"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_works_for_no_tuple_is_refused_at_once_and_the_way_out_is_that_of_its_types(
    expression: Any, todo: str
) -> None:
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("clock", pa.timestamp("us")),
            ("day", pa.date32()),
            ("money", pa.decimal128(18, 2)),
            ("name", pa.string()),
        ]
    )
    with pytest.raises(SchemaError, match="cannot be computed") as error:
        _formula(expression).type_over(schema, "where(…)")
    assert todo in error.value.todo


def test_what_works_for_some_tuples_is_not_refused() -> None:
    for expression, kind in [
        (pc.scalar(1) / pc.coalesce(PIECES, 0), pa.int64()),  # not for nulls
        (pc.scalar(1) / (PIECES - 1), pa.int64()),  # not for ones
        (pc.field("name").cast("int64"), pa.int64()),
        (pc.field("at").is_null(), pa.bool_()),
        (pc.choose(PIECES, PRICE), pa.float64()),
        (pc.scalar("a"), pa.string()),
    ]:
        assert _formula(expression).type_over(SCHEMA, "x=…") == kind


def test_a_function_that_only_this_process_has_is_refused() -> None:
    def twice(_: Any, values: Any) -> Any:
        return pc.multiply(values, 2)

    documented = {"summary": "twice", "description": "twice"}
    pc.register_scalar_function(twice, "twice_of_a_user", documented, {"x": pa.int64()}, pa.int64())
    with pytest.raises(OptionError, match="twice_of_a_user is a function of this process"):
        _formula(pc.Expression._call("twice_of_a_user", [PIECES]))
