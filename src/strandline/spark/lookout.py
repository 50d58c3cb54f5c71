"""Who sees the inputs of an operator grow, and lets Spark know in time for its next batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.clock import SYSTEM_CLOCK, Clock
from strandline.spark.operator_inputs import OperatorInputs

if TYPE_CHECKING:
    from strandline.spark.ticks import Ticks

_OFTEN_S = 0.01
"""As often as Spark looks for something new when it is to be as fast as it goes."""
_AHEAD_S = 0.25
"""At most so long before Spark: longer than a look takes, also into an object store."""


class Lookout:
    """Looks at inputs, and lets a clock tick if there are new tuples in any."""

    def __init__(self, inputs: OperatorInputs, ticks: Ticks, every_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._inputs = inputs
        self._ticks = ticks
        self._every_s = every_s
        self._clock = clock

    def look(self) -> None:
        """One tick if there is something new. What goes wrong with a look ticks, too: the batch meets it, and tells."""
        try:
            is_due = self._inputs.have_grown()
        except Exception:
            is_due = True
        if is_due:
            self._ticks.tick()

    def pause_s(self) -> float:
        """How long to wait for the next look: until shortly before Spark's, at a multiple of its interval."""
        if self._every_s <= _OFTEN_S:
            return _OFTEN_S
        ahead_s = min(_AHEAD_S, self._every_s / 4)
        left_s = self._every_s - self._clock.now_us() / 1e6 % self._every_s - ahead_s
        return left_s if left_s > 0 else left_s + self._every_s
