"""Inputs on which users build operators: windows over them, and stateless work before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from strandline.operators.aggregate.windows import Window
from strandline.operators.join.join_windows import join_windows
from strandline.operators.keyed.keyed_function import KeyedFunction
from strandline.operators.partition_wide.user_operator import UserOperator, is_class
from strandline.spark.describe.aggregation import Windowed
from strandline.spark.describe.applied import Keyed, PartitionWide, applied, applied_class
from strandline.spark.describe.several import Join, joined
from strandline.spark.operator.processing_element import Upstream
from strandline.units import Duration, require_unit

if TYPE_CHECKING:
    from strandline.spark.describe.rekey import Rekeyed
    from strandline.spark.describe.shaped import Shaped


class OperatorInput(Upstream):
    """A stream, or a DataFrame on its way into one, with the methods that build operators on it."""

    def window(self, window: Window) -> Windowed:
        """Cuts the stream into windows, per key; `aggregate` on the result says what to compute over each."""
        return Windowed(self, window)

    def join(
        self,
        other: OperatorInput,
        *,
        within: Duration | tuple[Duration, Duration] | None = None,
        left: Window | None = None,
        right: Window | None = None,
        per: Literal["key", "partition"] = "key",
        how: Literal["inner", "left", "right", "full"] = "inner",
        match: Literal["key", "any"] = "key",
        where: Callable[[Any, Any], Any] | None = None,
        group: int | None = None,
    ) -> Join:
        """Joins tuples of this stream (left) with those of another one (right) that have the same key.

        `within="10 min"`: their times are at most that far apart; `within=("0 s", "5 min")`: right follows left by so
        much. Or `left=` and `right=`, `sl.count_window(n)`: a tuple meets the last n of the other side and its key, or
        with `per="partition"` the last n of the partition that have its key; 0 keeps none. `how="left"`, "right" or
        "full", of time bands, lets tuples of that side come out alone when nothing can match them any more.
        `match="any"` with `per="partition"` is a theta join: a tuple meets every tuple of the other side's window of
        its partition, whatever the keys are; results have the key of left, and that of right as `right_<key>`.
        `where=lambda left, right: …` or `.where(…)` says which pairs count. Both streams have the same key columns and
        partitions, and `lateness` set. `group` is how many tuples are saved at a time.
        """
        if self._input_spec.time_is_timestamp:
            require_unit(within, "join: within")
        made = joined(self, other, join_windows(within, left, right, per, how, match), group)
        return made if where is None else made.where(where)

    @overload
    def apply(self, operator: UserOperator) -> PartitionWide: ...

    @overload
    def apply(self, operator: KeyedFunction) -> Keyed: ...

    def apply(self, operator: Any) -> Keyed | PartitionWide:
        """Applies a user's operator, a keyed function or a class, to the stream.

        That is a function that `sl.keyed` has made an operator of, called once a tuple with the state of its key; or an
        object of a class derived from `sl.Operator`: every partition gets one like it. Raises OptionError or
        SchemaError at once if it cannot work over the columns of this stream.
        """
        if isinstance(operator, UserOperator) or is_class(operator):
            return applied_class(self, operator)
        return applied(self, operator)

    def rekey(self, key: str | Sequence[str], *, partitions: int | None = None) -> Rekeyed:
        """Gives the tuples another key: an operator without state, with `start`, `into` and `availability`.

        Each of its partitions reads all tuples of the stream and keeps those that Spark would place there, in the order
        of time, partition and offset. With a bound, tentative tuples pass through it. The stream needs `lateness`; a
        stream that exists can be shuffled by Spark instead, which reads it once: `Stream.rekey` with a path.
        """
        from strandline.spark.describe.rekey import rekey_operator

        options = {} if partitions is None else {"partitions": partitions}
        return rekey_operator(self, self._input_shape, key, options)

    def where(self, condition: Any) -> Shaped:
        """Keeps the tuples for which a pyarrow expression is true, for an operator: `where(pc.field("price") > 0)`.

        The stream itself stays as it is.
        """
        from strandline.spark.describe.shaped import shaped

        return shaped(self).where(condition)

    def select(self, *columns: str, **named: Any) -> Shaped:
        """Selects and computes columns, for an operator: `select("id", "at", total=pc.field("price") * pc.field("n"))`.

        The stream itself stays as it is.
        """
        from strandline.spark.describe.shaped import shaped

        return shaped(self).select(*columns, **named)
