"""`stream.window(…).aggregate(…).checkpoint(…).start(…)`: how a user says what an operator is, and sets it going."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from strandline.checkpoint.policy import Policy, cec
from strandline.clock import SYSTEM_CLOCK
from strandline.errors import OptionError, StrandlineWarning, StreamNotFoundError
from strandline.log.column_types import fields_of, type_name
from strandline.log.log import Log
from strandline.log.spec import StreamSpec
from strandline.log.storage.storage import Durability
from strandline.operators.aggregate.aggregates import Aggregate
from strandline.operators.aggregate.definition import AggregateDefinition
from strandline.operators.aggregate.windows import Window
from strandline.operators.operator import Definition, OnError
from strandline.operators.shape import AS_IS, Shape
from strandline.processing.batch import require_same_input
from strandline.processing.element import TUPLES_MAX, Element
from strandline.processing.kernel_warm_up import Kernels
from strandline.recovery.stream_definition import continued, output_spec
from strandline.spark.housekeeping import Housekeeping, checked_choice
from strandline.spark.kernel_shipping import KernelShipping
from strandline.spark.operator_job import OperatorJob
from strandline.spark.place import Place
from strandline.spark.query import Query
from strandline.spark.reprs import builder_html, builder_text
from strandline.spark.trigger import Trigger, plain_trigger
from strandline.units import Duration, duration_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Input(Protocol):
    """What an operator works on: a stream that exists, or a DataFrame on its way into one."""

    @property
    def input_spec(self) -> StreamSpec:
        """What the input stream is, or will be."""

    @property
    def input_place(self) -> Place:
        """Where it is, or will be."""

    def start_operator(self, spark: SparkSession, start: OperatorStart) -> Query:
        """Starts the query that feeds the operator."""


class OperatorStart:
    """Everything that starting an operator takes, once its input is there."""

    def __init__(
        self,
        plan: Definition,
        policy: Policy,
        place: Place,
        spec: StreamSpec,
        *,
        trigger: str | None,
        name: str | None,
        spark_checkpoint_dir: str | None,
        tuples_max: int,
        compaction: str,
        on_error: OnError,
        final: bool,
    ) -> None:
        self.final = final
        self.place = place
        self.trigger = trigger
        self.name = name
        self.spark_checkpoint_dir = spark_checkpoint_dir
        self._plan = plan
        self._policy = policy
        self._spec = spec
        self.tuples_max = tuples_max
        self._compaction = compaction
        self._on_error = on_error

    def require_fit(self, input_place: Place, input_id: str) -> None:
        """Raises if there is a stream already and it is not this operator's over this input."""
        if self.place.url == input_place.url:
            raise OptionError(
                "an operator cannot write its results into the stream that it reads",
                where=self.place.url,
                todo="give start() another path",
            )
        with contextlib.suppress(StreamNotFoundError):
            self.place.open().spec.require_same(self._spec_over(input_place, input_id), self.place.url)

    def _spec_over(self, input_place: Place, input_id: str) -> StreamSpec:
        upstream = {"stream": input_id, "path": input_place.url}
        return replace(self._spec, upstream=upstream, created_us=SYSTEM_CLOCK.now_us())

    def job(self, spark: SparkSession, input_place: Place, input_log: Log) -> OperatorJob:
        """The operator, its output stream created if there is none, its input kept from truncation."""
        output = Log.create(self.place.storage(), self._spec_over(input_place, input_log.spec.id))
        require_same_input(input_log, output.state)
        if self.place.durability == "fsync" and "os" in (input_place.durability, input_log.state.durability):
            warnings.warn(
                f"the operator's stream {self.place.url} survives a power loss, its input {input_place.url} may not "
                '(it is written with durability="os"): after one, the operator will refuse to go on',
                StrandlineWarning,
                stacklevel=4,
            )
        kernels = KernelShipping(spark.sparkContext, Kernels(self._plan, (input_log.spec,)))
        kernels.begin()
        own = self._spec.retention
        retention = output.retention = own if own is not None else output.spec.retention
        job = OperatorJob(
            spark.sparkContext,
            Element(self._plan, self._policy, self._on_error, self.tuples_max, self.place.durability),
            (input_place, input_log),
            (self.place, output),
            Housekeeping(self.place, retention, self._compaction),
            self.name,
            kernels,
        )
        job.register()
        return job


class Windowed:
    """A stream cut into windows; `aggregate` says what to compute over each."""

    def __init__(self, input_: Input, window: Window, shape: Shape = AS_IS) -> None:
        if not isinstance(window, Window):
            raise OptionError(
                f"window({window!r}) is not a window",
                todo='use sl.count_window(10), sl.time_window("1 hour") or sl.session_window(gap="30 min")',
            )
        self._input = input_
        self._window = window
        self._shape = shape

    def __repr__(self) -> str:
        return builder_text("Windowed", self._input, self._window)

    def _repr_html_(self) -> str:
        return builder_html("Windowed", self._input, self._window)

    def aggregate(self, **aggregates: Aggregate) -> Aggregation:
        """`name=aggregate` for each column of the results, for example `average=sl.avg("item_price")`."""
        spec = self._input.input_spec
        if self._window.has_times and spec.lateness is None:
            raise OptionError(
                f"{self._window.kind} windows over a stream in which nothing is ever late would never close",
                where=self._input.input_place.url,
                todo='create the stream with lateness=, for example lateness="10 s"',
            )
        types = {f["name"]: type_name(f["type"]) for f in fields_of(spec.schema)}
        types = self._shape.types_over(types, spec.arrow)
        plan = AggregateDefinition.of(self._window, aggregates, types, spec.key, spec.time, self._shape)
        return Aggregation(self._input, plan, cec())


class Aggregation:
    """A windowed aggregation; `start` sets it going."""

    def __init__(self, input_: Input, plan: AggregateDefinition, policy: Policy) -> None:
        self._input = input_
        self._plan = plan
        self._policy = policy

    def __repr__(self) -> str:
        return builder_text("Aggregation", self._input, self._plan.window, self._plan, self._policy)

    def _repr_html_(self) -> str:
        return builder_html("Aggregation", self._input, self._plan.window, self._plan, self._policy)

    @property
    def input(self) -> Input:
        """What it works on."""
        return self._input

    @property
    def plan(self) -> AggregateDefinition:
        """What it computes."""
        return self._plan

    @property
    def policy(self) -> Policy:
        """When it saves what of its state."""
        return self._policy

    def checkpoint(self, policy: Policy) -> Aggregation:
        """The same with another checkpoint policy: `sl.cec(…)`, `sl.instant(…)` or `sl.none()`."""
        if not isinstance(policy, Policy):
            raise OptionError(
                f"checkpoint({policy!r}) is not a policy", todo='use for example sl.cec(extent="2x", replay=500_000)'
            )
        return Aggregation(self._input, self._plan, policy)

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
        plan = continued(self._plan, place.storage())
        kept = None if retention is None else duration_us(retention, "retention")
        spec = output_spec(plan, self._input.input_spec, kept)
        start = OperatorStart(
            plan,
            self._policy,
            place,
            spec,
            trigger=plain_trigger(trigger),
            name=name,
            spark_checkpoint_dir=spark_checkpoint_dir,
            tuples_max=max_tuples_per_batch or TUPLES_MAX,
            compaction=checked_choice(compaction),
            on_error=on_error,
            final=final,
        )
        return self._input.start_operator(spark, start)
