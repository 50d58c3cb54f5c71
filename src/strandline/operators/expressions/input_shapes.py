"""Stateless work before an operator over several inputs: each of them has a shape of its own.

`a.where(…).select(…).join(b.select(…), …)`. It is done as tuples are taken in, in a replay as well; what remains of a
tuple keeps its place in the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from strandline.operators.expressions.shape import AS_IS, Shape
from strandline.operators.operator import OnError

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

    def to_json(self) -> dict[str, Any]:
        """Returns fields of an operator's JSON: the shapes, and Arrow's form of their expressions; or none."""
        if not self.shapes:
            return {}
        formulas = [formula for shape in self.shapes for formula in shape.formulas]
        return {
            "shapes": [shape.to_json() for shape in self.shapes],
            "expressions": {formula.text: formula.arrow for formula in formulas},
        }

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
