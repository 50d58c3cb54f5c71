"""The definition of a barrier: inputs with names, a key that they share, and the columns of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy.typing as npt
import pyarrow as pa

from strandline.arrow_types import nested_type
from strandline.errors import OptionError, SchemaError
from strandline.operators.expressions.shape import UNSHAPED, InputShapes
from strandline.operators.operator import TAKEN_IN, Definition, OnError

if TYPE_CHECKING:
    from strandline.operators.barrier.barrier_operator import BarrierOperator

INPUTS_MAX = 16
TIME = "time"
OPEN = "_open"


@dataclass(frozen=True)
class BarrierInput:
    """One of the inputs."""

    name: str
    """By which its columns are called in the results."""
    time: str
    columns: tuple[tuple[str, Any], ...]
    """Names and types, in Spark's JSON, of all its columns but those of the key, when it has its shape."""

    @property
    def time_type(self) -> str:
        """The type of its time."""
        return str(dict(self.columns)[self.time])

    def __hash__(self) -> int:
        """Returns a hash of the names: nested types are dictionaries, which have none."""
        return hash((self.name, self.time, tuple(name for name, _ in self.columns)))


@dataclass(frozen=True)
class BarrierDefinition(Definition):
    """Per key, the n-th tuples of all inputs. What is null in a key is a value of its own, as in aggregates."""

    kind: ClassVar[str] = "barrier"
    replays_windows: ClassVar[bool] = True
    closes_early: ClassVar[bool] = True
    blocked_without_input: ClassVar[str | None] = "a barrier has nothing to say"
    result_time = TIME

    key: tuple[tuple[str, str], ...]
    inputs: tuple[BarrierInput, ...]
    at_most: int | None = None
    """Of a key no more tuples wait: over that the oldest is set aside, and the next one takes its place."""
    shapes: InputShapes = UNSHAPED

    def __post_init__(self) -> None:
        many = len(self.inputs)
        if not 2 <= many <= INPUTS_MAX:
            raise OptionError(f"a barrier cannot have {many} inputs", todo=f"use 2 to {INPUTS_MAX} inputs")
        if any(not one.name or one.name.startswith("_") for one in self.inputs):
            raise OptionError("an input of a barrier has no name", todo="write barrier(temperature=…, pressure=…)")
        if self.at_most is not None and self.at_most < 1:
            raise OptionError(
                f"barrier: at_most={self.at_most!r} is not a number of tuples",
                todo="use 1 or more, or None for no bound",
            )
        seen: set[str] = set()
        for name, _ in [*self.result_columns, *self.control_columns]:
            if name.lower() in seen:
                raise SchemaError(
                    f"two result columns of the barrier would be called {name!r}",
                    where=", ".join(name for name, _ in self.result_columns),
                    todo="give the inputs other names, or rename a column with select()",
                )
            seen.add(name.lower())

    @property
    def takes(self) -> tuple[tuple[str, ...], ...]:
        """The columns that it takes in, of each input: all that its shape leaves."""
        key = tuple(name for name, _ in self.key)
        return tuple((*key, *(name for name, _ in one.columns)) for one in self.inputs)

    @property
    def times(self) -> tuple[str, ...]:
        return tuple(one.time for one in self.inputs)

    @property
    def result_columns(self) -> list[tuple[str, Any]]:
        """The key, the latest time, then all other columns of each input under its name."""
        own = [(f"{one.name}_{name}", kind) for one in self.inputs for name, kind in one.columns]
        return [*self.key, (TIME, self.inputs[0].time_type), *own]

    @property
    def control_columns(self) -> list[tuple[str, str]]:
        """t, N, and of each input the place of its tuple: in a footprint of the one that waits, in a result of all.

        A result says what it was made of, so that a replay knows which tuples do not wait any more.
        """
        return [(TAKEN_IN, "long"), (OPEN, "long"), *((name, "long") for name in self.at_columns)]

    @property
    def at_columns(self) -> tuple[str, ...]:
        """The control column of each input with the place of its tuple."""
        return tuple(f"_at_{one.name}" for one in self.inputs)

    @cached_property
    def payload_schemas(self) -> tuple[pa.Schema, ...]:
        """Of each input, the columns of its tuples."""
        return tuple(
            pa.schema([(name, nested_type(kind)) for name, kind in (*self.key, *one.columns)]) for one in self.inputs
        )

    @cached_property
    def output_schema(self) -> pa.Schema:
        """The columns of results, then those that only footprints and the barrier's own results fill."""
        return pa.schema([(name, nested_type(kind)) for name, kind in [*self.result_columns, *self.control_columns]])

    def payload_names(self, number: int) -> list[str]:
        """Returns for each column that is read of an input, what the results call it."""
        one = self.inputs[number]
        return [*(name for name, _ in self.key), *(f"{one.name}_{name}" for name, _ in one.columns)]

    def text(self, *, is_timestamp: bool) -> str:
        """Returns the names of the inputs and the bound in words.

        >>> inputs = [BarrierInput(name, "at", (("at", "long"),)) for name in "ab"]
        >>> BarrierDefinition((("k", "long"),), tuple(inputs), 9).text(is_timestamp=False)
        'barrier of a and b, at most 9 tuples of a key wait'
        """
        bound = "" if self.at_most is None else f", at most {self.at_most:,} tuples of a key wait"
        return f"barrier of {' and '.join(one.name for one in self.inputs)}{bound}"

    def to_json(self) -> dict[str, Any]:
        inputs = [{"name": i.name, "time": i.time, "columns": [list(c) for c in i.columns]} for i in self.inputs]
        return {"kind": self.kind, "inputs": inputs, "at_most": self.at_most, **self.shapes.to_json()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any], key: Mapping[str, str]) -> BarrierDefinition:
        """Returns what `to_json` wrote, over key columns of these types."""
        inputs = (
            BarrierInput(i["name"], i["time"], tuple((name, kind) for name, kind in i["columns"]))
            for i in body["inputs"]
        )
        return cls(tuple(key.items()), tuple(inputs), body["at_most"], InputShapes.from_json(body))

    def in_small(
        self, columns: Sequence[Mapping[str, Any]], schemas: Sequence[pa.Schema]
    ) -> tuple[BarrierDefinition, Sequence[Mapping[str, Any]]]:
        return replace(self, shapes=UNSHAPED), [dict([*self.key, *one.columns]) for one in self.inputs]

    def continuing(self, stored: Mapping[str, Any] | None) -> BarrierDefinition:
        """Returns the barrier over the columns that its stream has: others may have been added to an input since."""
        if stored is None or stored.get("kind") != self.kind or len(stored["inputs"]) != len(self.inputs):
            return self
        known = [tuple((name, kind) for name, kind in one["columns"]) for one in stored["inputs"]]
        if all(all(c in own.columns for c in before) for before, own in zip(known, self.inputs, strict=True)):
            inputs = (replace(own, columns=before) for before, own in zip(known, self.inputs, strict=True))
            return replace(self, inputs=tuple(inputs), shapes=self.shapes.known_as(stored))
        return replace(self, shapes=self.shapes.known_as(stored))

    def fresh(self, on_error: OnError = "stop") -> BarrierOperator:
        from strandline.operators.barrier.barrier_operator import BarrierOperator
        from strandline.operators.barrier.waiting_state import WaitingState

        return BarrierOperator(self, WaitingState.without_tuples(self.payload_schemas), on_error)

    def revived(self, arrays: Mapping[str, npt.NDArray[Any]], on_error: OnError = "stop") -> BarrierOperator:
        from strandline.operators.barrier.barrier_operator import BarrierOperator
        from strandline.operators.barrier.waiting_state import WaitingState

        return BarrierOperator(self, WaitingState.held_by(arrays, self.payload_schemas), on_error)
