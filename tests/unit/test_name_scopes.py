"""Names of functions mean what they mean in Python, wherever a constant of the module is called the same."""

# ruff: noqa: E731, PLC3002
from __future__ import annotations

import ast
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strandline.operators.functions.compiled_function import compiled
from strandline.operators.functions.function_identity import identity_of
from strandline.operators.join.predicate import Predicate

X = 5
Y = 2
row_ = 40
cfg = types.ModuleType("cfg")
cfg.X = 7  # type: ignore[attr-defined]
NUMBERS = (3, -1, 0, 12)


def near(n: int) -> int:
    return n + X


cfg.near = near  # type: ignore[attr-defined]


def in_a_comprehension(n: int) -> int:
    total = 0
    for v in [X * 2 for X in (1, 2)]:
        total += v
    return total + n * X


def iterates_over_the_global(n: int) -> int:
    total = n
    for v in [X + k for X in (X, 1) for k in (X, Y)]:
        total = total * 3 + v
    return total


def with_a_filter(n: int) -> int:
    total = n
    for v in [Y for Y in (1, 2, 3, n) if Y > 1]:
        total = total * 3 + v + Y
    return total


def assigned_later(n: int) -> int:
    Y = n * 2
    Y += 1
    return Y + X


def in_a_loop(n: int) -> int:
    total = 0
    for X in range(3):
        total += X * n
    return total + X


def unpacked(n: int) -> int:
    X, (Y, other) = n, (n + 1, n + 2)
    return X * 100 + Y * 10 + other


def defined_inside(n: int) -> int:
    def inner(X: int) -> int:
        Y = X + 1
        return X * Y

    return inner(n) + X + Y


def defined_like_a_helper(n: int) -> int:
    def near(k: int) -> int:
        return k * X

    return near(n)


def local_of_the_part_s_name(n: int) -> int:
    cfg_near = 1000
    return int(cfg.near(n) + cfg_near)


def with_a_default(n: int) -> int:
    inner = lambda a, X=X: a * X + Y
    return inner(n)


def local_of_the_parameter_s_name(n: int) -> int:
    row = n + 1
    row__ = 3
    return row * 10 + row_ + n + row__


def inner_parameter_of_the_parameter_s_name(n: int) -> int:
    inner = lambda row: row * 2 + n
    return inner(X)


def shadows_its_own_parameter(row: int) -> int:
    inner = lambda row: row * 2 + X
    return inner(row + 1) + row


def walrus(n: int) -> int:
    if (Y := n * 3) > 4:
        return Y
    return Y + X


def walrus_in_a_comprehension(n: int) -> int:
    found = [(X := k + n) for k in (1, 2)]
    return found[0] * 10 + X


def walrus_in_a_comprehension_inside_another(n: int) -> int:
    found = [[(Y := k + j) for k in (1, 2)] for j in (n, 4)]
    return found[0][0] * 10 + Y


def declared_global(n: int) -> int:
    global X  # noqa: PLW0602
    return n + X


def local_module_name(n: int) -> int:
    math = n
    return math + 1


def reads_module(n: int) -> int:
    inner = lambda cfg: cfg + 1
    return int(inner(n) + cfg.X + math.floor(2.5))


def matched(n: int) -> int:
    match n:
        case 3:
            return X
        case Y:
            return Y * 2


def parameter_called_like_the_global(X: int) -> int:
    return near(X) + X


FUNCTIONS: list[Callable[[int], Any]] = [
    in_a_comprehension,
    iterates_over_the_global,
    with_a_filter,
    assigned_later,
    in_a_loop,
    unpacked,
    defined_inside,
    defined_like_a_helper,
    local_of_the_part_s_name,
    with_a_default,
    local_of_the_parameter_s_name,
    inner_parameter_of_the_parameter_s_name,
    shadows_its_own_parameter,
    walrus,
    walrus_in_a_comprehension,
    walrus_in_a_comprehension_inside_another,
    declared_global,
    local_module_name,
    reads_module,
    matched,
    parameter_called_like_the_global,
    lambda n: (lambda Y: n < Y)(n + 1) and Y > 1,
    lambda n: (lambda X: (lambda Y: X * 10 + Y)(X + 1))(n) + X + Y,
    lambda n: (lambda X: (lambda n: X * 10 + n)(X + 1))(n) + X,
    lambda n: (lambda near: near + 1)(n) + near(n),
    lambda n: (lambda k, *X: k + len(X))(n, 1, 2) + X,
    lambda n: sum([X for X in (n, 2)]) + sum([Y * X for Y in (n, 1)]) + Y,
    lambda n: {X: Y for X, Y in ((1, n), (2, 3))}[1] + X + Y,
    lambda n: sum(sum(X for X in (Y, X)) for Y in (n, 1)) + X,
]


def named(function: Callable[..., Any]) -> str:
    return f"{function.__name__}, line {function.__code__.co_firstlineno}"


@pytest.mark.parametrize("function", FUNCTIONS, ids=named)
def test_what_is_to_be_compiled_says_what_the_function_says(function: Callable[[int], Any]) -> None:
    parts = identity_of(function, ["row"]).parts
    space: dict[str, Any] = {"math": math}
    for part in parts:
        assert part.source is not None
        exec(part.source, space)
    assert [space["_main"](n) for n in NUMBERS] == [function(n) for n in NUMBERS]


def test_no_name_inside_is_that_of_a_parameter() -> None:
    for function in FUNCTIONS:
        tree = identity_of(function, ["row"]).parts[0].tree
        assert tree is not None
        bound = [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
        bound += [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        assert bound.count("row") == 1


@pytest.mark.parametrize(
    "function",
    [
        in_a_comprehension,
        defined_inside,
        local_of_the_part_s_name,
        shadows_its_own_parameter,
        assigned_later,
        FUNCTIONS[21],
    ],
    ids=named,
)
def test_what_is_compiled_computes_what_the_function_computes(function: Callable[[int], Any]) -> None:
    made = compiled(function, identity_of(function, ["row"]).parts)
    assert [made(n) for n in NUMBERS] == [function(n) for n in NUMBERS]


def test_the_text_of_an_inner_name_is_not_a_constant_of_the_module() -> None:
    assert identity_of(lambda a: (lambda Y: a < Y)(1) and Y > 1, ["row"]).text == "(lambda Y: row < Y)(1) and 2 > 1"


CONDITIONS: list[Callable[[Any, Any], Any]] = [
    lambda left, right: (lambda Y: left.n < Y)(right.m) and Y > 1,
    lambda a, b: (lambda left: left > a.n)(b.m),
    lambda left, right: (lambda left: left > Y)(right.m) or left.n == X,
    lambda right, left: right.n + Y < left.m,
]


@pytest.mark.parametrize("function", CONDITIONS, ids=named)
def test_a_condition_holds_for_the_pairs_for_which_the_function_is_true(function: Callable[[Any, Any], Any]) -> None:
    pairs = [(n, m) for n in NUMBERS for m in NUMBERS]
    left, right = ({name: pa.array([pair[i] for pair in pairs])} for i, name in enumerate("nm"))
    kinds = {"n": "long"}, {"m": "long"}
    where = Predicate.of(function)
    where.check(*kinds)
    expected = [bool(function(types.SimpleNamespace(n=n), types.SimpleNamespace(m=m))) for n, m in pairs]
    assert 0 < sum(expected) < len(pairs)
    np.testing.assert_array_equal(where.holds((left, right), kinds, len(pairs)).true, expected)
