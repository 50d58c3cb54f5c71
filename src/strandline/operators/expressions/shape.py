"""Stateless work before an operator: tuples are left out (`where`) and columns computed (`select`), in any order.

What remains of a tuple keeps its offset, so nothing that counts or replays offsets knows of it. It follows from the
tuple alone, so it is the same however the input is cut, and the same again in a replay. Of several inputs, each has a
shape of its own: `a.where(…).select(…).join(b.select(…), …)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strandline.arrow_types import simple_name
from strandline.control_columns import OFFSET
from strandline.errors import InputError, OptionError, SchemaError
from strandline.operators.expressions.expression_tree import Column
from strandline.operators.expressions.expressions import VALUE_ERRORS, Formula
from strandline.operators.operator import OnError

_ONE_BY_ONE = 16
"""So few rows, one of which cannot be computed, are tried one by one: halves of them would be as much work."""
_SHOWN = 60
"""So much of a value is shown in an error."""
_OR_SET_ASIDE = '; or start the operator with on_error="set_aside": such tuples go to its side log, read(late=True)'
Types = Mapping[str, str]
"""Columns and Spark's names of their types."""


@dataclass(frozen=True, slots=True)
class Where:
    """Leaves out the tuples for which the formula is false or null."""

    formula: Formula

    def over(self, table: pa.Table) -> pa.Table:
        return table.filter(self.formula.over(table))

    def reads(self, wanted: Iterable[str]) -> list[str]:
        return [*wanted, *self.formula.columns]

    def pruned(self, wanted: Iterable[str]) -> Where:
        return self


@dataclass(frozen=True, slots=True)
class Select:
    """Makes tuples of these columns; the offset stays."""

    columns: tuple[tuple[str, Formula], ...]

    def over(self, table: pa.Table) -> pa.Table:
        found = {name: table.column(name) if _is_plain(name, f) else f.over(table) for name, f in self.columns}
        kept = {OFFSET: table.column(OFFSET)} if OFFSET in table.column_names else {}
        return pa.table({**found, **kept})

    def reads(self, wanted: Iterable[str]) -> list[str]:
        chosen = set(wanted)
        return [column for name, formula in self.columns if name in chosen for column in formula.columns]

    def pruned(self, wanted: Iterable[str]) -> Select:
        chosen = set(wanted)
        return Select(tuple((name, formula) for name, formula in self.columns if name in chosen))


@dataclass(frozen=True, slots=True)
class Shape:
    """The steps of this work, first to last; without any, tuples stay as they are."""

    steps: tuple[Where | Select, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.steps)

    def where(self, condition: Any, schema: pa.Schema) -> Shape:
        """Adds a step, checked over tuples of this schema (those that the shape gives); returns the longer shape."""
        formula = Formula.of(condition, "where(…)")
        formula.require_truth(schema, "where(…)", f"where({formula.text})")
        return Shape((*self.steps, Where(formula)))

    def select(self, names: Sequence[str], named: Mapping[str, Any], schema: pa.Schema, keep: Sequence[str]) -> Shape:
        """Adds a step; returns the longer shape. `keep` are the columns that must not change: those of key and time."""
        given: dict[str, Any] = {}
        for name in names:
            if not isinstance(name, str):
                raise OptionError(f"select({name!r}) does not name a column", todo="give a new column a name: total=…")
            given[name] = name
        columns = tuple((name, _column(name, value)) for name, value in {**given, **named}.items())
        for name in keep:
            found = dict(columns).get(name)
            if found is None or not _is_plain(name, found):
                how = "leaves out" if found is None else "changes"
                raise SchemaError(
                    f"select(…) {how} {name!r}, the key or the time of the stream",
                    todo=f'keep it with select("{name}", …); for another key or time give it a new name, '
                    "then rekey(…) to a stream of its own",
                )
        for name, formula in columns:
            if name.startswith("_"):
                raise SchemaError(f"a column cannot be called {name!r}: names with _ in front are reserved")
            _require_type(name, formula, schema)
        return Shape((*self.steps, Select(columns)))

    def schema_over(self, schema: pa.Schema) -> pa.Schema:
        """Returns the schema of what it makes of tuples of this schema."""
        return schema if not self.steps else self.over(schema.empty_table()).schema

    def types_over(self, types: Types, schema: pa.Schema) -> dict[str, str]:
        """Returns the columns and types that the shape makes of tuples, by Spark's names."""
        return {f.name: simple_name(f.type) or types.get(f.name, str(f.type)) for f in self.schema_over(schema)}

    def columns_over(self, columns: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
        """Returns the columns that it makes of these, and their types in Spark's JSON; nested ones only by name."""
        for step in self.steps:
            made = step.over(schema.empty_table()).schema
            if isinstance(step, Select):
                given = {name: _plain_name(formula) for name, formula in step.columns}
                columns = {f.name: columns.get(given[f.name] or "") or simple_name(f.type) for f in made}
            schema = made
        return dict(columns)

    def reads(self, wanted: Sequence[str]) -> list[str]:
        """Returns the columns of the input that it takes to give these."""
        for step in reversed(self.steps):
            wanted = step.reads(wanted)
        return list(dict.fromkeys(wanted))

    def pruned(self, wanted: Sequence[str]) -> Shape:
        """Returns the shape without the columns that are not among these."""
        steps: list[Where | Select] = []
        for step in reversed(self.steps):
            steps.append(step.pruned(wanted))
            wanted = step.reads(wanted)
        return Shape(tuple(reversed(steps)))

    def over(self, table: pa.Table) -> pa.Table:
        """Returns what it makes of these tuples; raises one of `VALUE_ERRORS` if one cannot be computed."""
        for step in self.steps:
            table = step.over(table)
        return table

    def require_computable(self, schema: pa.Schema) -> None:
        """Raises `SchemaError` if there is an expression that cannot be computed for any tuple of this schema."""
        for step in self.steps:
            for formula in Shape((step,)).formulas:
                formula.type_over(schema, "before the operator")
            schema = step.over(schema.empty_table()).schema

    def failing(self, table: pa.Table, *, only_first: bool = False) -> npt.NDArray[np.int64]:
        """Returns the rows that cannot be computed, or the first of them: halves are tried, then rows one by one."""
        found: list[int] = []
        spans = [(0, table.num_rows)]
        while spans and not (only_first and found):
            first, count = spans.pop()
            try:
                self.over(table.slice(first, count))
            except VALUE_ERRORS:
                if count == 1:
                    found.append(first)
                    continue
                size = 1 if count <= _ONE_BY_ONE else (count + 1) // 2
                spans += [(at, min(size, first + count - at)) for at in range(first, first + count, size)][::-1]
        return np.array(found, np.int64)

    def read(self, table: pa.Table) -> pa.Table:
        """Returns what it makes of these tuples; raises `InputError` about the first that cannot be computed."""
        return self.computed(table, "stop", lambda _: None)

    def computed(self, table: pa.Table, on_error: OnError, set_aside: Callable[[pa.Table], None]) -> pa.Table:
        """Returns the shaped tuples; those that cannot be computed go to `set_aside`, or InputError is raised."""
        try:
            return self.over(table)
        except VALUE_ERRORS:
            self.require_computable(table.schema)  # as when it was defined: but this may be another machine
            rows = self.failing(table, only_first=on_error == "stop")
            if not len(rows):
                raise  # it is not the tuples
        if on_error == "stop":
            raise self.error(table, int(rows[0]))
        set_aside(table.take(pa.array(rows)))
        keep = np.ones(table.num_rows, bool)
        keep[rows] = False
        return self.over(table.filter(pa.array(keep)))

    def error(self, table: pa.Table, row: int) -> InputError:
        """Returns what is wrong with a row that cannot be computed."""
        one = table.slice(row, 1)
        why = "but it can by itself"
        try:
            self.over(one)
        except VALUE_ERRORS as problem:
            why = str(problem).splitlines()[0]
        values = ", ".join(f"{c}={str(v)[:_SHOWN]}" for c, v in one.to_pylist()[0].items() if not c.startswith("_"))
        has_offset = OFFSET in one.column_names
        return InputError(
            f"a tuple cannot be computed: {why}",
            where=(f"input offset {one.column(OFFSET)[0].as_py()}: " if has_offset else "") + values,
            todo='leave such tuples out in a step before, for example where(pc.field("b") != 0) before a division by b '
            "(in one expression Arrow computes all parts, those of pc.if_else, too)"
            + (_OR_SET_ASIDE if has_offset else ""),
        )

    # ------------------------------------------------------------------ stream.json

    def known_as(self, stored: Mapping[str, str]) -> Shape:
        """Returns the shape with the stream's text for each formula; see `Formula.known_as`."""
        return Shape(
            tuple(
                Where(s.formula.known_as(stored))
                if isinstance(s, Where)
                else Select(tuple((name, formula.known_as(stored)) for name, formula in s.columns))
                for s in self.steps
            )
        )

    @property
    def formulas(self) -> list[Formula]:
        """All of them."""
        each = [(s.formula,) if isinstance(s, Where) else tuple(f for _, f in s.columns) for s in self.steps]
        return [formula for formulas in each for formula in formulas]

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the steps by the texts of their formulas."""
        return [
            {"where": s.formula.text} if isinstance(s, Where) else {"select": {n: f.text for n, f in s.columns}}
            for s in self.steps
        ]

    @classmethod
    def from_json(cls, steps: Sequence[Mapping[str, Any]], expressions: Mapping[str, str]) -> Shape:
        """Returns what `to_json` gave; `expressions` has Arrow's form of each text."""

        def formula(text: str) -> Formula:
            return Formula(text, expressions[text])

        return cls(
            tuple(
                Where(formula(s["where"]))
                if "where" in s
                else Select(tuple((name, formula(text)) for name, text in s["select"].items()))
                for s in steps
            )
        )


AS_IS = Shape()
"""Nothing is done."""


def _column(name: str, value: Any) -> Formula:
    return Formula.of(pc.field(value) if isinstance(value, str) else value, f"select({name}=…)")


def _plain_name(formula: Formula) -> str | None:
    """Returns the column that it is, as it is; None if it is computed."""
    return formula.tree.path[0] if isinstance(formula.tree, Column) and len(formula.tree.path) == 1 else None


def _is_plain(name: str, formula: Formula) -> bool:
    """Returns whether it is the column of that name, as it is."""
    return formula.tree == Column((name,))


def _require_type(name: str, formula: Formula, schema: pa.Schema) -> None:
    kind = formula.type_over(schema, f"select({name}=…)")
    if simple_name(kind) is None and not any(_is_plain(column, formula) for column in formula.columns):
        raise SchemaError(
            f"select({name}={formula.text}) is a {kind}, which a stream cannot hold",
            todo='cast it, for example .cast("long") … .cast(pa.timestamp("us", "UTC"))',
        )


SetAside = Callable[[int, pa.Table], None]
"""Receives the tuples of an input that cannot be computed."""


@dataclass(frozen=True, slots=True)
class InputShapes:
    """The shape of each input; none at all if tuples stay as they are."""

    shapes: tuple[Shape, ...] = ()

    @classmethod
    def of(cls, shapes: Sequence[Shape]) -> InputShapes:
        """Returns these shapes, one for each input."""
        return cls(tuple(shapes)) if any(shapes) else cls()

    def __bool__(self) -> bool:
        return bool(self.shapes)

    def reads(self, takes: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
        """Returns the columns of each input that it takes to give these."""
        if not self.shapes:
            return tuple(map(tuple, takes))
        return tuple(tuple(s.reads(columns)) for s, columns in zip(self.shapes, takes, strict=True))

    def pruned(self, takes: Sequence[Sequence[str]]) -> InputShapes:
        """Returns them without what is not needed to give these columns of each input, see `reads`."""
        if not self.shapes:
            return self
        return InputShapes(tuple(s.pruned(columns) for s, columns in zip(self.shapes, takes, strict=True)))

    def schema_over(self, schemas: Sequence[pa.Schema]) -> Sequence[pa.Schema]:
        """Returns what they make of tuples of these schemas, an input each."""
        pairs = zip(self.shapes or [AS_IS] * len(schemas), schemas, strict=True)
        return [shape.schema_over(schema) for shape, schema in pairs]

    def over(self, tuples: Sequence[pa.Table], on_error: OnError, set_aside: SetAside) -> Sequence[pa.Table]:
        """Returns what they make of the tuples, a table an input.

        Those that cannot be computed are handed to `set_aside`, unmade; with "stop", InputError is raised about them.
        """
        if not self.shapes:
            return tuples
        return [
            shape.computed(table, on_error, lambda rows, i=i: set_aside(i, rows))  # type: ignore[misc]
            for i, (shape, table) in enumerate(zip(self.shapes, tuples, strict=True))
        ]

    # ------------------------------------------------------------------ stream.json

    def to_json(self, others: Sequence[Formula] = ()) -> dict[str, Any]:
        """Returns fields of an operator's JSON: the shapes, and Arrow's form of these and other formulas; or none."""
        body: dict[str, Any] = {"shapes": [shape.to_json() for shape in self.shapes]} if self.shapes else {}
        formulas = [*(formula for shape in self.shapes for formula in shape.formulas), *others]
        if self.shapes or formulas:
            body["expressions"] = {formula.text: formula.arrow for formula in formulas}
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> InputShapes:
        """Returns what `to_json` wrote into the JSON of an operator."""
        expressions = body.get("expressions", {})
        return cls(tuple(Shape.from_json(steps, expressions) for steps in body.get("shapes", ())))

    def known_as(self, stored: Mapping[str, Any] | None) -> InputShapes:
        """Returns the shapes with the texts that the JSON of a stream's operator has for their formulas."""
        expressions = (stored or {}).get("expressions", {})
        return InputShapes(tuple(shape.known_as(expressions) for shape in self.shapes))


UNSHAPED = InputShapes()
"""Tuples as they are."""
