"""A processing element: an operator between its inputs and its output, and the run that lets it work.

Over streams that exist, a thread of the driver looks at them, and takes in new tuples. Over one entry point the
operator is fused with it: the query that persists the DataFrame feeds the operator, too. Among several inputs an entry
point has a query of its own, which starts before the operator and ends with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import (
    NotAStreamError,
    OptionError,
    StorageError,
    StreamError,
    StreamNotFoundError,
)
from strandline.inputs.replicas.replica_input import ReplicaInput, Replicated
from strandline.inputs.replicas.replica_set import ReplicaSet
from strandline.inputs.stated_operator import words_of
from strandline.log.operator_state.beginning import Since
from strandline.log.operator_state.standing import Standing, marks_in
from strandline.log.operator_state.upstream import Origin, upstream_of
from strandline.log.stream.log import Log
from strandline.log.stream.spec import REPLICAS_FORMAT, StreamSpec
from strandline.operators.expressions.shape import Shape
from strandline.running.element import Element
from strandline.running.kernel_warm_up import Kernels
from strandline.running.promise import Promise
from strandline.running.since import begun, require_same_beginning
from strandline.spark.operator.housekeeping import Housekeeping
from strandline.spark.operator.kernel_shipping import KernelShipping
from strandline.spark.operator.lost_inputs import require_same
from strandline.spark.operator.operator_inputs import OperatorInputs
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.query.following_run import FollowingRun
from strandline.spark.query.listener_events import ListenerEvents
from strandline.spark.query.pace import Pace
from strandline.spark.query.query import Query
from strandline.spark.query.restart import Restart
from strandline.spark.query.restarting_run import started
from strandline.spark.query.sources import Sources
from strandline.spark.query.trigger import AVAILABLE_NOW, interval_s, trigger_arguments
from strandline.spark.session.place import Place
from strandline.spark.session.preconditions import require_ready
from strandline.spark.session.worker_python import require_workers
from strandline.user_warning import warn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@runtime_checkable
class Upstream(Protocol):
    """An input of an operator: a stream that exists, or a DataFrame on its way into one."""

    @property
    def _input_spec(self) -> StreamSpec:
        """The specification of the stream."""

    @property
    def _input_place(self) -> Place:
        """The address of the stream."""

    @property
    def _input_shape(self) -> Shape:
        """The filter and the columns that apply before an operator takes in its tuples."""

    @property
    def _bare_input(self) -> Upstream:
        """The stream, or the entry point, without that shape."""

    @property
    def _input_members(self) -> Sequence[Upstream]:
        """The streams of the input: the input itself, or the members of a union."""

    def _opened_input(self, limit_s: float | None = None) -> Log:
        """Returns the stream as Spark's tasks find it; raises if they cannot find it. `limit_s`: see `Place.within`."""


@runtime_checkable
class EntryPoint(Upstream, Protocol):
    """An input that a query has to persist; that query can feed operators as well."""

    def start_with(self, spark: SparkSession, operator: ProcessingElement) -> Query:
        """Starts that query with the operator behind it, or lets the operator join it."""

    def persist_with(self, spark: SparkSession, options: QueryOptions) -> Query:
        """Starts that query for an operator over several inputs, or a handle on it if it runs already."""


@runtime_checkable
class ReplicatedInput(Upstream, Protocol):
    """An input that is several replicas, of which one is read at a time."""

    def group_id(self) -> str:
        """Returns the id that the replicas have in common; raises if none is there."""

    @property
    def places(self) -> tuple[Place, ...]:
        """The places of the replicas."""

    def replica_set(self, promise: Promise | None = None) -> ReplicaSet:
        """Returns the replicas, opened, for an operator that may have a bound; raises if none is there."""


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The options for running the query."""

    trigger: str | None = None
    name: str | None = None
    spark_checkpoint_dir: str | None = None
    compaction: str = "auto"
    final: bool = False
    """For an entry point: finish the stream when all available data is published."""
    promise: Promise | None = None
    """For an operator over several inputs: how long their tuples wait for each other."""
    restart: Restart | None = None
    """After which errors the element starts again; None: after none."""
    is_hurried: bool = False
    """For an operator behind elements of the same pipeline: what they publish does not wait for the trigger."""

    def behind(self, other: QueryOptions) -> QueryOptions:
        """Returns the options with the trigger and the Spark checkpoint of another query where these name none."""
        trigger = other.trigger if self.trigger is None else self.trigger
        folder = self.spark_checkpoint_dir or other.spark_checkpoint_dir
        return replace(self, trigger=trigger, spark_checkpoint_dir=folder)


@dataclass(frozen=True, slots=True)
class ReplicaMember:
    """One input that is several replicas, and their places, in the order of the input."""

    input: ReplicaInput
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """The inputs of an operator at its start."""

    logs: Sequence[Log]
    """The logs of the inputs; of replicas, those that are read first."""
    unopened: frozenset[int] = frozenset()
    """The numbers of the inputs that could not be read: the driver looks at them again when they are there."""
    members: Mapping[int, ReplicaMember] = field(default_factory=dict)
    """The inputs that are several replicas, by number."""


class ProcessingElement:
    """An operator, its inputs, its output and the options of its query; `start` starts it."""

    def __init__(
        self,
        element: Element,
        inputs: Sequence[Upstream],
        place: Place,
        spec: StreamSpec,
        query: QueryOptions,
        since: Since | None = None,
    ) -> None:
        self.place = place
        self.query = query
        self._element = element
        self._inputs = tuple(inputs)
        self._spec = spec
        self._since = since
        """The place where a new output begins; None: with all tuples of the inputs. An existing output goes on."""

    def start(self, spark: SparkSession) -> Query:
        """Starts the query, or joins one that persists its input; creates the output stream if there is none."""
        return started(self.place, lambda: self._start(spark), self.query.restart)

    def _start(self, spark: SparkSession) -> Query:
        first = self._inputs[0]
        if len(self._inputs) == 1 and isinstance(first, EntryPoint) and self._promise() is None:
            return first.start_with(spark, self)
        return self._start_over_streams(spark)

    def _start_over_streams(self, spark: SparkSession) -> Query:
        """Starts a run that follows the inputs, behind the queries that persist DataFrames."""
        query = self.query
        entries = [input_ for input_ in self._inputs if isinstance(input_, EntryPoint)]
        trigger_arguments(query.trigger)
        if query.promise is not None:
            query.promise.require_longer_than(interval_s(query.trigger), self.place.url)
        if query.final and len(entries) < len(self._inputs):
            raise OptionError(
                "final= is for an entry point: an operator over a stream finishes its results when its input is "
                "finished",
                where=self.place.url,
                todo="leave it out here, and finish the input where that is written",
            )
        require_ready(spark, [self.place.url], query.name)
        self._require_another_place()
        # The kernels are compiled while the queries persist the DataFrames.
        kernels = self._kernels(spark, [input_._input_spec for input_ in self._inputs]) if entries else None
        sources = Sources.start(spark, entries, replace(query, promise=self._promise()))
        try:
            return self._start_run(spark, sources, kernels)
        except BaseException:
            sources.stop()
            raise

    def _start_run(self, spark: SparkSession, sources: Sources, kernels: KernelShipping | None) -> Query:
        query = self.query
        opened = self._opened()
        self.require_fit([log.spec.id for log in opened.logs])
        require_workers(spark)
        job = self.job(spark, opened, kernels)
        urls = ", ".join(place.url for input_ in self._inputs for place in _places_of(input_))
        run = FollowingRun(
            self.place,
            job,
            ListenerEvents(spark, query.name, job.output.spec.id, f"Strandline[{urls}]"),
            Pace(interval_s(query.trigger), is_hurried=query.is_hurried or len(sources) > 0),
            spark=spark,
            name=query.name,
            follows=query.trigger != AVAILABLE_NOW,
            sources=sources,
        )
        run.start()
        return Query(run)

    def _opened(self) -> Opened:
        """Returns the inputs; raises if one cannot be read.

        An operator with a bound goes on without an input that it has taken in before.
        """
        standings, logs, unopened = self._standings, [], set()
        members: dict[int, ReplicaMember] = {}
        promise = self._promise()
        for number, input_ in enumerate(self._inputs):
            if isinstance(input_, ReplicatedInput):  # one replica has to be there: only it says what they are
                chooser = ReplicaInput(input_.replica_set(promise))
                members[number] = ReplicaMember(chooser, tuple(place.within(self._answer_s) for place in input_.places))
            try:
                logs.append(self._first_read(number, members.get(number), standings))
            except (StorageError, StreamNotFoundError, NotAStreamError):
                if promise is None or not standings:
                    raise
                logs.append(Log(input_._input_place.within(self._answer_s).storage(), input_._input_spec))
                unopened.add(number)
        return Opened(logs, frozenset(unopened), members)

    def _first_read(self, number: int, member: ReplicaMember | None, standings: Sequence[Standing]) -> Log:
        """Returns the stream of an input, or its replica that is read first; raises if there is none."""
        if member is None:
            return self._inputs[number]._opened_input(self._answer_s)
        found = member.input.choose(marks_in(standings), number)
        if found is None:
            raise member.input.none_readable()
        return found

    @property
    def _answer_s(self) -> float | None:
        """The longest wait for an input's store that the bound allows; None without a bound."""
        promise = self._promise()
        return None if promise is None else promise.answer_s

    @property
    def _standings(self) -> Sequence[Standing]:
        """The standings of the operator; empty if it has never worked, or its own stream cannot be read either."""
        with contextlib.suppress(StorageError, StreamError):
            return self.place.open().state.standings
        return ()

    def require_fit(self, input_ids: Sequence[str]) -> None:
        """Raises if the output stream exists and is not one of this operator over these inputs."""
        self._require_another_place()
        with contextlib.suppress(StreamNotFoundError):
            self._require_same(self.place.open().spec, self._spec_over(input_ids))

    def require_known_fit(self) -> None:
        """Raises if the output exists, and is not one of this operator over the inputs that exist; opens no others."""
        with contextlib.suppress(StreamNotFoundError):
            self.place.open()
            self.require_fit([_known_id(input_) for input_ in self._inputs])

    def _require_same(self, found: StreamSpec, asked: StreamSpec) -> None:
        found.require_same(asked, self.place.url, words_of)
        require_same_beginning(self._since, found, self._inputs[0]._input_spec, self.place.url)

    def _require_another_place(self) -> None:
        if any(self.place.url == place.url for input_ in self._inputs for place in _places_of(input_)):
            raise OptionError(
                "an operator cannot write its results into the stream that it reads",
                where=self.place.url,
                todo="give start() another path",
            )

    def _spec_over(self, input_ids: Sequence[str]) -> StreamSpec:
        pairs = zip(input_ids, self._inputs, strict=True)
        upstream = upstream_of([_origin_of(input_, id_) for id_, input_ in pairs])
        format_ = REPLICAS_FORMAT if self._element.replicas else self._spec.format
        return replace(self._spec, upstream=upstream, format=format_, created_us=SYSTEM_CLOCK.now_us())

    def _kernels(self, spark: SparkSession, inputs: Sequence[StreamSpec]) -> KernelShipping:
        """Begins to compile the operator's kernels, if this machine does not have them, and returns them."""
        kernels = KernelShipping(spark.sparkContext, Kernels(self._element.definition, tuple(inputs)))
        kernels.begin()
        return kernels

    def job(
        self,
        spark: SparkSession,
        opened: Opened,
        kernels: KernelShipping | None = None,
    ) -> OperatorJob:
        """Returns the operator's job; creates the output stream if there is none, keeps inputs from truncation."""
        logs, unopened, members = opened.logs, opened.unopened, opened.members
        places = [input_._input_place.within(self._answer_s) for input_ in self._inputs]
        for number, member in members.items():
            places[number] = member.places[member.input.current or 0]
        output = self._output(logs)
        element = replace(self._element, begins=output.spec.begins)
        promise = self._promise()
        choosers = {number: member.input for number, member in members.items()}
        over = (element.definition, tuple(logs), element.replicas, element.begins)
        input_ = Replicated(*over, members=choosers) if choosers else element.input(logs)
        if promise is None:
            input_.require_same(output.state.standings, unopened)
        else:
            unopened = require_same(input_, output.state, unopened)
        for place, log in zip(places, logs, strict=True):
            if self.place.durability == "fsync" and "os" in (place.durability, log.state.durability):
                warn(
                    f"the operator's stream {self.place.url} survives a power loss, its input {place.url} may not "
                    '(it is written with durability="os"): after one, the operator will refuse to go on',
                )
        kernels = kernels or self._kernels(spark, [log.spec for log in logs])
        own = self._spec.retention
        retention = output.retention = own if own is not None else output.spec.retention
        known = {number: member.places for number, member in members.items()}
        job = OperatorJob(
            spark.sparkContext,
            element,
            OperatorInputs(places, input_, output, known, bears_failures=promise is not None),
            (self.place, output),
            Housekeeping(self.place, retention, self.query.compaction),
            self.query.name,
            kernels,
            promise,
            unopened - members.keys(),  # each look chooses among replicas
        )
        job.register()
        return job

    def _output(self, logs: Sequence[Log]) -> Log:
        """Returns the output stream; a new one records for good where it begins in these inputs."""
        storage, spec = self.place.storage(), self._spec_over([log.spec.id for log in logs])
        try:
            found = Log.open(storage)
        except StreamNotFoundError:
            found = Log.create(storage, begun(spec, self._since, logs, self._element))
        self._require_same(found.spec, spec)
        return found

    def _promise(self) -> Promise | None:
        """Returns the promise; None for "available-now", which takes in the tuples that are there and never waits."""
        return None if self.query.trigger == AVAILABLE_NOW else self.query.promise


def _places_of(input_: Upstream) -> tuple[Place, ...]:
    return input_.places if isinstance(input_, ReplicatedInput) else (input_._input_place,)


def _known_id(input_: Upstream) -> str:
    """Returns the id of a stream that exists; replicas are known by their group instead."""
    return "" if isinstance(input_, ReplicatedInput) else input_._input_place.open().spec.id


def _origin_of(input_: Upstream, stream: str) -> Origin:
    """Returns the entry of stream.json for an input: the stream with this id, or all replicas."""
    if not isinstance(input_, ReplicatedInput):
        return Origin(stream, input_._input_place.url)
    return Origin(input_.group_id(), input_.places[0].url, tuple(place.url for place in input_.places))
