"""The definition of a partition-wide operator: a user's class, its arguments, the columns of input and output."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy.typing as npt

from strandline.errors import OptionError, SchemaError
from strandline.operator_texts import call_text, version_text
from strandline.operators.expressions.shape import UNSHAPED, InputShapes
from strandline.operators.one_table import GivenInput, OneTableDefinition
from strandline.operators.operator import TAKEN_IN, OnError
from strandline.operators.partition_wide.user_operator import UserClass, UserOperator, is_class
from strandline.schema_text import columns_of

if TYPE_CHECKING:
    from strandline.operators.partition_wide.partition_operator import PartitionWideOperator

VERSION, ROW, ROWS, NAME, TYPE, BYTES, CHECKSUM = ("_version", "_row", "_rows", "_name", "_type", "_bytes", "_checksum")
_TYPES = ("long", "long", "long", "long", "string", "string", "binary", "long")
CONTROL: Final = tuple(zip((TAKEN_IN, VERSION, ROW, ROWS, NAME, TYPE, BYTES, CHECKSUM), _TYPES, strict=True))
"""Columns of footprints: t, the class's version, which row of how many, the value that it is of, its type, a piece of
its bytes, their checksum."""
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PartitionWideDefinition(OneTableDefinition):
    """A user's class over the partitions of an input."""

    kind: ClassVar[str] = "partition_wide"
    replays_versions: ClassVar[bool] = False
    lives_in_process: ClassVar[bool] = True

    of: UserClass
    output: Columns
    result_time: str
    key: Columns
    time: tuple[str, str]
    columns: tuple[str, ...] = ()
    """All columns of the input: which of them the class reads is not known."""
    more_times: tuple[str, ...] = ()
    before: InputShapes = UNSHAPED
    program: str = field(default="", repr=False)
    """Which program has made it: objects of another one's class, by the same name, may be other objects."""
    rows_max: int = field(default=1 << 17, compare=False)
    """Tuples that go to `process` at once."""

    @classmethod
    def over(
        cls, operator: Any, given: GivenInput, more_times: Sequence[str] = (), before: InputShapes = UNSHAPED
    ) -> PartitionWideDefinition:
        """Returns the operator over such an input; raises OptionError or SchemaError if there can be none.

        `more_times` are the time columns of further inputs, `before` is what is done to the tuples of each.
        """
        if is_class(operator):
            raise OptionError(f"apply({operator.__name__}) is a class", todo=f"call it: apply({operator.__name__}(…))")
        if not isinstance(operator, UserOperator):
            raise OptionError(f"apply({operator!r}) is not an operator", todo="derive its class from sl.Operator")
        of = UserClass.of(operator)
        if of.has_advance and given.lateness is None:
            raise OptionError(
                f"{of.name}.advance would never be called: in this stream nothing is ever late",
                todo='create the stream with lateness=, for example lateness="10 s"',
            )
        output, time = _output_of(of.name, operator)
        made = cls(
            of,
            output,
            time,
            tuple((c, given.type_of(c)) for c in given.key),
            (given.time, given.type_of(given.time)),
            tuple(given.columns),
            tuple(more_times),
            before,
            uuid.uuid4().hex,
        )
        made._require_columns()
        return made

    def _require_columns(self) -> None:
        """Raises SchemaError if the output cannot be a stream over this input."""
        name, types = self.of.name, dict(self.output)
        for column, kind in self.key:
            if types.get(column) != kind:
                has = f"has {column!r} as {types[column]}" if column in types else f"has no column {column!r}"
                raise SchemaError(
                    f"{name}: output {has}; the input's key is {column} {kind}",
                    where=f"output = {_text(self.output)!r}",
                    todo=f'results hold the key columns of the input: output = "{column} {kind}, …"',
                )
        if self.result_time not in types:
            raise SchemaError(
                f"{name}: the time of results, {self.result_time!r}, is not a column of output",
                where=f"output = {_text(self.output)!r}",
                todo="add it, as a timestamp, or name another column: time = …",
            )
        reserved = next((c for c in types if c.startswith("_")), None)
        if reserved is not None:
            raise SchemaError(
                f"{name}: a column of output is called {reserved!r}", todo="choose a name that does not begin with _"
            )
        is_number = [not kind.startswith("timestamp") for kind in (self.result_time_type, self.time[1])]
        if is_number[0] != is_number[1]:
            raise SchemaError(
                f"{name}: the time of results is {self.result_time} {self.result_time_type}, that of the input "
                f"{self.time[0]} {self.time[1]}",
                where=f"output = {_text(self.output)!r}",
                todo="make both timestamps, or both numbers: Strandline compares the two",
            )

    # ------------------------------------------------------------------ columns

    @property
    def result_time_type(self) -> str:
        """The type of the results' time."""
        return dict(self.output)[self.result_time]

    @property
    def taken(self) -> tuple[str, ...]:
        """All columns of the input."""
        return self.columns

    @property
    def can_compute(self) -> bool:
        return self.of.code is not None

    @property
    def result_columns(self) -> list[tuple[str, str]]:
        """Names and types of the results' columns: those of `output`."""
        return [*self.output]

    @property
    def control_columns(self) -> list[tuple[str, str]]:
        return [*CONTROL]

    @property
    def hidden(self) -> frozenset[str]:
        """Every column of results but the time: the state is that of all keys."""
        return frozenset(name for name, _ in self.output if name != self.result_time)

    @property
    def loads(self) -> tuple[str, ...]:
        return (self.result_time, *(c for c, _ in CONTROL))

    # ------------------------------------------------------------------ stream.json

    def text(self, *, is_timestamp: bool) -> str:
        """Returns the call of the class and its output in words."""
        return f"class {call_text(self.to_json())}: output {_text(self.output)}{version_text(self.of.version)}"

    def to_json(self) -> dict[str, Any]:
        body = {
            "kind": self.kind,
            "class": self.of.name,
            "arguments": json.loads(self.of.arguments),
            "output": [list(column) for column in self.output],
            "result_time": self.result_time,
            "time": list(self.time),
        }
        return {**body, **self.before.to_json(), **self.revised}

    @property
    def revised(self) -> Mapping[str, Any]:
        """The class, its arguments and its version, if that is not the first."""
        if self.of.version == 1:
            return {}
        return {"class": self.of.name, "arguments": json.loads(self.of.arguments), "version": self.of.version}

    @classmethod
    def from_json(
        cls, body: Mapping[str, Any], key: Mapping[str, str], times: Sequence[tuple[str, str]] = ()
    ) -> PartitionWideDefinition:
        """Returns what `to_json` wrote; its class is then a name, and cannot be computed."""
        of = UserClass(body["class"], json.dumps(body["arguments"], sort_keys=True), body.get("version", 1))
        time = times[0] if times else (str(body["time"][0]), str(body["time"][1]))
        return cls(
            of,
            tuple((str(name), str(kind)) for name, kind in body["output"]),
            body["result_time"],
            tuple(key.items()),
            time,
            tuple(dict.fromkeys([*key, time[0]])),
            tuple(name for name, _ in times[1:]),
            InputShapes.from_json(body),
        )

    # ------------------------------------------------------------------ operators

    def fresh(self, on_error: OnError = "stop") -> PartitionWideOperator:
        from strandline.operators.partition_wide.partition_operator import PartitionWideOperator

        return PartitionWideOperator(self, on_error)

    def revived(self, arrays: Mapping[str, npt.NDArray[Any]], on_error: OnError = "stop") -> PartitionWideOperator:
        """Raises ValueError: an object is not kept as arrays."""
        raise ValueError("the state of an object is not kept as arrays")


def _output_of(name: str, operator: UserOperator) -> tuple[Columns, str]:
    """Returns what a class says of its results; OptionError if it says nothing."""
    for attribute, example in (("output", '"wafer long, at timestamp, quality double"'), ("time", '"at"')):
        if not isinstance(getattr(operator, attribute, None), str):
            raise OptionError(f"{name} has no {attribute}", todo=f"write {attribute} = {example} into the class")
    columns = columns_of(operator.output, f"{name}.output")
    seen: set[str] = set()
    for column, _ in columns:
        if column.lower() in seen:
            raise SchemaError(f"{name}: output has the column {column!r} twice", todo="rename one")
        seen.add(column.lower())
    return columns, operator.time


def _text(columns: Columns) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
