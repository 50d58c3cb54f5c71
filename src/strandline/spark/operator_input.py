"""What operators are built on, in a user's words: windows over it, and stateless work before them."""

from __future__ import annotations

from typing import Any

from strandline.log.spec import StreamSpec
from strandline.operators.aggregate.windows import Window
from strandline.spark.aggregation import OperatorStart, Windowed
from strandline.spark.place import Place
from strandline.spark.query import Query
from strandline.spark.shaped import Shaped, shaped


class OperatorInput:
    """A stream, or a DataFrame on its way into one: an `Input` with the methods by which operators are built on it."""

    @property
    def input_spec(self) -> StreamSpec:
        """What the stream is, or will be."""
        raise NotImplementedError

    @property
    def input_place(self) -> Place:
        """Where it is, or will be."""
        raise NotImplementedError

    def start_operator(self, spark: Any, start: OperatorStart) -> Query:
        """Starts the query that feeds an operator."""
        raise NotImplementedError

    def window(self, window: Window) -> Windowed:
        """Cuts the stream into windows, per key; `aggregate` on the result says what to compute over each."""
        return Windowed(self, window)

    def where(self, condition: Any) -> Shaped:
        """Only the tuples for which a pyarrow expression is true, for an operator: `where(pc.field("price") > 0)`.

        The stream itself stays as it is.
        """
        return shaped(self).where(condition)

    def select(self, *columns: str, **named: Any) -> Shaped:
        """Tuples of these columns, for an operator: `select("id", "at", total=pc.field("price") * pc.field("n"))`.

        The stream itself stays as it is.
        """
        return shaped(self).select(*columns, **named)
