"""`sl.pipeline(a, b)`: elements and all that they are made of, started, stopped and finished together."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from strandline.errors import OptionError, StreamNotFoundError
from strandline.log.storage.redaction import redacted_url
from strandline.log.stream.spec import StreamSpec
from strandline.mermaid import Diagram, flowchart
from strandline.running.promise import Mode, Promise, Reconcile
from strandline.spark.describe.operator_description import OperatorDescription
from strandline.spark.describe.stage import Stage
from strandline.spark.entry.entry import Entry
from strandline.spark.operator.processing_element import ProcessingElement, QueryOptions, Upstream
from strandline.spark.pipeline.network import Element, Network
from strandline.spark.pipeline.pipeline_run import PipelineRun
from strandline.spark.query.query import Query
from strandline.spark.query.restart import Restart
from strandline.spark.query.restarting_run import started
from strandline.spark.query.trigger import AVAILABLE_NOW, Trigger, interval_s, plain_trigger
from strandline.spark.session.copies import await_streams
from strandline.spark.session.preconditions import require_ready
from strandline.supervision import this_copy
from strandline.units import Duration
from strandline.user_warning import warn
from strandline.wording import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Pipeline:
    """Sources, operators with outputs, and the streams between them; `start` sets all of them going."""

    def __init__(self, network: Network, bounded: Mapping[str, OperatorDescription[Any]] | None = None) -> None:
        """Takes the operators that have a share of the pipeline's bound, by the addresses of their outputs."""
        self._network = network
        self._bounded = dict(bounded or {})

    def __repr__(self) -> str:
        urls = ", ".join(map(redacted_url, self._network.elements))
        return f"Pipeline({plural(len(self._network.elements), 'element')}: {urls})"

    def _repr_markdown_(self) -> str:
        return self.graph()._repr_markdown_()

    @property
    def paths(self) -> tuple[str, ...]:
        """The addresses of the streams that the elements write, each behind those that it is made of."""
        return tuple(self._network.elements)

    def graph(self) -> Diagram:
        """Returns the elements and the streams between them as Mermaid text, which a notebook draws."""
        urls = [*self._network.others, *self._network.elements]
        short = _short_names(urls)
        boxes = {url: _box(self._network.elements.get(url), short[url]) for url in urls}
        reads = {url: dict.fromkeys(self._network.reads[url]) for url in self._network.elements}
        return flowchart(boxes, [(read, url, "") for url, inputs in reads.items() for read in inputs])

    def availability(
        self,
        within: Duration,
        *,
        failing: Mode = "process",
        stabilizing: Mode | None = None,
        reconcile: Reconcile = "redo",
    ) -> Pipeline:
        """Returns this pipeline with a bound from end to end: `flow.availability(within="9 s")`.

        Every operator gets an equal share of it, by the longest path through that operator: three operators in a row
        get three seconds each. The other options are those of `Aggregation.availability`. Raises OptionError for an
        operator that has a bound of its own, or whose policy loses tuples.
        """
        whole = Promise.of(within, failing, stabilizing, reconcile, option="within")
        bounded = {}
        for url, stage in self._network.stages.items():
            if stage.operator.promise is not None:
                raise OptionError(
                    "availability: the pipeline has a bound, and so has this operator",
                    where=redacted_url(url),
                    todo="leave out .availability(…) of the operator or of the pipeline",
                )
            operators = self._network.longest_path(url)
            share_us = whole.bound_us // operators
            if not share_us:
                raise OptionError(
                    f"availability: within={within!r} is too short for {operators} operators in a row",
                    where=redacted_url(url),
                    todo='use a bound of several trigger intervals for each of them, for example "9 s"',
                )
            options: dict[str, Any] = {"failing": failing, "stabilizing": stabilizing, "reconcile": reconcile}
            try:
                bounded[url] = stage.operator.availability(f"{share_us} us", **options)
            except OptionError as problem:
                raise OptionError(problem.what, where=problem.where or redacted_url(url), todo=problem.todo) from None
        return Pipeline(self._network, bounded)

    def start(
        self,
        spark: SparkSession,
        *,
        trigger: Trigger = None,
        final: bool = False,
        restart: Duration | None = None,
    ) -> PipelineRun:
        """Starts all elements, sources first, each behind those whose results it takes in; returns the handle on them.

        `trigger` is an interval ("200 ms") or None, for as fast as it goes: that of the sources, and of operators over
        streams which others write. An operator behind an element of the pipeline takes in what that publishes at once.
        With "available-now" each element takes in the tuples that are there when those before it have come to their
        end. With `final`, for that alone, the sources then finish their streams, and so do the operators behind them.
        With `restart="10 s"` an element that fails with an error that may pass (a store, a network, a lost executor)
        starts again, after pauses that grow up to this.
        What is wrong with any of the elements is raised before the first one starts, as far as that can be known.
        """
        plain = plain_trigger(trigger)
        if final and plain != AVAILABLE_NOW:
            raise OptionError(
                f"final=True does not go with trigger={plain!r}: such a pipeline never knows that its sources have "
                "ended",
                todo='use trigger="available-now", or call run.finish() when the sources have ended',
            )
        options = QueryOptions(plain, final=final, restart=Restart.of(restart))
        network = self._network.of_copy(this_copy())
        if final:
            network.require_finished_by_others()
        network = network.without(_finished_sources(network))
        require_ready(spark, list(network.elements), None)
        prepared = {url: self._prepared(spark, stage, options) for url, stage in network.stages.items()}
        self._require_fit(prepared, interval_s(plain))
        await_streams(
            [self._network.elements[url]._input_place for url in network.others if url in self._network.elements],
            lambda _: True,
            "begun",
        )

        is_one_by_one = plain == AVAILABLE_NOW  # then no bound holds, and a source that fails is no missing input
        bounded = {url for url, element in prepared.items() if element.query.promise and not is_one_by_one}
        bridged = {read for url in bounded for read in network.reads[url]}

        def begin(url: str) -> Query:
            element = network.elements[url]
            if isinstance(element, Entry):
                restart = Restart.behind_a_bound(options.restart) if url in bridged else options.restart
                return started(element._input_place, lambda: element.persist_with(spark, options), restart)
            return prepared[url].start(spark)

        run = PipelineRun(network, begin, bounded)
        run.start(one_by_one=is_one_by_one)
        return run

    def _prepared(self, spark: SparkSession, stage: Stage, options: QueryOptions) -> ProcessingElement:
        """Returns a stage between the streams of its inputs and its output."""
        url = stage._input_place.url
        operator = self._bounded.get(url, stage.operator)
        inputs: list[Upstream] = [WrittenInput(i) if isinstance(i, Entry) else i for i in operator.inputs]
        is_hurried = any(read in self._network.elements for read in self._network.reads[url])
        own = QueryOptions(options.trigger, restart=options.restart, is_hurried=is_hurried)
        return stage.processing_element(spark, own, inputs, operator)

    def _require_fit(self, prepared: Mapping[str, ProcessingElement], every_s: float) -> None:
        """Raises for an output that is another operator's, and for a bound that the trigger is too slow for."""
        for url, element in prepared.items():
            if (promise := element.query.promise) is not None:
                operators = self._network.longest_path(url) if url in self._bounded else 1
                promise.require_longer_than(every_s, url, operators)
            element.require_known_fit()


def _finished_sources(network: Network) -> set[str]:
    """Returns the sources whose streams are finished, and warns of them: nothing can be added."""
    found = set()
    for url, element in network.elements.items():
        with contextlib.suppress(StreamNotFoundError):
            if isinstance(element, Entry) and element._input_place.open().state.finished:
                found.add(url)
                warn(
                    f"the stream of the source {redacted_url(url)} is finished: it is read, and nothing is added to it"
                )
    return found


class WrittenInput(Upstream):
    """The stream of an entry point that has a run of its own: an operator follows it as it follows any stream."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._input_place = entry._input_place

    def __repr__(self) -> str:
        return repr(self._entry)

    @property
    def _input_spec(self) -> StreamSpec:
        return self._entry._input_spec


def _box(element: Element | None, name: str) -> tuple[str, list[str]]:
    """Returns the shape of an element, or of a stream that others write, and the lines in it."""
    if not isinstance(element, Stage):
        return "stream" if element is None else "source", [name]
    operator = element.operator
    is_timestamp = operator.inputs[0]._input_spec.time_is_timestamp
    return "operator", [name, operator.definition.text(is_timestamp=is_timestamp)]


def _short_names(urls: Sequence[str]) -> dict[str, str]:
    """Returns each address without the folder that all of them lie in."""
    parts = [redacted_url(url).split("/") for url in urls]
    shared = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, zip(*(p[:-1] for p in parts), strict=False)))
    return {url: "/".join(p[shared:]) for url, p in zip(urls, parts, strict=True)}


def pipeline(*elements: Any) -> Pipeline:
    """Returns the elements, and all that they are made of, as one: `sl.pipeline(minute, pairs).start(spark)`.

    An element is what `.into(path)`, `sl.source(…)` or `sl.persist(…)` returns. Elements among the inputs of others
    come along. A stream that exists, `sl.stream(path)`, is read and not written, unless an element of the pipeline
    writes it. Raises OptionError for elements that write into one stream, or that read each other's results in a
    circle.
    """
    if not elements:
        raise OptionError(
            "sl.pipeline(…) was called without elements", todo="pass what .into(path) or sl.source(…) returns"
        )
    return Pipeline(Network.of(elements))
