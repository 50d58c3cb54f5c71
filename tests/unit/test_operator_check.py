"""`sl.testing.check_operator`: operators that are wrong in each way are found out, those that are right are not."""

from __future__ import annotations

import re
import time as clock
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import strandline as sl
from strandline.errors import NotRepeatableError, OptionError
from strandline.testing.operator_script import script_text, scripts
from tests.support.user_operators import Running, Sorted


def some_tuples(many: int = 120) -> list[pa.Table]:
    rng = Random(5)
    times = sorted(rng.randint(0, 60) for _ in range(many))
    times = [t + (3 if i % 5 == 0 else 0) for i, t in enumerate(times)]  # some come late
    columns = {
        "k": pa.array([rng.randint(0, 4) for _ in times], pa.int64()),
        "s": [f"s{rng.randint(0, 3)}" for _ in times],
        "v": pa.array([rng.randint(0, 9) for _ in times], pa.int64()),
        "x": [rng.uniform(-1, 1) for _ in times],
        "t": pa.array(times, pa.int64()),
    }
    table = pa.table(columns)
    return [table.slice(0, 50), table.slice(50)]


@pytest.mark.parametrize("operator", [Running(), Running(rate=0.5), Sorted()])
def test_operators_that_are_right_pass(operator: Any) -> None:
    sl.testing.check_operator(operator, some_tuples(), runs=20)
    sl.testing.check_operator(operator, some_tuples()[0].slice(0, 1), seed=1)


class Mean(sl.Operator):
    """One result a table: depends on cuts."""

    output = "t long, mean double"
    time = "t"

    def __init__(self) -> None:
        self.total, self.n = 0.0, 0

    def process(self, tuples: pa.Table) -> pa.Table | None:
        self.total += pc.sum(tuples.column("x")).as_py()
        self.n += tuples.num_rows
        return self.result(tuples.slice(tuples.num_rows - 1))

    def result(self, last: pa.Table) -> pa.Table:
        return pa.table({"t": last.column("t"), "mean": [self.total / self.n] * last.num_rows})

    def get_checkpoint(self) -> dict[str, Any]:
        return {"total": self.total, "n": self.n}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        self.total, self.n = state["total"], state["n"]


class Right(Mean):
    """The same with a result a tuple."""

    def process(self, tuples: pa.Table) -> pa.Table | None:
        found = []
        for number, x in enumerate(tuples.column("x").to_pylist()):
            self.total, self.n = self.total + x, self.n + 1
            found.append(self.result(tuples.slice(number, 1)))
        return pa.concat_tables(found)


class Rounding(Right):
    """Sums a table at once: differs in the last bit only."""

    def process(self, tuples: pa.Table) -> pa.Table | None:
        self.total += float(np.sum(tuples.column("x").to_numpy()))
        self.n += tuples.num_rows
        return None if self.n < 120 else self.result(tuples.slice(tuples.num_rows - 1))


class Forgets(Right):
    def get_checkpoint(self) -> dict[str, Any]:
        return {"total": self.total}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


class RestoresHalf(Right):
    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        self.n = state["n"]


class ForgetsWhenSaved(Right):
    def get_checkpoint(self) -> dict[str, Any]:
        state = super().get_checkpoint()
        self.n = 0
        return state


class Shares(Right):
    """A list of all objects."""

    seen: ClassVar[list[int]] = []

    def process(self, tuples: pa.Table) -> pa.Table | None:
        self.seen.append(tuples.num_rows)
        self.total += len(self.seen)
        return super().process(tuples)


class SharesWhileOthersWork(Right):
    """Begins anew with every object, so that only two at a time disturb each other."""

    last: ClassVar[dict[str, float]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.last["x"] = 0.0

    def process(self, tuples: pa.Table) -> pa.Table | None:
        found = []
        for number, x in enumerate(tuples.column("x").to_pylist()):
            self.total, self.n = self.last["x"], 1
            self.last["x"] = x
            found.append(self.result(tuples.slice(number, 1)))
        return pa.concat_tables(found)

    def get_checkpoint(self) -> dict[str, Any]:
        return {"x": self.last["x"]}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        self.last["x"] = state["x"]


class LooksAtTheClock(Right):
    def result(self, last: pa.Table) -> pa.Table:
        return pa.table({"t": last.column("t"), "mean": [float(clock.perf_counter_ns())] * last.num_rows})


class Dice(Right):
    def result(self, last: pa.Table) -> pa.Table:
        return pa.table({"t": last.column("t"), "mean": np.random.default_rng().random(last.num_rows)})


class SaysItTwice(Sorted):
    """Returns from `advance` what it has returned before."""

    def advance(self, boundary: int) -> pa.Table:
        kept = self.waiting
        due = super().advance(boundary)
        self.waiting = kept
        return due.slice(max(0, due.num_rows - 3)).set_column(1, "t", pa.array([boundary] * min(3, due.num_rows)))


class GoesBack(Right):
    """Returns results of a time that was said to be over."""

    def result(self, last: pa.Table) -> pa.Table:
        return super().result(last).set_column(0, "t", pa.array([0] * last.num_rows, pa.int64()))


@pytest.mark.parametrize(
    ("operator", "what", "todo"),
    [
        (Mean, "there are 2 results, in one go there are 1|result 0 has", "process(a), then process(b)"),
        (Rounding, "result 0 has mean = ", "process(a), then process(b)"),
        (Forgets, "result . has mean = ", "get_checkpoint has to return all that changes"),
        (RestoresHalf, "result . has mean = ", "get_checkpoint has to return all that changes"),
        (ForgetsWhenSaved, "result . has mean = |division by zero", "get_checkpoint"),
        (Shares, "two objects over the same tuples return other results", "what objects of a class share"),
        (SharesWhileOthersWork, "result . has mean = ", "objects of the class must share nothing"),
        (LooksAtTheClock, "two objects over the same tuples", "the clock"),
        (Dice, "two objects over the same tuples", "random numbers without a seed"),
        (SaysItTwice, "result|results", "advance(5), then advance(9)"),
        (GoesBack, "before the boundary", "advance"),
    ],
)
def test_operators_that_are_wrong_are_found_out(operator: Any, what: str, todo: str) -> None:
    with pytest.raises(NotRepeatableError, match=what) as caught:
        sl.testing.check_operator(operator(), some_tuples())
    assert caught.value.what.startswith(f"{operator.__name__}: ")
    assert todo in caught.value.todo
    assert "(seed=0)" in caught.value.where


def test_right_is_right() -> None:
    sl.testing.check_operator(Right(), some_tuples(), runs=10)


def test_the_smallest_cut_is_shown() -> None:
    with pytest.raises(NotRepeatableError) as caught:
        sl.testing.check_operator(Mean(), some_tuples())
    assert caught.value.where == "tuple 0; tuple 1 (seed=0)"
    with pytest.raises(NotRepeatableError) as caught:
        sl.testing.check_operator(Forgets(), some_tuples(), seed=3)
    assert caught.value.where == "tuple 0; saved; lost, restored; tuple 1 (seed=3)"


def test_a_seed_says_what_is_tried() -> None:
    assert scripts(Random(4), 50, 30) == scripts(Random(4), 50, 30) != scripts(Random(5), 50, 30)
    assert script_text(((1, "save"), (3, "advance"), (3, "crash")), 4) == (
        "tuple 0; saved; tuples 1 to 2; advance; lost, restored, tuples 1 to 2 again; tuple 3"
    )


def test_what_it_has_to_be_told() -> None:
    with pytest.raises(OptionError, match="was given no tuples"):
        sl.testing.check_operator(Right(), [])
    nameless = some_tuples()[0].rename_columns(["k", "s", "v", "x", "when"])
    with pytest.raises(OptionError, match="which column is the time"):
        sl.testing.check_operator(Right(), nameless)


@pytest.mark.long  # compiles a function
def test_functions_are_checked_too() -> None:
    @sl.keyed(state="n long, total double", output="mean double", expire=9)
    def means(state: Any, row: Any, out: Any) -> int:
        state.n += 1
        state.total += row.x
        out.mean = state.total / state.n
        return sl.EMIT

    with pytest.raises(OptionError, match="needs the key"):
        sl.testing.check_operator(means, some_tuples(), time="t")
    sl.testing.check_operator(means, some_tuples(), key="k", time="t", runs=10)


def test_the_class_in_the_documentation_is_right() -> None:
    text = (Path(__file__).parents[2] / "docs" / "user-defined-operators.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    (shown,) = (block for block in blocks if "class Model" in block)
    (checked,) = (block for block in blocks if "check_operator" in block)
    exec(shown.partition("wafers = ")[0] + checked, {})
