"""An operator as a user describes it: its inputs, what it computes, when it saves. `start` sets it going."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from strandline.checkpoint.policy import Policy, cec
from strandline.errors import OptionError
from strandline.log.storage.storage import Durability
from strandline.operators.operator import Definition, OnError
from strandline.processing.element import TUPLES_MAX, Element
from strandline.recovery.stream_definition import continued, output_spec
from strandline.spark.housekeeping import checked_choice
from strandline.spark.place import Place
from strandline.spark.processing_element import Input, ProcessingElement, QueryOptions
from strandline.spark.query import Query
from strandline.spark.trigger import Trigger, plain_trigger
from strandline.units import Duration, duration_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

D = TypeVar("D", bound=Definition)


class OperatorDescription(Generic[D]):
    """What aggregations, joins and barriers have in common for whoever builds one."""

    def __init__(self, inputs: Sequence[Input], definition: D, policy: Policy | None = None) -> None:
        self._inputs = tuple(inputs)
        self._definition = definition
        self._policy = policy or cec()

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What it works on."""
        return self._inputs

    @property
    def definition(self) -> D:
        """What it computes."""
        return self._definition

    @property
    def policy(self) -> Policy:
        """When it saves what of its state."""
        return self._policy

    def checkpoint(self, policy: Policy) -> Self:
        """The same with another checkpoint policy: `sl.cec(…)`, `sl.instant(…)` or `sl.none()`."""
        if not isinstance(policy, Policy):
            raise OptionError(
                f"checkpoint({policy!r}) is not a policy", todo='use for example sl.cec(extent="2x", replay=500_000)'
            )
        for input_ in self._inputs:
            _require_same_unit(policy, input_)
        return type(self)(self._inputs, self._definition, policy)

    def start(
        self,
        spark: SparkSession,
        path: str,
        *,
        trigger: Trigger = None,
        name: str | None = None,
        max_tuples_per_batch: int | None = None,
        on_error: OnError = "stop",
        retention: Duration | None = None,
        durability: Durability = "fsync",
        storage_options: Mapping[str, Any] | None = None,
        spark_checkpoint_dir: str | None = None,
        compaction: str = "auto",
        final: bool = False,
    ) -> Query:
        """Starts the operator, or goes on where it stood; its output stream at `path` is created if there is none.

        Nothing but that stream is needed to go on: not Spark's checkpoint, not this machine. `trigger` is an interval
        ("200 ms"), "available-now", or None for as fast as it goes; PySpark's dict(availableNow=True) does as well.
        `max_tuples_per_batch` bounds how much input one batch takes in when there is much to catch up with.
        `compaction="off"` leaves small blocks as they are.
        What cannot be computed (a sum that does not fit its 64 bits or 38 digits, a value of 16 MiB) ends it, unless
        `on_error="set_aside"`: then it goes to the side log of the operator's stream with its reason, `read(late=True,
        positions=True)`, and the operator goes on.
        `final` is for an operator behind an entry point, see `Entry.start`.
        """
        if max_tuples_per_batch is not None and (not isinstance(max_tuples_per_batch, int) or max_tuples_per_batch < 1):
            raise OptionError(
                f"max_tuples_per_batch={max_tuples_per_batch!r} is not a number of tuples", todo="use 1 or more"
            )
        if durability not in ("fsync", "os"):
            raise OptionError(f"durability={durability!r} is unknown", todo='use "fsync" or "os"')
        if on_error not in ("stop", "set_aside"):
            raise OptionError(f"on_error={on_error!r} is unknown", todo='use "stop" or "set_aside"')
        place = Place(str(path), durability, dict(storage_options or {}))
        definition = continued(self._definition, place.storage())
        kept = None if retention is None else duration_us(retention, "retention")
        query = QueryOptions(
            plain_trigger(trigger), name, spark_checkpoint_dir, compaction=checked_choice(compaction), final=final
        )
        element = Element(definition, self._policy, on_error, max_tuples_per_batch or TUPLES_MAX, durability)
        spec = output_spec(definition, self._inputs[0].input_spec, kept)
        return ProcessingElement(element, self._inputs, place, spec, query).start(spark)


def _require_same_unit(policy: Policy, input_: Input) -> None:
    """Raises `OptionError` if spans in the time of the input have a unit and its times have none, or the reverse."""
    slow, is_timestamp = policy.slow, input_.input_spec.time_is_timestamp
    if slow is None or slow.has_unit == is_timestamp:
        return
    times = f"the times of the input ({input_.input_spec.time}) are {'timestamps' if is_timestamp else 'whole numbers'}"
    raise OptionError(
        f"{policy!r}: slow= and every= are in the time of the input, and {times}",
        where=input_.input_place.url,
        todo='write a unit, as in slow="1 min"' if is_timestamp else "write plain numbers, as in slow=1000",
    )
