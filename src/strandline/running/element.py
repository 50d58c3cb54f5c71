"""A processing element: an operator with all decisions about how it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from strandline.checkpoint.policy import Policy
from strandline.inputs.input import Input
from strandline.inputs.input_of import input_of, is_one_stream
from strandline.log.operator_state.beginning import Beginning
from strandline.log.storage.storage import Durability
from strandline.log.stream.log import Log
from strandline.operators.operator import Definition, OnError

TUPLES_MAX = 4_000_000
"""The number of input tuples in one batch over all partitions; a batch may have somewhat more."""


@dataclass(frozen=True, slots=True)
class Element:
    """An operator as batches and steps need it; it does not change while the operator runs."""

    definition: Definition
    policy: Policy
    on_error: OnError = "stop"
    tuples_max: int = TUPLES_MAX
    durability: Durability = "fsync"
    replicas: frozenset[int] = frozenset()
    """The numbers of inputs that are several replicas: an offset in one replica means nothing in another."""
    begins: Beginning | None = None
    """The place in the inputs where the output begins; None: with all tuples that the inputs hold."""

    def input(self, logs: Sequence[Log]) -> Input:
        """Returns these streams as the input of the operator."""
        return input_of(self.definition, logs, (), self.begins, replicas=self.replicas)

    def in_partition(self, partition: int) -> Element:
        """Returns the element for one partition, see `Definition.in_partition`."""
        own = self.definition.in_partition(partition)
        return self if own is self.definition else replace(self, definition=own)

    @property
    def takes_offsets(self) -> bool:
        """True if the output can begin at offsets that a user gives."""
        return is_one_stream(self.definition, self.replicas)
