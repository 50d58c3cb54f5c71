"""A processing element: an operator between its inputs and its output, and the run that lets it work.

Over streams that exist, a thread of the driver looks at them, and takes in new tuples. Over one entry point the
operator is fused with it: the query that persists the DataFrame feeds the operator, too. Among several inputs an entry
point has a query of its own, which starts before the operator and ends with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from strandline.clock import SYSTEM_CLOCK
from strandline.errors import NotAStreamError, OptionError, StorageError, StreamError, StreamNotFoundError
from strandline.inputs.replicas.replica_input import ReplicaInput, Replicated
from strandline.inputs.replicas.replica_set import PATIENCE_US, ReplicaSet
from strandline.inputs.stream_definition import words_of
from strandline.log.operator_state.beginning import Since
from strandline.log.operator_state.standing import Standing, marks_in
from strandline.log.operator_state.upstream import Origin, group_of, upstream_of
from strandline.log.stream.log import Log
from strandline.log.stream.spec import REPLICAS_FORMAT, StreamSpec
from strandline.operators.expressions.shape import AS_IS, Shape
from strandline.running.element import Element
from strandline.running.kernel_warm_up import Kernels
from strandline.running.promise import Promise
from strandline.running.since import begun, require_same_beginning
from strandline.spark.operator.housekeeping import Housekeeping
from strandline.spark.operator.kernel_shipping import KernelShipping
from strandline.spark.operator.operator_inputs import OperatorInputs
from strandline.spark.operator.operator_job import OperatorJob
from strandline.spark.query.following_run import FollowingRun
from strandline.spark.query.listener_events import ListenerEvents
from strandline.spark.query.pace import Pace
from strandline.spark.query.query import Query, stop_all
from strandline.spark.query.restart import Restart
from strandline.spark.query.restarting_run import started
from strandline.spark.query.trigger import AVAILABLE_NOW, interval_s
from strandline.spark.session.place import Place
from strandline.spark.session.preconditions import require_ready
from strandline.spark.session.worker_python import require_workers
from strandline.user_warning import warn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Upstream:
    """An input of an operator: a stream that exists, or a DataFrame on its way into one."""

    _input_place: Place
    """The address of the stream; of several, the first one's."""
    _input_shape: Shape = AS_IS
    """The filter and the columns that apply before an operator takes in its tuples."""

    @property
    def _input_spec(self) -> StreamSpec:
        """The specification of the stream, as it is or will be."""
        raise NotImplementedError

    @property
    def _input_members(self) -> tuple[Upstream, ...]:
        """The streams of the input: the input itself, or the members of a union."""
        return (self,)

    @property
    def _input_places(self) -> tuple[Place, ...]:
        """The address of the stream, or those of all replicas."""
        return (self._input_place,)

    @property
    def _bare_input(self) -> Upstream:
        """The stream, or the entry point, without that shape."""
        return self

    @property
    def _whole_input(self) -> Upstream:
        """The stream of which this is a partition; else the input itself."""
        return self

    def _origin(self, stream: str) -> Origin:
        """Returns the entry of stream.json for this input, which is the stream with this id."""
        return Origin(stream, self._input_place.url)

    def _opened_input(self, limit_s: float | None = None) -> Log:
        """Returns the stream as Spark's tasks find it; raises if they cannot find it. `limit_s`: see `Place.within`."""
        return self._input_place.within(limit_s).open()


class EntryPoint(Upstream):
    """An input that a query has to persist; that query can feed operators as well."""

    def start_with(self, spark: SparkSession, operator: ProcessingElement) -> Query:
        """Starts that query with the operator behind it, or lets the operator join it if it runs already."""
        raise NotImplementedError

    def persist_with(self, spark: SparkSession, options: QueryOptions) -> Query:
        """Starts that query for an operator over several inputs, or returns a handle on it if it runs already."""
        raise NotImplementedError


class ReplicatedInput(Upstream):
    """An input that is several replicas, of which one is read at a time."""

    _places: tuple[Place, ...]
    _patience_us = PATIENCE_US
    """For so long others may be ahead of a replica that is read."""

    @property
    def places(self) -> tuple[Place, ...]:
        """The places of the replicas."""
        return self._places

    @property
    def _input_places(self) -> tuple[Place, ...]:
        return self._places

    def _origin(self, stream: str) -> Origin:
        """Returns the entry of stream.json for all replicas."""
        return Origin(self.group_id(), self.places[0].url, tuple(place.url for place in self.places))

    def group_id(self) -> str:
        """Returns the id that the replicas have in common; raises if none is there."""
        return group_of(self.replica_set().spec)

    def replica_set(self, promise: Promise | None = None) -> ReplicaSet:
        """Opens the replicas, with the limits of a bound if there is one; raises if none can be opened.

        With a bound, a reader leaves a replica that stands still before its results are missed.
        """
        places, patience_us = self._places, self._patience_us
        if promise is not None:
            places = tuple(place.within(promise.answer_s) for place in places)
            patience_us = min(patience_us, promise.bound_us // 2)
        return ReplicaSet([place.open for place in places], patience_us=patience_us)


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
class Opened:
    """The inputs of an operator at its start."""

    logs: Sequence[Log]
    """The logs of the inputs; of replicas, those that are read first."""
    unopened: frozenset[int] = frozenset()
    """The numbers of the inputs that could not be read: the driver looks at them again when they are there."""
    members: Mapping[int, ReplicaInput] = field(default_factory=dict)
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
        self._promise = None if query.trigger == AVAILABLE_NOW else query.promise
        """None for "available-now", too, which takes in the tuples that are there and never waits."""
        self._answer_s = None if self._promise is None else self._promise.answer_s
        """The longest wait for an input's store that the bound allows; None without a bound."""

    def start(self, spark: SparkSession) -> Query:
        """Starts the query, or joins one that persists its input; creates the output stream if there is none."""
        return started(self.place, lambda: self._start(spark), self.query.restart)

    def _start(self, spark: SparkSession) -> Query:
        first = self._inputs[0]
        if len(self._inputs) == 1 and isinstance(first, EntryPoint) and self._promise is None:
            return first.start_with(spark, self)
        return self._start_over_streams(spark)

    def _start_over_streams(self, spark: SparkSession) -> Query:
        """Starts a run that follows the inputs, behind the queries that persist DataFrames."""
        query = self.query
        streams = list({id(whole): whole for whole in (input_._whole_input for input_ in self._inputs)}.values())
        entries = [stream for stream in streams if isinstance(stream, EntryPoint)]
        if query.promise is not None:
            query.promise.require_longer_than(interval_s(query.trigger), self.place.url)
        if query.final and len(entries) < len(streams):
            raise OptionError(
                "final= is for an entry point: an operator over a stream finishes its results when its input is "
                "finished",
                where=self.place.url,
                todo="leave final= out, and finish the input in the program that writes it",
            )
        require_ready(spark, [self.place.url], query.name)
        self._require_another_place()
        # The kernels are compiled while the queries persist the DataFrames.
        kernels = self._kernels(spark, [input_._input_spec for input_ in self._inputs]) if entries else None
        # With a bound, a source that fails later is started again, and its stream is a missing input meanwhile.
        restart = query.restart if self._promise is None else Restart.behind_a_bound(query.restart)
        sources: list[Query] = []
        try:
            for entry in entries:
                sources.append(started(entry._input_place, partial(entry.persist_with, spark, query), restart))
            for source in sources if query.trigger == AVAILABLE_NOW else ():
                source.await_termination()
            return self._start_run(spark, sources, kernels)
        except BaseException:
            stop_all(sources)
            raise

    def _start_run(self, spark: SparkSession, sources: Sequence[Query], kernels: KernelShipping | None) -> Query:
        query = self.query
        opened = self._opened()
        self.require_fit([log.spec.id for log in opened.logs])
        require_workers(spark)
        job = self.job(spark, opened, kernels)
        urls = ", ".join(dict.fromkeys(place.url for input_ in self._inputs for place in input_._input_places))
        run = FollowingRun(
            self.place,
            job,
            ListenerEvents(spark, query.name, job.output.spec.id, f"Strandline[{urls}]"),
            Pace(interval_s(query.trigger), is_hurried=query.is_hurried or bool(sources)),
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
        logs, unopened = [], set()
        standings: Sequence[Standing] = ()
        with contextlib.suppress(StorageError, StreamError):  # none if it never worked, or cannot be read either
            standings = self.place.open().state.standings
        members: dict[int, ReplicaInput] = {}
        for number, input_ in enumerate(self._inputs):
            if isinstance(input_, ReplicatedInput):  # one replica has to be there: only it says what they are
                members[number] = ReplicaInput(input_.replica_set(self._promise))
            try:
                if (member := members.get(number)) is None:
                    logs.append(input_._opened_input(self._answer_s))
                elif (found := member.choose(marks_in(standings), number)) is not None:
                    logs.append(found)
                else:
                    raise member.none_readable()
            except (StorageError, StreamNotFoundError, NotAStreamError):
                if self._promise is None or not standings:
                    raise
                logs.append(input_._input_place.within(self._answer_s).unread(input_._input_spec))
                unopened.add(number)
        return Opened(logs, frozenset(unopened), members)

    def require_fit(self, input_ids: Sequence[str]) -> None:
        """Raises if the output stream exists and is not one of this operator over these inputs."""
        self._require_another_place()
        with contextlib.suppress(StreamNotFoundError):
            self._require_same(self.place.open().spec, self._spec_over(input_ids))

    def require_known_fit(self) -> None:
        """Raises if the output exists, and is not one of this operator over the inputs that exist; opens no others."""
        with contextlib.suppress(StreamNotFoundError):
            self.place.open()
            # Replicas are known by their group, not by the id of one of them.
            self.require_fit(
                ["" if isinstance(i, ReplicatedInput) else i._input_place.open().spec.id for i in self._inputs]
            )

    def _require_same(self, found: StreamSpec, asked: StreamSpec) -> None:
        found.require_same(asked, self.place.url, words_of)
        require_same_beginning(self._since, found, self._inputs[0]._input_spec, self.place.url)

    def _require_another_place(self) -> None:
        if any(self.place.url == place.url for input_ in self._inputs for place in input_._input_places):
            raise OptionError(
                "an operator cannot write its results into the stream that it reads",
                where=self.place.url,
                todo="give start() another path",
            )

    def _spec_over(self, input_ids: Sequence[str]) -> StreamSpec:
        pairs = zip(input_ids, self._inputs, strict=True)
        upstream = upstream_of([input_._origin(id_) for id_, input_ in pairs])
        format_ = REPLICAS_FORMAT if self._element.replicas else self._spec.format
        return replace(self._spec, upstream=upstream, format=format_, created_us=SYSTEM_CLOCK.now_us())

    def _kernels(self, spark: SparkSession, inputs: Sequence[StreamSpec]) -> KernelShipping:
        """Begins to compile the operator's kernels, if this machine does not have them, and returns them."""
        kernels = KernelShipping(spark.sparkContext, Kernels(self._element.definition, tuple(inputs)))
        kernels.begin()
        return kernels

    def job(self, spark: SparkSession, opened: Opened, kernels: KernelShipping | None = None) -> OperatorJob:
        """Returns the operator's job; creates the output stream if there is none, keeps inputs from truncation."""
        logs, members, promise = opened.logs, opened.members, self._promise
        known = [tuple(place.within(self._answer_s) for place in input_._input_places) for input_ in self._inputs]
        places = [own[(members[number].current or 0) if number in members else 0] for number, own in enumerate(known)]
        output = self._output(logs)
        element = replace(self._element, begins=output.spec.begins)
        over = (element.definition, tuple(logs), element.replicas, element.begins)
        input_ = Replicated(*over, members=members) if members else element.input(logs)
        replicas, bears = {number: known[number] for number in members}, promise is not None
        inputs = OperatorInputs(places, input_, output, replicas, bears_failures=bears, unopened=opened.unopened)
        inputs.require_same()
        for place, log in zip(places, logs, strict=True):
            if self.place.durability == "fsync" and "os" in (place.durability, log.state.durability):
                warn(
                    f"the operator's stream {self.place.url} survives a power loss, its input {place.url} may not "
                    '(it is written with durability="os"): after one, the operator will refuse to go on',
                )
        kernels = kernels or self._kernels(spark, [log.spec for log in logs])
        own = self._spec.retention
        retention = output.retention = own if own is not None else output.spec.retention
        job = OperatorJob(
            spark.sparkContext,
            element,
            inputs,
            (self.place, output),
            Housekeeping(self.place, retention, self.query.compaction),
            self.query.name,
            kernels,
            promise,
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
