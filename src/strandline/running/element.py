"""A processing element: an operator with all that is decided about how it runs."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.checkpoint.policy import Policy
from strandline.log.operator_state.beginning import Beginning
from strandline.log.storage.storage import Durability
from strandline.operators.operator import Definition, OnError

TUPLES_MAX = 4_000_000
"""Input tuples in one batch over all partitions, or somewhat more."""


@dataclass(frozen=True, slots=True)
class Element:
    """What batches and steps need to know of an operator, the same for as long as it runs."""

    definition: Definition
    policy: Policy
    on_error: OnError = "stop"
    tuples_max: int = TUPLES_MAX
    durability: Durability = "fsync"
    replicas: frozenset[int] = frozenset()
    """The numbers of inputs that are several replicas: offsets mean nothing in another of them."""
    begins: Beginning | None = None
    """Where its output begins; None: with all that the inputs hold."""

    @property
    def is_serialised(self) -> bool:
        """Whether a place in what it takes in is a number of tuples and a time, and not an offset of one stream."""
        return len(self.definition.times) > 1 or bool(self.replicas)
