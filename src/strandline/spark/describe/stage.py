"""`operator.into("streams/minute")`: an operator with an output, which other operators can take in before it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from strandline.errors import OptionError, StreamNotFoundError
from strandline.inputs.replicas.replica_set import PATIENCE_US
from strandline.inputs.stream_definition import continued, output_spec
from strandline.log.storage.redaction import redacted_url
from strandline.log.stream.log import Log
from strandline.log.stream.spec import StreamSpec
from strandline.operators.operator import Definition, OnError
from strandline.running.element import TUPLES_MAX, Element
from strandline.running.promise import answer_s
from strandline.running.since import SinceOption, since_of
from strandline.spark.describe.operator_input import OperatorInput
from strandline.spark.describe.reprs import stage_html, stage_text
from strandline.spark.operator.processing_element import ProcessingElement, QueryOptions, ReplicatedInput, Upstream
from strandline.spark.query.query import Query
from strandline.spark.query.restart import Restart
from strandline.spark.query.trigger import Trigger, plain_trigger
from strandline.spark.session.copies import require_writer
from strandline.spark.session.place import Place
from strandline.spark.session.time_zone import session_zone
from strandline.supervision import Copy, this_copy
from strandline.units import Duration, Retention

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.spark.describe.operator_description import OperatorDescription


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The options that say how an operator takes its input in, and how it keeps its output."""

    since: SinceOption = None
    """The place in the inputs where a new output begins."""
    tuples_max: int = TUPLES_MAX
    on_error: OnError = "stop"
    retention: Retention | None = None
    compaction: str = "auto"


def _belongs_before(method: str) -> Callable[..., NoReturn]:
    def refuse(self: Stage, *_: Any, **__: Any) -> NoReturn:
        """Raises OptionError: the operator has its output already."""
        raise OptionError(
            f"{method}(…) of an operator that has an output",
            where=redacted_url(self._input_place.url),
            todo="to write its results elsewhere, call into(…) of the operator itself, before this output"
            if method == "into"
            else f"say it before the output: operator.{method}(…).into(path)",
        )

    return refuse


class Stage(OperatorInput):
    """An operator with the place of its output. Its results can be the input of other operators before it has run."""

    availability = _belongs_before("availability")
    checkpoint = _belongs_before("checkpoint")
    into = _belongs_before("into")

    def __init__(self, operator: OperatorDescription[Any], place: Place, options: OutputOptions) -> None:
        self._operator = operator
        self._input_place = place
        self._options = options
        inputs = operator._streams_of(operator.inputs)
        self._spec = output_spec(operator.definition, inputs[0]._input_spec, options.retention)

    def __repr__(self) -> str:
        return stage_text(self._operator, self._input_place.url)

    def _repr_html_(self) -> str:
        return stage_html(self._operator, self._input_place.url)

    def replicated(self) -> Stage:
        """Marks the operator for `strandline run --replicas 2`: each copy of the program runs it, with its own output.

        Copy 1 writes to `<path>-1`, copy 2 to `<path>-2`; operators over the stage read both as `sl.replicas(…)` does.
        Without that command this stage stays as it is. Raises OptionError for a policy that loses tuples.
        """
        policy = self._operator.policy
        if not policy.replays:
            raise OptionError(
                f"replicated() with {policy!r}: a failure would lose tuples, and the results of the copies would "
                "differ",
                where=self._input_place.url,
                todo="use sl.cec(…) or sl.instant(…) for an operator with replicas",
            )
        copy = this_copy()
        return self if copy is None else ReplicatedStage(self._operator, self._input_place, self._options, copy)

    def start(
        self,
        spark: SparkSession,
        *,
        trigger: Trigger = None,
        name: str | None = None,
        spark_checkpoint_dir: str | None = None,
        final: bool = False,
        restart: Duration | None = None,
    ) -> Query:
        """Starts the operator, or goes on where it stood; see `Aggregation.start`.

        Other stages among its inputs have to be started before; `sl.pipeline` does that.
        """
        self._require_this_copy()
        query = QueryOptions(
            plain_trigger(trigger), name, spark_checkpoint_dir, final=final, restart=Restart.of(restart)
        )
        return self.processing_element(spark, query).start(spark)

    def processing_element(
        self,
        spark: SparkSession,
        query: QueryOptions,
        inputs: Sequence[Upstream] | None = None,
        operator: OperatorDescription[Any] | None = None,
    ) -> ProcessingElement:
        """Returns the operator between its inputs and its output, ready to start.

        A pipeline passes other `inputs` for those that it starts itself, and the `operator` with its share of a bound.
        """
        asked, options = operator or self._operator, self._options
        inputs = asked._streams_of(asked.inputs if inputs is None else inputs)
        definition: Definition = continued(asked.definition, self._input_place.storage())
        element = Element(
            definition,
            asked.policy,
            options.on_error,
            options.tuples_max,
            self._input_place.durability,
            asked.replica_inputs,
        )
        begins = since_of(options.since, [i._input_spec for i in inputs], session_zone(spark), element)
        spec = output_spec(definition, inputs[0]._input_spec, options.retention)
        query = replace(query, compaction=options.compaction, promise=asked.promise)
        return ProcessingElement(element, inputs, self._input_place, spec, query, begins)

    def _require_this_copy(self) -> None:
        """Raises `OptionError` if another copy of the program writes the output."""
        require_writer(self._input_place)

    @property
    def operator(self) -> OperatorDescription[Any]:
        """The operator that writes the output."""
        return self._operator

    # ------------------------------------------------------------------ as an input of operators

    @property
    def _input_spec(self) -> StreamSpec:
        """The specification of the output, as it is or will be."""
        return self._spec

    def _opened_input(self, limit_s: float | None = None) -> Log:
        """Opens the output; raises if the operator has not been started yet."""
        with contextlib.suppress(StreamNotFoundError):
            return super()._opened_input(limit_s)
        raise StreamNotFoundError(
            "this input is the output of an operator that has not been started yet",
            stream=self._input_place.url,
            todo="start it first: .start(spark), or start all together: sl.pipeline(…).start(spark)",
        )


class ReplicatedStage(ReplicatedInput, Stage):
    """The stage of this copy; as an input it is the replicas of all copies, of which one has to be there."""

    def __init__(self, operator: OperatorDescription[Any], asked: Place, options: OutputOptions, copy: Copy) -> None:
        self.asked = asked
        """The place that the program names."""
        written = [replace(asked, url=f"{asked.url.rstrip('/')}-{number}") for number in range(1, copy.of + 1)]
        self._places = tuple(place.within(answer_s(PATIENCE_US)) for place in written)
        self._group: str | None = None
        super().__init__(operator, written[copy.number - 1], options)

    def replicated(self) -> Stage:
        """Returns itself: it is marked already."""
        return self

    def _require_this_copy(self) -> None:
        """Does nothing: this copy writes the output."""

    @property
    def _input_spec(self) -> StreamSpec:
        """The spec that all replicas share; with their group as its id, once that is known."""
        return self._spec if self._group is None else replace(self._spec, id=self._group)

    def group_id(self) -> str:
        """Returns the id that the replicas have in common. Raises StorageError if there is none yet."""
        if self._group is None:
            self._group = super().group_id()
        return self._group
