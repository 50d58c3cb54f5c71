"""The definition of a join: its two inputs, its windows, and the columns of results and of footprints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strandline.arrow_types import nested_type
from strandline.errors import OptionError, SchemaError
from strandline.operator_texts import join_text, version_text
from strandline.operators.expressions.shape import AS_IS, UNSHAPED, InputShapes, Shape
from strandline.operators.join.join_windows import LEFT, NAMES, RIGHT, SIDES, JoinWindows
from strandline.operators.join.predicate import Predicate
from strandline.operators.operator import TAKEN_IN, Definition, OnError
from strandline.units import END_OF_TIME, earlier

if TYPE_CHECKING:
    from strandline.operators.join.join_operator import JoinOperator

RESULT_TIME: Final = "time"
"""The column with the later of the two times, or the only one."""
INPUT_COLUMN, OPEN_COLUMN, SIDE_COLUMN, ORDINAL_COLUMN = TAKEN_IN, "_open", "_side", "_ordinal"
CONTROL: Final = ((INPUT_COLUMN, "long"), (OPEN_COLUMN, "long"), (SIDE_COLUMN, "byte"), (ORDINAL_COLUMN, "long"))
"""Columns of footprints: how far the input was taken in, N, and whose tuple it is: its side and place there."""
GROUP: Final = 1024
"""Tuples that are saved at once. Measured: 256 cost twice as much a step, 4096 hardly less."""


@dataclass(frozen=True)
class JoinInput:
    """One side as it is when it has its shape: types of all columns by name, key columns, time column."""

    columns: Mapping[str, Any]
    key: tuple[str, ...]
    time: str
    shape: Shape = AS_IS
    """The work on the tuples of its stream before the join takes them in."""


@dataclass(frozen=True)
class JoinDefinition(Definition):
    """A join, equal by value; `columns` are those of each side without the key, its own time among them."""

    kind: ClassVar[str] = "join"
    replays_windows: ClassVar[bool] = True
    result_time = RESULT_TIME

    key: tuple[tuple[str, str], ...]
    times: tuple[str, str]
    columns: tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
    windows: JoinWindows
    where: Predicate | None = None
    group: int = GROUP
    shapes: InputShapes = UNSHAPED
    is_self: bool = False
    """True if both sides are one input: a stream that is joined with itself. No tuple meets itself."""

    @classmethod
    def of(
        cls,
        left: JoinInput,
        right: JoinInput,
        windows: JoinWindows,
        where: Any = None,
        group: int = GROUP,
        *,
        is_self: bool = False,
    ) -> JoinDefinition:
        """Returns the join of two inputs; raises OptionError or SchemaError if there can be none."""
        if isinstance(group, bool) or not isinstance(group, int) or group < 1:
            raise OptionError(f"join: group={group!r} is not a number of tuples", todo="use 1 or more")
        keys = [tuple((c, type_text(side.columns[c])) for c in side.key) for side in (left, right)]
        if keys[LEFT] != keys[RIGHT]:
            raise SchemaError(
                f"join: the streams have different keys: left has {_listed(keys[LEFT])}, right {_listed(keys[RIGHT])}",
                todo="rename or cast the key columns of one of the streams",
            )
        columns = [
            tuple((c, type_text(kind)) for c, kind in side.columns.items() if c not in side.key)
            for side in (left, right)
        ]
        for side, name in zip((left, right), NAMES, strict=True):
            if side.time in side.key:
                raise SchemaError(f"join: {side.time!r} is a key and the time of {name}", todo="use another key")
        predicate = where if where is None or isinstance(where, Predicate) else Predicate.of(where)
        made = cls(
            keys[LEFT],
            (left.time, right.time),
            (columns[LEFT], columns[RIGHT]),
            windows,
            predicate,
            group,
            InputShapes.of([left.shape, right.shape]),
            is_self,
        )
        made.require_sound()
        return made

    def require_sound(self) -> None:
        """Raises SchemaError or OptionError if there can be no such join."""
        if self.is_self and self.windows.sizes[RIGHT]:
            raise OptionError(
                "join: a stream that is joined with itself needs a window of tuples on the left only, for both sides "
                "are the same tuples",
                todo="write left=count_window(n), right=count_window(0): each tuple meets the n before it; or within=",
            )
        names = [name for name, _ in self.result_columns]
        lower = [name.lower() for name in names]  # Spark does not tell them apart
        for name in names:
            if lower.count(name.lower()) > 1:
                raise SchemaError(
                    f"join: two columns of the results would be called {name!r}",
                    todo="rename a column before the join: names that both sides have get left_ and right_ in front",
                )
            if name.startswith("_"):
                raise SchemaError(
                    f"join: a column is called {name!r}, and names that begin with _ are reserved", todo="rename it"
                )
        for side in SIDES:
            for _, kind in self.columns[side]:
                stored_type(kind)
        if self.where is not None:
            self.where.check(self.types_of(LEFT), self.types_of(RIGHT), over_windows=self.windows.meets_any)

    # ------------------------------------------------------------------ columns

    @property
    def takes(self) -> tuple[tuple[str, ...], ...]:
        """The columns that are taken in of each input: all that its shape leaves."""
        keys = [c for c, _ in self.key]
        return tuple((*keys, *(c for c, _ in self.columns[side])) for side in SIDES)

    @property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """The columns of each input that the shapes of its sides need."""
        left, right = super().reads
        return (tuple(dict.fromkeys((*left, *right))),) if self.is_self else (left, right)

    @property
    def has_times(self) -> bool:
        return self.windows.is_band

    @property
    def time_types(self) -> tuple[str, str]:
        """The types of the two time columns."""
        left, right = (dict(self.columns[side])[self.times[side]] for side in SIDES)
        return left, right

    @property
    def time_type(self) -> str:
        """The type of the results' time."""
        return self.time_types[LEFT]

    def types_of(self, side: int) -> dict[str, str]:
        """Returns the types of all columns of a side, the key among them."""
        return dict([*self.key, *self.columns[side]])

    @cached_property
    def side_columns(self) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
        """The columns of each side that results have beside key and time; those of right begin with its key if keys
        differ."""
        left, right = self.columns
        return left, (*self.key, *right) if self.windows.meets_any else right

    @property
    def fits_word(self) -> bool:
        """True if a record holds all that is needed of a key: it fits a word, or is a column of its tuple."""
        return self.windows.meets_any or self.key_codec.fits_word

    @cached_property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the columns of each side in the results.

        What both have, and what is called like the results' time, gets the name of its side in front.
        """
        mine = [{c for c, _ in self.columns[side]} for side in SIDES]
        shared = (mine[LEFT] & mine[RIGHT]) | {RESULT_TIME} | {c for c, _ in self.key}
        left, right = (
            tuple(f"{NAMES[side]}_{c}" if c in shared else c for c, _ in self.side_columns[side]) for side in SIDES
        )
        return left, right

    @property
    def result_columns(self) -> list[tuple[str, Any]]:
        """Names and types of the results' columns: key, time, columns of left, columns of right."""
        sides = [
            (name, type_json(kind))
            for side in SIDES
            for name, (_, kind) in zip(self.names[side], self.side_columns[side], strict=True)
        ]
        return [*self.key, (RESULT_TIME, self.time_type), *sides]

    @property
    def control_columns(self) -> list[tuple[str, str]]:
        return list(CONTROL)

    @cached_property
    def no_footprints(self) -> list[pa.Array]:
        """The columns of footprints without a row."""
        return [pa.nulls(0, stored_type(type_text(k))) for _, k in [*self.result_columns, *self.control_columns]]

    def payload(self, side: int) -> list[tuple[str, str]]:
        """Returns the columns of a side that kernels do not look at: all but time, and key if that is to be equal."""
        key = self.key if self.windows.meets_any else ()
        return [(c, kind) for c, kind in (*key, *self.columns[side]) if c != self.times[side]]

    @cached_property
    def payload_schemas(self) -> tuple[pa.Schema, pa.Schema]:
        """Arrow's schema of the payload of each side."""
        left, right = (pa.schema([(c, stored_type(kind)) for c, kind in self.payload(side)]) for side in SIDES)
        return left, right

    # ------------------------------------------------------------------ stream.json, and operators

    @property
    def blocked_without_input(self) -> str | None:
        """The reason of an inner join; an outer join has the tuples without a match."""
        return None if any(self.windows.outer) else "an inner join has only what it kept to match"

    def text(self, *, is_timestamp: bool) -> str:
        """Returns the windows and the condition in words.

        >>> windows = JoinWindows("band", -5_000_000, 600_000_000, how="left")
        >>> at = (("at", "timestamp"),)
        >>> definition = JoinDefinition((("k", "long"),), ("at", "at"), (at, at), windows, Predicate("left.a > 1", 2))
        >>> definition.text(is_timestamp=True)
        'left join, right -5 s to 10 min after left, where left.a > 1 (version 2)'
        """
        text = join_text(self.windows.to_json(), is_timestamp=is_timestamp, is_self=self.is_self)
        if self.where is None:
            return text
        return f"{text}, where {self.where.text}{version_text(self.where.version)}"

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "kind": self.kind,
            "key": [list(column) for column in self.key],
            "times": list(self.times),
            "columns": [[[c, type_json(kind)] for c, kind in self.columns[side]] for side in SIDES],
            "windows": self.windows.to_json(),
            **({"self": True} if self.is_self else {}),
        }
        if self.where is not None:
            body["where"] = self.where.text
        return {**body, **self.revised, **self.shapes.to_json()}

    @property
    def revised(self) -> Mapping[str, Any]:
        """The condition and its version, if that is not the first."""
        if self.where is None or self.where.version == 1:
            return {}
        return {"where": self.where.text, "version": self.where.version}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> JoinDefinition:
        """Returns what `to_json` wrote; a condition is then a text that says what it was, and cannot be computed."""
        left, right = (tuple((c, type_text(kind)) for c, kind in columns) for columns in body["columns"])
        key = tuple((c, str(kind)) for c, kind in body["key"])
        where = Predicate(body["where"], body.get("version", 1)) if "where" in body else None
        times = (str(body["times"][LEFT]), str(body["times"][RIGHT]))
        shapes, windows = InputShapes.from_json(body), JoinWindows.from_json(body["windows"])
        return cls(key, times, (left, right), windows, where, shapes=shapes, is_self=body.get("self", False))

    def result_boundary(self, boundary: int | None, input_end: int) -> int | None:
        """Returns the boundary, or before it as far as a tuple without a match may have to wait for its result."""
        return boundary if boundary in (None, END_OF_TIME) else earlier(boundary, self.windows.delay)

    def in_small(
        self, columns: Sequence[Mapping[str, Any]], schemas: Sequence[pa.Schema]
    ) -> tuple[JoinDefinition, Sequence[Mapping[str, Any]]]:
        """Returns the join over shaped tuples, without its condition, which is compiled where it is used."""
        taken = [{name: type_json(kind) for name, kind in self.types_of(side).items()} for side in SIDES]
        return replace(self, where=None, shapes=UNSHAPED, is_self=False), taken

    def continuing(self, stored: Mapping[str, Any] | None) -> JoinDefinition:
        """Returns the join over the columns that its stream has: others may have been added to an input since."""
        if stored is None or stored.get("kind") != self.kind:
            return self
        known = [tuple((c, type_text(kind)) for c, kind in columns) for columns in stored["columns"]]
        shapes = self.shapes.known_as(stored)
        if all(set(before) <= set(now) for before, now in zip(known, self.columns, strict=True)):
            return replace(self, columns=(known[LEFT], known[RIGHT]), shapes=shapes)
        return replace(self, shapes=shapes)

    def fresh(self, on_error: OnError = "stop") -> JoinOperator:
        from strandline.operators.join.join_operator import JoinOperator

        return JoinOperator.new(self, on_error)

    def revived(self, arrays: Mapping[str, npt.NDArray[np.generic]], on_error: OnError = "stop") -> JoinOperator:
        from strandline.operators.join.join_operator import JoinOperator

        return JoinOperator.of(self, arrays, on_error)


def type_text(kind: Any) -> str:
    """Returns a type as a text that is equal for equal types: Spark's name, or the JSON of a nested type."""
    return json.dumps(kind, sort_keys=True) if isinstance(kind, Mapping) else str(kind)


def type_json(text: str) -> Any:
    """Returns what `type_text` was made of."""
    return json.loads(text) if text.startswith("{") else text


def stored_type(text: str) -> pa.DataType:
    """Returns the Arrow type of a column; `SchemaError` for a type that no stream holds."""
    found = nested_type(type_json(text))
    if found is None:
        raise SchemaError(
            f"a column has type {text}, which a stream cannot hold", todo="cast the column before the join"
        )
    return found


def _listed(key: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{c} {kind}" for c, kind in key)
