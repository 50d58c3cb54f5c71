"""The condition of a join: what it is called, what is refused at once, what it computes."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from strandline.errors import OptionError
from strandline.operators.join.definition import stored_type
from strandline.operators.join.predicate import Predicate
from strandline.operators.kernels.kernel_cache import TALLY

LEFT = {
    "amount": "double",
    "n": "integer",
    "name": "string",
    "raw": "binary",
    "at": "timestamp",
    "day": "date",
    "ok": "boolean",
    "price": "decimal(10,2)",
    "tags": '{"elementType": "string", "type": "array"}',
}
RIGHT = {"most": "double", "name": "string", "n": "long", "at": "timestamp"}
LIMIT = 10
WORD = "gold"


def twice(x: float) -> float:
    return 2 * x


def holds(function: Any, left: dict[str, list[Any]], right: dict[str, list[Any]]) -> list[int]:
    predicate = Predicate.of(function)
    predicate.check(LEFT, RIGHT)
    arrays = [
        {c: pa.array(values[c], stored_type(kinds[c])) for c in predicate.names[s]}
        for s, (values, kinds) in enumerate(((left, LEFT), (right, RIGHT)))
    ]
    rows = len(next(iter({**left, **right}.values())))
    judged = predicate.holds((arrays[0], arrays[1]), (LEFT, RIGHT), rows)
    found: list[int] = judged.true.tolist()
    return found


def test_numbers_are_compared_as_they_are_and_a_null_makes_it_false() -> None:
    left, right = {"amount": [1.0, 5.0, None, 2.0]}, {"most": [2.0, 4.0, 1.0, None]}
    assert holds(lambda left, right: left.amount <= right.most, left, right) == [1, 0, 0, 0]
    # only what is named counts
    assert holds(lambda left, right: left.n > 1, {**left, "n": [1, 2, None, 3]}, right) == [0, 1, 0, 1]
    assert holds(lambda left, right: True, left, right) == [1, 1, 1, 1]


def test_texts_and_bytes_are_compared_by_equality_with_each_other_and_with_constants() -> None:
    left = {"name": ["a", "gold", None, "é"], "raw": [b"x", b"", b"x", None]}
    right = {"name": ["a", "b", "c", "é"]}
    assert holds(lambda left, right: left.name == right.name, left, right) == [1, 0, 0, 1]
    assert holds(lambda left, right: left.name != right.name, left, right) == [0, 1, 0, 0]
    assert holds(lambda left, right: left.name == "gold" or right.name == "é", left, right) == [0, 1, 0, 1]
    assert holds(lambda left, right: left.name == WORD, left, right) == [0, 1, 0, 0]
    assert holds(lambda left, right: left.raw == b"x", left, right) == [1, 0, 1, 0]


def test_times_dates_booleans_and_decimals_are_numbers() -> None:
    at = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    left = {
        "at": [at],
        "day": [dt.date(1970, 1, 3)],
        "ok": [True],
        "price": [Decimal("2.50")],
    }
    right = {"at": [at + dt.timedelta(seconds=3)]}
    assert holds(lambda left, right: right.at - left.at == 3_000_000, left, right) == [1]
    assert holds(lambda left, right: left.day == 2 and left.ok, left, right) == [1]
    assert holds(lambda left, right: left.price > 2.4, left, right) == [1]


def test_functions_with_statements_and_helpers_are_compiled_with_them() -> None:
    def near(left: Any, right: Any) -> bool:
        """Whether they are near to each other."""
        if left.n > LIMIT:
            return False
        return math.sqrt(twice(left.amount)) < right.most

    assert holds(near, {"n": [1, 11], "amount": [2.0, 2.0]}, {"most": [3.0, 3.0]}) == [1, 0]


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda left, right: left.nothing > 1, "left has no column 'nothing'"),
        (lambda left, right: left.name < right.name, "texts can be compared with == and != only"),
        (lambda left, right: len(left.name) > 3, "texts can be compared with == and != only"),
        (lambda left, right: left.name == left.n, "texts can be compared with == and != only"),
        (lambda left, right: left.tags == 1, "which a condition cannot compute with"),
        (lambda left, right: left.n.nonsense == right.n, "does not compile"),
        (lambda left, right: left == right, "used as a whole"),
        (lambda left, right: left.amount - right.most, "it returns a float, not true or false"),
        (lambda left, right: None, "it returns none, not true or false"),
        (lambda left, right: (left.n, right.n), "not true or false"),
        (lambda left: True, "does not have two parameters"),
        ("left.n > 1", "is not a function"),
    ],
    ids=lambda value: value if isinstance(value, str) else "function",  # the same in every process
)
def test_what_cannot_be_computed_is_refused_at_once(function: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says.replace("(", r"\(")) as refused:
        Predicate.of(function).check(LEFT, RIGHT)
    assert refused.value.todo
    assert "\n" not in refused.value.what


def test_whole_numbers_and_none_count_as_they_do_in_python() -> None:
    left, right = {"n": [1, 2, 3]}, {"most": [0.0, 0.0, 0.0]}
    assert holds(lambda left, right: left.n & 1, left, right) == [1, 0, 1]
    assert holds(lambda left, right: left.n > 1 or None, left, right) == [0, 1, 1]


def test_a_pair_for_which_it_raises_is_false_and_told_and_the_others_are_judged() -> None:
    predicate = Predicate.of(lambda left, right: left.n // right.n > 1)
    sides = {"n": pa.array([1, 7, 9, 3], pa.int32())}, {"n": pa.array([1, 0, 2, 0], pa.int64())}
    judged = predicate.holds(sides, (LEFT, RIGHT), 4)
    assert judged.true.tolist() == [0, 0, 1, 0]
    assert [row for row, _ in judged.failed] == [1, 3]
    assert all(why.startswith("ZeroDivisionError") for _, why in judged.failed)


def test_without_its_source_texts_cannot_be_compared_and_the_refusal_says_why() -> None:
    with pytest.raises(OptionError, match=r"compares texts \(left.name\), and its source cannot be had") as refused:
        Predicate.of(eval("lambda left, right: left.name == 'a'")).check(LEFT, RIGHT)
    assert "in a file or a notebook" in refused.value.todo


def test_the_time_that_numba_takes_is_counted() -> None:
    before = TALLY.compiled, TALLY.seconds
    Predicate.of(lambda left, right: left.n > right.n + 123).check(LEFT, RIGHT)
    assert TALLY.compiled == before[0] + 1
    assert TALLY.seconds > before[1]


@pytest.mark.parametrize("version", [0, -1, True, "2", 1.5])
def test_a_version_is_a_number_from_1_on(version: Any) -> None:
    with pytest.raises(OptionError, match="is not a version"):
        Predicate.of(lambda left, right: True, version)


def test_the_text_says_what_it_means_and_not_how_it_is_spelt() -> None:
    limit = 10
    one, other = (lambda left, right: left.n > limit), (lambda a, b: a.n > LIMIT)  # two in one line
    assert Predicate.of(one).text == Predicate.of(other).text == "left.n > 10"
    assert Predicate.of(one) == Predicate.of(other)
    limit = 11
    assert Predicate.of(one).text == "left.n > 11"
    helped = Predicate.of(lambda left, right: twice(left.n) > right.n).text
    assert "twice(left.n) > right.n; twice: " in helped
    assert "2 * x" in helped


def test_without_source_it_is_known_by_its_code() -> None:
    made: list[Any] = [eval(f"lambda left, right: left.n > {n}") for n in (1, 1, 2)]
    texts = [Predicate.of(function).text for function in made]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("code ")
    predicate = Predicate.of(made[0])
    predicate.check(LEFT, RIGHT)
    assert predicate.names == (("n",), ())


def test_it_travels_as_a_function() -> None:
    limit = 3
    predicate = Predicate.of(lambda left, right: left.n > limit)
    predicate.check(LEFT, RIGHT)
    moved: Predicate = pickle.loads(cloudpickle.dumps(predicate))
    assert moved == predicate
    assert moved.holds(({"n": pa.array([3, 4], pa.int32())}, {}), (LEFT, RIGHT), 2).true.tolist() == [0, 1]
