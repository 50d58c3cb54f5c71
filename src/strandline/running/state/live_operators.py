"""Operators that stay in their process between two batches, because their state is an object and not arrays.

The state of such an operator depends on every call so far, and no call can be taken back. So a step uses an operator
only if the manifest says that the attempt which left it here was accepted. A step takes the operator out, so that no
other attempt can use it, and puts it back under the name of its own attempt at the end. If an attempt failed, or was
not accepted, no later step finds the operator that it touched.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from strandline.clock import stopwatch_s
from strandline.log.index.leaf import Ints
from strandline.operators.operator import Operator

AT_MOST = 64
"""The greatest number of operators in a process: those of partitions that went elsewhere are dropped first."""
_KEEP_S = 600.0
"""The process drops an operator that no step has asked for in this time."""


@dataclass(frozen=True, slots=True)
class LiveOperator:
    """An operator as an attempt left it."""

    attempt: str
    operator: Operator
    edges: Ints | None = None
    """The places at which a replay can begin, for an operator over several inputs (see `ReplayPlaces.words`)."""


class LiveOperators:
    """The operators of a process, by partition: one each."""

    def __init__(self, at_most: int = AT_MOST) -> None:
        self._at_most = at_most
        self._kept: OrderedDict[str, tuple[float, LiveOperator]] = OrderedDict()
        """By partition, the time at which an operator was left and the operator, the oldest first."""
        self._lock = Lock()

    def take(self, place: str, attempt: str) -> LiveOperator | None:
        """Removes the operator of a partition; returns it if this attempt left it, else drops it."""
        with self._lock:
            _, found = self._kept.pop(place, (0.0, None))
        return found if found is not None and found.attempt == attempt else None

    def holds(self, place: str, attempt: str) -> bool:
        """Returns whether the operator that this attempt left is here."""
        with self._lock:
            _, found = self._kept.get(place, (0.0, None))
        return found is not None and found.attempt == attempt

    def leave(self, place: str, left: LiveOperator) -> None:
        """Keeps an operator for the next step of its partition."""
        now_s = stopwatch_s()
        with self._lock:
            self._kept.pop(place, None)
            self._kept[place] = now_s, left
            while len(self._kept) > self._at_most or now_s - next(iter(self._kept.values()))[0] > _KEEP_S:
                self._kept.popitem(last=False)

    def drop(self, place: str) -> None:
        """Drops the operator of a partition."""
        with self._lock:
            self._kept.pop(place, None)


LIVE = LiveOperators()
"""The operators of this process."""
