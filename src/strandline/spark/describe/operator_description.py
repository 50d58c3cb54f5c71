"""An operator as a user describes it: its inputs, what it computes, when it saves. `start` sets it going."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Never, NoReturn, Self, TypeVar

from strandline.checkpoint.policy import Policy, cec
from strandline.errors import OptionError
from strandline.inputs.serialisable import require_time
from strandline.log.storage.storage import Durability
from strandline.operators.operator import Definition, OnError
from strandline.running.element import TUPLES_MAX
from strandline.running.promise import Mode, Promise, Reconcile
from strandline.running.since import SinceOption
from strandline.spark.describe.reprs import element_html, element_text, operator_facts
from strandline.spark.operator.housekeeping import checked_choice
from strandline.spark.operator.processing_element import ReplicatedInput, Upstream
from strandline.spark.query.query import Query
from strandline.spark.query.trigger import Trigger
from strandline.spark.session.place import Place, path_text
from strandline.units import Duration, retention_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.spark.describe.stage import Stage

D = TypeVar("D", bound=Definition)
_OF_START = ("spark", "trigger", "name", "spark_checkpoint_dir", "final", "restart")


def _needs_output(method: str) -> Callable[..., Any]:
    def refuse(self: OperatorDescription[Any], *_: Any, **__: Any) -> NoReturn:
        """Raises OptionError: only a stream can be the input of an operator."""
        raise OptionError(
            f"{method}(…) of an operator without an output: its results are no stream yet",
            where=repr(self),
            todo=f"give it an output first: operator.into(path).{method}(…)",
        )

    return refuse


class OperatorDescription(Generic[D]):
    """The choices that all operators share: policy, bound, name, and `start`."""

    where = _needs_output("where")
    select = _needs_output("select")
    window = _needs_output("window")
    join = _needs_output("join")
    rekey = _needs_output("rekey")
    apply = _needs_output("apply")

    def __init__(
        self, inputs: Sequence[Upstream], definition: D, policy: Policy | None = None, promise: Promise | None = None
    ) -> None:
        self._inputs = tuple(inputs)
        for number in self.replica_inputs:
            require_time(repr(self._inputs[number]), self._inputs[number]._input_spec)
        self._definition = definition
        self._policy = policy or cec()
        self._promise = promise

    def __repr__(self) -> str:
        return element_text(type(self).__name__, self._inputs, self._facts)

    def _repr_html_(self) -> str:
        return element_html(type(self).__name__, self._inputs, self._facts, self._picture)

    def _facts(self) -> dict[str, str]:
        """Returns what a prompt and a notebook show of it."""
        return {**operator_facts(self._inputs, self._definition), **self._choices}

    def _picture(self) -> str:
        """Returns the picture in a notebook, if there is any."""
        return ""

    def _operator(self) -> Self:
        """Returns itself: other elements make an operator of themselves here."""
        return self

    def _streams_of(self, inputs: Sequence[Upstream]) -> Sequence[Upstream]:
        """Returns the streams that the operator takes in, of its inputs or of others in their places: one each."""
        return inputs

    @property
    def inputs(self) -> tuple[Upstream, ...]:
        """The operator's inputs."""
        return self._inputs

    @property
    def definition(self) -> D:
        """The operator's definition."""
        return self._definition

    @property
    def policy(self) -> Policy:
        """When it saves what of its state."""
        return self._policy

    @property
    def promise(self) -> Promise | None:
        """The bound, and what happens when it has passed; None without a bound."""
        return self._promise

    @property
    def replica_inputs(self) -> frozenset[int]:
        """The numbers of inputs that are several replicas."""
        return frozenset(n for n, input_ in enumerate(self._inputs) if isinstance(input_, ReplicatedInput))

    @property
    def _choices(self) -> dict[str, str]:
        """The options that were chosen, as text for people."""
        promise = {} if self._promise is None else {"availability": str(self._promise)}
        return {"checkpoint": repr(self._policy), **promise}

    def checkpoint(self, policy: Policy) -> Self:
        """Returns this operator with another checkpoint policy: `sl.cec(…)`, `sl.instant(…)`, `sl.partial(…)` or
        `sl.none()`."""
        if not isinstance(policy, Policy):
            raise OptionError(
                f"checkpoint({policy!r}) is not a policy", todo='use for example sl.cec(extent="2x", replay=500_000)'
            )
        for input_ in self._inputs:
            _require_same_unit(policy, input_)
        if self._promise is not None:
            _require_replay(policy)
        return type(self)(self._inputs, self._definition, policy, self._promise)

    def availability(
        self,
        bound: Duration,
        *,
        failing: Mode = "process",
        stabilizing: Mode | None = None,
        reconcile: Reconcile = "redo",
    ) -> Self:
        """Returns this operator with a bound: no tuple waits longer for a missing input, `availability(bound="3 s")`.

        Then results are computed from what is there, and published as tentative ones, which `read(tentative=True)`
        shows. When the input is back, they are undone and the right ones follow. Results without `tentative=True` are
        those of a run in which nothing was missing.
        `failing` says what is done with new tuples meanwhile: "process" at once, "delay" by the bound (fewer are
        tentative), "suspend" waits, and nothing is ever tentative. `stabilizing` says the same of the time in which
        the right results are computed; it is as `failing` if it is not given. `reconcile="redo"` keeps the stable state
        beside the tentative one; "undo" rebuilds it from the log, which costs less space and more time. Results are
        the same.
        """
        promise = Promise.of(bound, failing, stabilizing, reconcile)
        for input_ in self._inputs:  # tentative tuples are complete up to a time, of one stream as of several
            require_time(repr(input_), input_._input_spec)
        _require_replay(self._policy)
        return type(self)(self._inputs, self._definition, self._policy, promise)

    def start(
        self,
        spark: SparkSession,
        path: str,
        *,
        since: SinceOption = None,
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
        restart: Duration | None = None,
    ) -> Query:
        """Starts the operator, or goes on where it stood; its output stream at `path` is created if there is none.

        Nothing but that stream is needed to go on: not Spark's checkpoint, not this machine.
        `since` says where a new output begins: at a time, exactly (`since="2026-11-16 14:00"`, on the clock of the
        session's time zone), with what is "latest", or at offsets of its input, such as `offsets()` returns. By default
        it begins with the "earliest" tuple that the inputs still hold. A stream keeps where it began: a start that says
        another `since` is refused, one that says none goes on. `trigger` is an interval
        ("200 ms"), "available-now", or None for as fast as it goes; PySpark's dict(availableNow=True) does as well.
        `max_tuples_per_batch` bounds how much input one batch takes in when there is much to catch up with.
        `compaction="off"` leaves small blocks as they are.
        What cannot be computed (a sum that does not fit its 64 bits or 38 digits, a value of 16 MiB) ends it, unless
        `on_error="set_aside"`: then it goes to the side log of the operator's stream with its reason, `read(late=True,
        positions=True)`, and the operator goes on.
        `final` is for an operator behind an entry point, see `Entry.start`. With `restart="10 s"` the operator starts
        again after an error that may pass (a store, a network, a lost executor), after pauses that grow up to this.
        """
        stage = self.into(
            path,
            since=since,
            max_tuples_per_batch=max_tuples_per_batch,
            on_error=on_error,
            retention=retention,
            durability=durability,
            storage_options=storage_options,
            compaction=compaction,
        )
        return stage.start(
            spark, trigger=trigger, name=name, spark_checkpoint_dir=spark_checkpoint_dir, final=final, restart=restart
        )

    def into(
        self,
        path: str,
        *,
        since: SinceOption = None,
        max_tuples_per_batch: int | None = None,
        on_error: OnError = "stop",
        retention: Duration | None = None,
        durability: Durability = "fsync",
        storage_options: Mapping[str, Any] | None = None,
        compaction: str = "auto",
        **others: Never,
    ) -> Stage:
        """Gives the operator an output, without starting it: other operators can take in its results from then on.

        `minute = items.window(…).aggregate(…).into("streams/minute")`, then `minute.where(…)`, `minute.join(…)` and so
        on. `sl.pipeline(…)` starts such stages together; `minute.start(spark)` starts this one. The options are those
        of `start`.
        """
        from strandline.spark.describe.stage import OutputOptions, Stage

        if misplaced := [name for name in others if name in _OF_START]:
            raise OptionError(
                f"into(…) takes no {misplaced[0]}=: it starts nothing",
                where=str(path),
                todo=f"pass it to the start: operator.into(path).start(spark, {misplaced[0]}=…), or to that of the "
                "pipeline",
            )
        if others:
            raise TypeError(f"into() got an unexpected keyword argument {next(iter(others))!r}")
        if max_tuples_per_batch is not None and (not isinstance(max_tuples_per_batch, int) or max_tuples_per_batch < 1):
            raise OptionError(
                f"max_tuples_per_batch={max_tuples_per_batch!r} is not a number of tuples", todo="use 1 or more"
            )
        if durability not in ("fsync", "os"):
            raise OptionError(f"durability={durability!r} is unknown", todo='use "fsync" or "os"')
        if on_error not in ("stop", "set_aside"):
            raise OptionError(f"on_error={on_error!r} is unknown", todo='use "stop" or "set_aside"')
        options = OutputOptions(
            since,
            max_tuples_per_batch or TUPLES_MAX,
            on_error,
            retention_of(retention),
            checked_choice(compaction),
        )
        return Stage(self, Place(path_text(path), durability, dict(storage_options or {})), options)


def _require_replay(policy: Policy) -> None:
    """Raises `OptionError` for a policy under which a failure loses tuples: nothing would correct what is tentative."""
    if not policy.replays:
        raise OptionError(
            f"availability(…) with {policy!r}: a failure would lose tuples, and the results could not be corrected",
            todo="use sl.cec(…) or sl.instant(…) for an operator with a bound",
        )


def _require_same_unit(policy: Policy, input_: Upstream) -> None:
    """Raises `OptionError` if spans in the time of the input have a unit and its times have none, or the reverse."""
    slow, is_timestamp = policy.slow, input_._input_spec.time_is_timestamp
    if slow is None or slow.has_unit == is_timestamp:
        return
    kind = "timestamps" if is_timestamp else "whole numbers"
    times = f"the times of the input ({input_._input_spec.time}) are {kind}"
    raise OptionError(
        f"{policy!r}: slow= and every= are in the time of the input, and {times}",
        where=input_._input_place.url,
        todo='write a unit, as in slow="1 min"' if is_timestamp else "write plain numbers, as in slow=1000",
    )
