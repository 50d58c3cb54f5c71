"""What tells functions of users apart, and what becomes of them when they are compiled."""

from __future__ import annotations

import enum
import linecache
import math
import pickle
import random
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from pyspark import cloudpickle

from strandline.errors import OptionError
from strandline.operators.functions.compiled_function import compiled, first_call
from strandline.operators.functions.function_identity import identity_of
from strandline.operators.functions.function_references import references

LIMIT = 10
cfg = types.ModuleType("cfg")
cfg.LIMIT = 5  # type: ignore[attr-defined]


class Colour(enum.IntEnum):
    RED = 1


class Limits:
    SMALL = (1, 2.5, "a")


def amount(x: int) -> int:
    return x + LIMIT


def even(n: int) -> bool:
    return True if n == 0 else odd(n - 1)


def odd(n: int) -> bool:
    return False if n == 0 else even(n - 1)


def factorial(n: int) -> int:
    if n <= 1:
        return 1
    return n * factorial(n - 1)


def scaled(n: int, by: int = 3) -> int:
    return n * by


@numba.njit
def compiled_before(n: int) -> int:
    return n + 1


def text(function: Any) -> str:
    return identity_of(function, ["row"]).text


def run(function: Any, *arguments: Any) -> Any:
    return compiled(function, identity_of(function, ["row"]).parts)(*arguments)


def test_constants_of_modules_and_of_classes_are_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def wanted(row: Any) -> bool:
        return bool(row > cfg.LIMIT)

    assert text(wanted) == "bool(row > 5)"
    assert run(wanted, 6)
    monkeypatch.setattr(cfg, "LIMIT", 7)
    assert text(wanted) == "bool(row > 7)"
    assert not run(wanted, 6)
    assert text(lambda row: row == Colour.RED) == "row == 1"
    assert text(lambda row: row > Limits.SMALL[0]) == "row > (1, 2.5, 'a')[0]"
    assert run(lambda row: row == Colour.RED, 1)


def test_numbers_that_have_no_literal_are_what_they_are() -> None:
    nothing, most, negative = math.nan, math.inf, -5
    assert math.isnan(run(lambda row: row + nothing, 1.0))
    assert run(lambda row: row < most, 1e300)
    assert run(lambda row: row > -most, -1e300)
    assert run(lambda row: negative**2 + row, 0) == 25


def test_a_column_that_is_called_like_a_function_is_no_reference_to_it() -> None:
    assert text(lambda row: row.amount > 1) == "row.amount > 1"
    assert references(lambda row: row.amount > 1) == {}
    assert "amount: def amount(x)" in text(lambda row: amount(row.n) > 1)


def test_a_local_name_does_not_stand_for_what_the_module_calls_so() -> None:
    def shadowing(other: Any) -> int:
        LIMIT = 3
        row = other + LIMIT
        return int(row)

    assert "10" not in text(shadowing)
    assert run(shadowing, 4) == 7


def test_functions_that_call_themselves_or_each_other_are_told_once_and_compile() -> None:
    told = text(lambda row: factorial(row) > 5 or row > 3)
    assert told.count("factorial: ") == 1
    assert run(lambda row: factorial(row) + 1, 5) == 121
    assert run(factorial, 5) == 120
    # Numba itself cannot infer types of functions that call each other without a hint; the identity is there
    assert text(lambda row: not even(row)).count("odd: ") == 1


def test_helpers_count_with_all_that_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    before = text(lambda row: amount(row) > 1)
    with monkeypatch.context() as other:
        other.setitem(globals(), "LIMIT", 11)
        assert text(lambda row: amount(row) > 1) != before
    assert "by=3" in text(lambda row: scaled(row) + 1)
    assert run(lambda row: scaled(row) + scaled(row, by=2), 5) == 25
    assert run(lambda row: compiled_before(row) + 1, 5) == 7
    assert "n + 1" in text(lambda row: compiled_before(row) + 1)


def test_functions_of_modules_are_called_by_their_paths() -> None:
    cfg.near = amount  # type: ignore[attr-defined]
    assert run(lambda row: cfg.near(row) + abs(-row), 5) == 20
    assert "cfg_near: " in text(lambda row: cfg.near(row) + 1)


def test_what_no_compiled_function_can_use_is_refused_with_its_line() -> None:
    many = [1, 2]
    with pytest.raises(OptionError, match="many is a list") as refused:
        text(lambda row: row in many)
    assert "test_function_identity.py, line" in refused.value.where


def test_without_source_the_code_is_the_identity() -> None:
    def made(body: str, **names: Any) -> Any:
        return eval(f"lambda row: {body}", names)

    assert text(made("row > 1")) == text(made("row > 1")) != text(made("row > 2"))
    assert text(made("row > n", n=1)) == text(made("row > n", n=1)) != text(made("row > n", n=2))
    assert text(made("f(row)", f=made("row + 1"))) != text(made("f(row)", f=made("row + 2")))
    assert text(made("row in {'a', 'b', 'c'}")).startswith("code ")
    assert run(made("f(row) + n", f=made("row + 1"), n=2), 1) == 4
    assert run(made("row < math.pi", math=math), 3.0)
    with pytest.raises(OptionError, match=r"reads cfg\.LIMIT, and its source cannot be read") as refused:
        text(made("row > cfg.LIMIT", cfg=cfg))
    assert "limit = cfg.LIMIT before it" in refused.value.todo


def test_the_identity_of_code_does_not_depend_on_the_process() -> None:
    program = """
        from strandline.operators.functions.function_identity import identity_of
        print(identity_of(eval("lambda row: row in {'a', 'b', 'c', 'd'}"), ["row"]).text)
    """
    texts = {
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_values_travel_with_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def wanted(row: Any) -> bool:
        return bool(row > cfg.LIMIT)

    identity = identity_of(wanted, ["row"])
    monkeypatch.setattr(cfg, "LIMIT", 1_000)  # as on a machine whose modules were told otherwise
    moved, parts = pickle.loads(cloudpickle.dumps((wanted, identity.parts)))
    assert compiled(moved, parts)(6)


def test_what_does_not_compile_is_refused_with_the_line_and_the_reason() -> None:
    def wrong(row: Any) -> Any:
        found = row + 1
        return found.nonsense

    parts = identity_of(wrong, ["row"]).parts
    with (
        pytest.raises(OptionError, match="it does not compile: Unknown attribute 'nonsense' of type int64") as refused,
        first_call(wrong, "keyed", "use a class"),
    ):
        compiled(wrong, parts)(1)
    lines = Path(__file__).read_text().splitlines()
    number = int(refused.value.where.rpartition(" ")[2])
    assert lines[number - 1].strip() == "return found.nonsense"
    assert "\n" not in refused.value.what


def test_constructs_that_numba_does_not_know_are_refused_as_well() -> None:
    def opens(row: Any) -> Any:
        with open("x") as file:
            return file

    with pytest.raises(OptionError, match="construct is not supported"), first_call(opens, "keyed", "use a class"):
        compiled(opens, identity_of(opens, ["row"]).parts)(1)


def test_a_name_that_is_defined_later_is_refused_because_its_value_would_not_count() -> None:
    def early(row: Any) -> bool:
        return bool(row > DEFINED_NOWHERE)  # type: ignore[name-defined]  # noqa: F821

    def calls(row: Any) -> bool:
        return early(row)

    for function in (early, calls):
        with pytest.raises(OptionError, match="DEFINED_NOWHERE has no value yet"):
            text(function)


@pytest.mark.parametrize("draw", [random.random, np.random.rand])  # noqa: TID251
def test_what_comes_out_otherwise_each_time_is_refused(draw: Any) -> None:
    def luck(row: Any) -> bool:
        return bool(row > draw())

    with pytest.raises(OptionError, match="draw gives another value each time"):
        text(luck)
    with pytest.raises(OptionError, match=r"np.random.rand gives another value each time"):
        text(lambda row: row > np.random.rand())  # noqa: NPY002


def module_of(file: Path, source: str) -> Any:
    file.write_text(source)
    names: dict[str, Any] = {}
    exec(compile(source, str(file), "exec"), names)
    return names["f"]


def test_a_function_that_was_loaded_again_is_what_its_file_says_now(tmp_path: Path) -> None:
    before = module_of(tmp_path / "module.py", "def f(row):\n    return row > 1\n")
    assert text(before) == "row > 1"
    after = module_of(tmp_path / "module.py", "def f(row):\n    return row > 22\n")
    assert text(after) == "row > 22"
    assert text(before).startswith("code ")  # what is in the file is another one


def test_a_cell_of_a_notebook_has_a_source() -> None:
    source, name = "def f(row):\n    return row > 3\n", "<ipython-input-1-abc>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, name, "exec"), names)
    assert text(names["f"]) == "row > 3"
