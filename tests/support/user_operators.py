"""Operators written as classes, for tests: over the columns of `tests.support.operator_streams`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.operators.one_table import GivenInput
from strandline.operators.partition_wide.definition import PartitionWideDefinition
from strandline.operators.partition_wide.user_operator import UserOperator
from tests.support.operator_streams import COLUMNS, LATENESS

POISON = 1009
"""A value of v that no test has by chance."""


def is_poison(row: Mapping[str, Any], poison: int) -> bool:
    """Whether `Running(poison=…)` raises over such a tuple."""
    return bool(poison and row["v"] and row["v"] % poison == 0)


class Running(UserOperator):
    """A weight learnt tuple by tuple, for every key and for all of them: order matters to the last bit."""

    output = "k long, t long, weight double, n long"
    time = "t"

    def __init__(self, rate: float = 0.25, poison: int = 0) -> None:
        self.rate = rate
        self.poison = poison
        self.weights = np.zeros((3, 2))
        self.n = 0

    def process(self, tuples: pa.Table) -> pa.Table | None:
        found = []
        for row in tuples.to_pylist():
            self.n += 1
            place = (row["k"] or 0) % 3
            self.weights[place, self.n % 2] += self.rate * ((row["x"] or 0.0) - self.weights.sum())
            if is_poison(row, self.poison):
                raise ValueError("poison")
            if self.n % 3:
                found.append({"k": row["k"], "t": row["t"], "weight": self.weights[place].sum(), "n": self.n})
        return pa.Table.from_pylist(found, schema=_schema()) if found else None

    def get_checkpoint(self) -> dict[str, Any]:
        return {"weights": self.weights, "n": self.n}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        self.weights, self.n = state["weights"], state["n"]


def _schema() -> pa.Schema:
    return pa.schema([("k", pa.int64()), ("t", pa.int64()), ("weight", pa.float64()), ("n", pa.int64())])


class Sorted(UserOperator):
    """Tuples in the order of their times, as soon as nothing before them can come."""

    output = "k long, t long, s string"
    time = "t"

    def __init__(self) -> None:
        self.waiting = pa.table(
            {"k": pa.array([], pa.int64()), "t": pa.array([], pa.int64()), "s": pa.array([], pa.string())}
        )

    def process(self, tuples: pa.Table) -> None:
        self.waiting = pa.concat_tables([self.waiting, tuples.select(["k", "t", "s"])])

    def advance(self, boundary: int) -> pa.Table:
        is_due = pc.less(self.waiting.column("t"), boundary)
        due = self.waiting.filter(is_due)
        self.waiting = self.waiting.filter(pc.invert(is_due))
        return due.take(np.argsort(due.column("t").to_numpy(), kind="stable"))

    def get_checkpoint(self) -> dict[str, Any]:
        return {name: self.waiting.column(name) for name in self.waiting.column_names}

    def restore_checkpoint(self, state: dict[str, Any]) -> None:
        self.waiting = pa.table(state)


def definition(operator: UserOperator, inputs: int = 1) -> PartitionWideDefinition:
    """Such an operator over one stream, or over several."""
    given = GivenInput(COLUMNS, ("k",), "t", LATENESS if inputs == 1 else 0)
    return PartitionWideDefinition.over(operator, given, ("t",) * (inputs - 1))
