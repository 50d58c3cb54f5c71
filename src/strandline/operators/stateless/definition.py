"""A stateless operator: the shapes of its inputs, the shape of all tuples, the columns that are left; and at work.

Such an operator has no windows (N = 0). It writes results and no footprints, and its place in the input is all that a
recovery needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy.typing as npt
import pyarrow as pa

from strandline.arrow_types import nested_type
from strandline.operator_texts import shape_text, shapes_text
from strandline.operators.aside_tables import VALUE, OneTableAside
from strandline.operators.expressions.shape import AS_IS, UNSHAPED, InputShapes, Shape
from strandline.operators.kernels.arrow_words import whole
from strandline.operators.one_table import OneTableDefinition
from strandline.operators.operator import TAKEN_IN, Extent, Footprints, Limits, OnError, Operator, Saved, StateImage
from strandline.units import END_OF_TIME

_COLUMNS_SHOWN = 8
_SHOWN = 200
"""So many characters are shown of the work on tuples."""


@dataclass(frozen=True)
class StatelessDefinition(OneTableDefinition):
    """A filter, a selection of columns or a union: each result is made of one tuple, and has its key and its time."""

    kind: ClassVar[str] = "stateless"
    keeps_state: ClassVar[bool] = False

    output: tuple[tuple[str, Any], ...]
    """Names and types, in Spark's JSON, of the columns that are left."""
    key: tuple[tuple[str, str], ...]
    time: tuple[str, str]
    """Name and type of the time column of the first input, which is that of the results."""
    more_times: tuple[str, ...] = ()
    shape: Shape = AS_IS
    """The work on all tuples."""
    before: InputShapes = UNSHAPED
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
        return False  # only the boundary of the results moves

    # ------------------------------------------------------------------ columns

    @property
    def taken(self) -> Sequence[str]:
        """The columns that its shape needs."""
        return self.shape.reads([name for name, _ in self.output])

    @property
    def result_columns(self) -> list[tuple[str, Any]]:
        return [*self.output]

    @property
    def control_columns(self) -> list[tuple[str, str]]:
        return [(TAKEN_IN, "long")]  # tuples that are set aside have their place in the input

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
        """Returns the work on tuples, and of how many inputs it makes one stream.

        >>> StatelessDefinition((), (), ("at", "timestamp"), ("at",)).text(is_timestamp=True)
        'union of 2 inputs'
        """
        if not self.more_times:
            return self.work_text or "all tuples as they are"
        union = f"union of {len(self.more_times) + 1} inputs"
        return f"{union}: {self.work_text}" if self.work_text else union

    @property
    def work_text(self) -> str:
        """The conditions and the columns, cut short if there are many; empty if tuples stay as they are."""
        before = [shape.to_json() for shape in self.before.shapes]
        own = shape_text(self.shape.to_json(), columns_max=_COLUMNS_SHOWN)
        text = "; ".join(filter(None, [shapes_text(before, columns_max=_COLUMNS_SHOWN), own]))
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"

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
        return body | self.before.to_json(self.shape.formulas)

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
        return StatelessOperator(self, on_error)

    def revived(self, arrays: Mapping[str, npt.NDArray[Any]], on_error: OnError = "stop") -> StatelessOperator:
        raise ValueError("a stateless operator keeps no arrays")


def _columns(body: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((str(name), kind) for name, kind in body["output"])


class StatelessOperator(Operator):
    """A definition at a place in its input. There is no window, and nothing to save."""

    opened = open_windows = 0
    rows_at_once = 1 << 18
    due = END_OF_TIME

    def __init__(self, definition: StatelessDefinition, on_error: OnError = "stop") -> None:
        self.definition = definition
        self.on_error = on_error
        self.input_end = 0
        self.aside = self._nothing_aside()

    def _nothing_aside(self) -> OneTableAside:
        d = self.definition
        return OneTableAside(d, "stateless operator", (d.result_time,), d.time[1])

    def begin(self) -> None:
        self.aside = self._nothing_aside()

    def feed(self, tuples: Sequence[pa.Table]) -> Iterator[list[pa.Array]]:
        """Yields the columns of the tuples that are left, in the order of the input."""
        definition = self.definition
        table = self.aside.one_table(tuples, self.on_error)
        made = definition.own_shaping.computed(table, self.on_error, self._set_aside)
        if made.num_rows:
            schema = definition.output_schema
            yield [whole(column) for column in made.select(schema.names).cast(schema).columns]

    def _set_aside(self, tuples: pa.Table) -> None:
        """Keeps tuples that cannot be computed for the side log."""
        self.aside.add_tuples(VALUE, tuples, 0)

    def replay(self, tuples: Sequence[pa.Table]) -> None:
        """Does nothing: no tuple leaves a trace."""

    repeat = replay

    def save(self, position: int, limits: Limits) -> Footprints:
        return self.save_nothing()

    def save_all(self, position: int) -> Footprints:
        return self.save_nothing()

    def save_nothing(self) -> Footprints:
        return Footprints(self.windows(), self.windows())

    def extent(self, position: int) -> Extent:
        return Extent(0, self.input_end, position)  # a recovery reads nothing

    def load(self, newest_first: Iterable[Saved]) -> None:
        """Does nothing: there is no footprint."""

    def windows(self, *, now: bool = False) -> list[pa.Array]:
        return [pa.nulls(0, field.type) for field in [*self.definition.output_schema, pa.field("", pa.int64())]]

    def image(self) -> StateImage:
        return StateImage({}, None)
