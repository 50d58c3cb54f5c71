"""The definition of a stateless operator: the shapes of its inputs, the shape of all tuples, the columns that are left.

Such an operator has no windows (N = 0). It writes results and no footprints, and its place in the input is all that a
recovery needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy.typing as npt
import pyarrow as pa

from strandline.arrow_types import nested_type
from strandline.operators.expressions.input_shapes import UNSHAPED, InputShapes
from strandline.operators.expressions.shape import AS_IS, Shape
from strandline.operators.one_table import OneTableDefinition
from strandline.operators.operator import TAKEN_IN, OnError

if TYPE_CHECKING:
    from strandline.operators.stateless.stateless_operator import StatelessOperator


@dataclass(frozen=True)
class StatelessDefinition(OneTableDefinition):
    """A filter, a selection of columns or a union: each result is made of one tuple, and has its key and its time."""

    kind: ClassVar[str] = "stateless"
    keeps_state: ClassVar[bool] = False

    output: tuple[tuple[str, Any], ...]
    """Names and types, in Spark's JSON, of the columns that are left."""
    key: tuple[tuple[str, str], ...]
    """Names and types of the key columns."""
    time: tuple[str, str]
    """Name and type of the time column of the first input, which is that of the results."""
    more_times: tuple[str, ...] = ()
    """The time columns of further inputs, which are like the first in all other columns that are read."""
    shape: Shape = AS_IS
    """The work on all tuples."""
    before: InputShapes = UNSHAPED
    """Of several inputs: the work on the tuples of each before they are one sequence."""
    time_is_offset: bool = False
    """True if times are places in another input, as those of results of count windows."""
    result_time: str = field(init=False)
    """The time column of the first input."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "result_time", self.time[0])

    def __hash__(self) -> int:
        """Returns a hash of the names: nested types are dictionaries, which have none."""
        return hash((tuple(name for name, _ in self.output), self.key, self.time, self.more_times))

    @property
    def has_times(self) -> bool:
        """False: nothing happens when time passes but that the boundary of the results moves."""
        return False

    # ------------------------------------------------------------------ columns

    @property
    def taken(self) -> Sequence[str]:
        """The columns that its shape needs."""
        return self.shape.reads([name for name, _ in self.output])

    @property
    def result_columns(self) -> list[tuple[str, Any]]:
        """Names and types of the columns that are left."""
        return [*self.output]

    @property
    def control_columns(self) -> list[tuple[str, str]]:
        """The place of a tuple in the input: tuples that are set aside have it. Footprints there are none."""
        return [(TAKEN_IN, "long")]

    @cached_property
    def output_schema(self) -> pa.Schema:
        """The columns of results as Arrow has them."""
        return pa.schema([pa.field(name, nested_type(kind)) for name, kind in self.output])

    @cached_property
    def own_shaping(self) -> Shape:
        """The shape of all tuples, without the columns that no result has."""
        return self.shape.pruned([name for name, _ in self.output])

    def result_lateness(self, lateness: int | None) -> int | None:
        """Returns the lateness of the input, whose order results keep; several inputs are taken in by time."""
        return 0 if self.more_times else lateness

    # ------------------------------------------------------------------ stream.json

    def text(self, *, is_timestamp: bool) -> str:
        """Returns the names of the columns that are left."""
        return f"stateless: {', '.join(name for name, _ in self.output)}"

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": self.kind,
            "output": [list(column) for column in self.output],
            "time": list(self.time),
        }
        if self.time_is_offset:
            body["time_is_offset"] = True
        if self.shape:
            body["shape"] = self.shape.to_json()
        before = self.before.to_json()
        if formulas := self.shape.formulas:
            before["expressions"] = before.get("expressions", {}) | {f.text: f.arrow for f in formulas}
        return body | before

    @classmethod
    def from_json(
        cls, body: Mapping[str, Any], key: Mapping[str, str], times: Sequence[tuple[str, str]] = ()
    ) -> StatelessDefinition:
        """Returns what `to_json` wrote; `times` are names and types of the inputs' time columns, if they are known."""
        name, kind = body["time"]
        return cls(
            _columns(body),
            tuple(key.items()),
            (name, kind),
            tuple(name for name, _ in times[1:]),
            Shape.from_json(body.get("shape", ()), body.get("expressions", {})),
            InputShapes.from_json(body),
            bool(body.get("time_is_offset")),
        )

    def continuing(self, stored: Mapping[str, Any] | None) -> StatelessDefinition:
        """Returns the definition with the columns that its stream has: others may have been added to an input since."""
        if stored is None or stored.get("kind") != self.kind:
            return self
        known = _columns(stored)
        return replace(
            self,
            output=known if all(column in self.output for column in known) else self.output,
            shape=self.shape.known_as(stored.get("expressions", {})),
            before=self.before.known_as(stored),
        )

    # ------------------------------------------------------------------ operators

    def fresh(self, on_error: OnError = "stop") -> StatelessOperator:
        """Returns an operator; it begins wherever its `input_end` is set to."""
        from strandline.operators.stateless.stateless_operator import StatelessOperator

        return StatelessOperator(self, on_error)

    def revived(self, arrays: Mapping[str, npt.NDArray[Any]], on_error: OnError = "stop") -> StatelessOperator:
        """Raises ValueError: there is no state that could be kept as arrays."""
        raise ValueError("a stateless operator keeps no arrays")


def _columns(body: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((str(name), kind) for name, kind in body["output"])
