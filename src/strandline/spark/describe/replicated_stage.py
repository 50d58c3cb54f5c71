"""A stage of which every copy of the program has one: each writes a stream of its own, all are read as one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.inputs.replicas.replica_set import PATIENCE_US, ReplicaSet
from strandline.log.operator_state.replica_group import group_of
from strandline.log.stream.spec import StreamSpec
from strandline.running.promise import Promise, answer_s
from strandline.spark.describe.replicas import opened_replicas
from strandline.spark.describe.stage import OutputOptions, Stage
from strandline.spark.session.place import Place
from strandline.supervision import Copy

if TYPE_CHECKING:
    from strandline.spark.describe.operator_description import OperatorDescription


class ReplicatedStage(Stage):
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

    # ------------------------------------------------------------------ as an input of operators

    @property
    def _input_spec(self) -> StreamSpec:
        """The spec that all replicas share; with their group as its id, once that is known."""
        return self._spec if self._group is None else replace(self._spec, id=self._group)

    def group_id(self) -> str:
        """Returns the id that the replicas have in common. Raises StorageError if there is none yet."""
        if self._group is None:
            self._group = group_of(self.replica_set().spec)
        return self._group

    @property
    def places(self) -> tuple[Place, ...]:
        """The places of the replicas, in the order of the copies."""
        return self._places

    def replica_set(self, promise: Promise | None = None) -> ReplicaSet:
        """Opens the replicas, with the limits of a bound if there is one; raises if none can be opened."""
        return opened_replicas(self._places, PATIENCE_US, promise)
