"""What operators are built on, in a user's words: windows over it, and stateless work before them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.log.spec import StreamSpec
from strandline.operators.aggregate.windows import Window
from strandline.spark.aggregation import Windowed
from strandline.spark.place import Place
from strandline.spark.processing_element import Input
from strandline.spark.shaped import Shaped, shaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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

    @property
    def members(self) -> tuple[Input, ...]:
        """The streams that it is made of: itself, or those of a union."""
        return (self,)

    def ticks(self, spark: SparkSession) -> DataFrame:
        """A streaming DataFrame that has tuples whenever the stream has grown."""
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
