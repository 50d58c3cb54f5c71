"""What operators are built on, in a user's words: windows over it, and stateless work before them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.log.spec import StreamSpec
from strandline.operators.aggregate.windows import Window
from strandline.spark.aggregation import Windowed
from strandline.spark.place import Place
from strandline.spark.processing_element import Input
from strandline.spark.shaped import Shaped, shaped
from strandline.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.spark.joining import Join


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

    def join(
        self,
        other: Any,
        /,
        *,
        within: Duration | tuple[Duration, Duration] | None = None,
        left: Any = None,
        right: Any = None,
        per: str = "key",
        how: str = "inner",
        group: int | None = None,
    ) -> Join:
        """Pairs of tuples of this stream and another one, of the same key: `orders.join(payments, within="10 min")`.

        With `within`, times are at most so far apart; `("0 s", "5 min")`: the other's time is not before, and at most
        five minutes after. Or each side keeps its last tuples, `left=sl.count_window(1024), right=sl.count_window(0)`,
        of a key or, with `per="partition"`, of all keys of a partition. `how` is inner, left, right or full, the latter
        three for `within`. `group` is how many tuples of a window are saved at once.
        """
        from strandline.spark.joining import joined  # which builds on this class

        windows = {"within": within, "left": left, "right": right, "per": per, "how": how}
        return joined(self, other, windows, group)

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
