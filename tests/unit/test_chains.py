"""Aggregates take what aggregates give: an operator over an operator over an operator, whatever the types become."""

from __future__ import annotations

from decimal import Decimal
from itertools import product

import pyarrow as pa
import pytest

from strandline.arrow_types import SIMPLE, decimal_of, simple_type
from strandline.errors import AggregateOverflowError, SchemaError
from strandline.operators.aggregate import aggregates as agg
from strandline.operators.aggregate.aggregate_operator import AggregateOperator
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.plain import PlainOperator
from strandline.operators.aggregate.windows import count_window

SUMS = {"sum": agg.sum, "avg": agg.avg, "variance": agg.variance, "stddev": agg.stddev}
PICKS = {"min": agg.min, "max": agg.max, "first": agg.first, "last": agg.last, "count": agg.count}
EVERY = {**SUMS, **PICKS}
NUMBERS = (*agg.INTEGERS, *agg.FLOATS)
KINDS = [*SIMPLE, *(f"decimal({p},{s})" for p, s in product((1, 10, 18, 19, 20, 28, 30, 38), (0, 2, 18)) if s <= p)]


def result_of(function: str, kind: str) -> str:
    return agg.resolve("r", EVERY[function]("c"), {"c": kind}).result


@pytest.mark.parametrize("kind", KINDS)
def test_every_aggregate_takes_what_every_other_makes_of_a_type(kind: str) -> None:
    """Over four operators: types grow from one to the next, decimals up to 38 digits."""
    kinds = {kind}
    for _ in range(4):
        found = set()
        for given, function in product(kinds, EVERY):
            if function in SUMS and given not in NUMBERS and decimal_of(given) is None:
                with pytest.raises(SchemaError, match=f"does not take a {given}"):
                    result_of(function, given)
                continue
            result = result_of(function, given)
            assert simple_type(result) is not None, f"streams hold no {result}"
            found.add(result)
        kinds = found


@pytest.mark.parametrize(
    ("function", "kind", "result"),
    [
        ("sum", "decimal(10,2)", "decimal(20,2)"),
        ("sum", "decimal(20,2)", "decimal(30,2)"),
        ("sum", "decimal(30,2)", "decimal(38,2)"),
        ("avg", "decimal(20,2)", "decimal(24,6)"),
        ("avg", "decimal(36,2)", "decimal(38,6)"),
        ("avg", "decimal(38,36)", "decimal(38,38)"),
        ("min", "decimal(38,36)", "decimal(38,36)"),
        ("stddev", "decimal(38,36)", "double"),
        ("count", "decimal(38,36)", "long"),
    ],
)
def test_decimals_grow_as_in_spark(function: str, kind: str, result: str) -> None:
    assert result_of(function, kind) == result


def operator(kind: str, size: int, on_error: str = "stop") -> tuple[AggregateOperator, PlainOperator]:
    types = {"k": "long", "t": "long", "c": kind}
    aggregates = {"total": agg.sum("c"), "mean": agg.avg("c"), "least": agg.min("c")}
    plan = AggregateDefinition.of(count_window(size), aggregates, types, ["k"], "t")
    return plan.fresh(on_error), PlainOperator(plan, on_error)  # type: ignore[arg-type]


def fed(
    made: tuple[AggregateOperator, PlainOperator], kind: str, values: list[Decimal | None]
) -> list[dict[str, object]]:
    """The results of both, which are the same."""
    fast, plain = made
    rows = [{"k": 1, "t": 0, "c": v, "_offset": i} for i, v in enumerate(values)]
    long = pa.int64()
    schema = pa.schema([("k", long), ("t", long), ("c", simple_type(kind)), ("_offset", long)])
    names = [c for c, _ in fast.definition.result_columns]
    fast.begin()
    columns = list(fast.feed([pa.Table.from_pylist(rows, schema=schema)]))
    found = [r for c in columns for r in pa.table(c, names=names).to_pylist()]
    assert found == plain.feed(rows)
    return found


def test_the_mean_of_sums_of_decimals() -> None:
    kind = "decimal(20,2)"
    (result,) = fed(operator(kind, 3), kind, [Decimal("123456789012345678.90"), None, Decimal("-0.01")])
    assert str(result["total"]) == "123456789012345678.89"
    assert str(result["mean"]) == "61728394506172839.445000"
    assert str(result["least"]) == "-0.01"


@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_may_have_38_digits_and_no_more(sign: int) -> None:
    kind = "decimal(38,0)"
    most, half, more = (Decimal(sign * x) for x in (10**38 - 1, 5 * 10**37 - 1, 5 * 10**37))
    types = {"k": "long", "t": "long", "c": kind}
    plan = AggregateDefinition.of(count_window(2), {"total": agg.sum("c"), "least": agg.min("c")}, types, ["k"], "t")
    (result,) = fed((plan.fresh(), PlainOperator(plan)), kind, [half, more])
    assert result["total"] == most
    for too_much in ([most, Decimal(sign)], [most, most]):
        with pytest.raises(AggregateOverflowError, match="38 digits"):
            fed((plan.fresh(), PlainOperator(plan)), kind, too_much)  # type: ignore[arg-type]
        made = plan.fresh("set_aside"), PlainOperator(plan, "set_aside")
        assert [r["total"] for r in fed(made, kind, [*too_much, half, half])] == [Decimal(sign * (10**38 - 2))]
        assert made[0].aside.tables["overflow"][0].num_rows == len(made[1].aside) == 1


def test_a_mean_whose_digits_do_not_fit_is_an_error_or_set_aside() -> None:
    kind = "decimal(38,2)"  # the mean has six digits behind the point, and so four fewer before it
    large = Decimal("9" * 34 + ".00")
    with pytest.raises(AggregateOverflowError, match="does not fit"):
        fed(operator(kind, 1), kind, [large])
    made = operator(kind, 1, "set_aside")
    assert [str(r["mean"]) for r in fed(made, kind, [large, Decimal("9" * 32 + ".00")])] == ["9" * 32 + ".000000"]
    assert len(made[1].aside) == 1
