"""Who sees the inputs of an operator grow, and lets Spark know in time for its next batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.clock import SYSTEM_CLOCK, Clock
from strandline.spark.operator.operator_inputs import OperatorInputs

if TYPE_CHECKING:
    from strandline.spark.operator.ticks import Ticks

_OFTEN_S = 0.01
"""As often as Spark looks for something new when it is to be as fast as it goes."""
_SELDOM_S = 0.25
_OFTEN_LOOKS = 500
"""After so many looks in vain, five seconds or more, looks are seldom: each is a request to the store."""
_AHEAD_S = 0.25
"""So long before Spark, or a quarter of its interval: longer than most looks take."""
_MARGIN = 1.5
_FORGET = 0.8


class Lookout:
    """Looks at inputs, and lets a clock tick if there are new tuples in any."""

    def __init__(self, inputs: OperatorInputs, ticks: Ticks, every_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._inputs = inputs
        self._ticks = ticks
        self._every_s = every_s
        self._clock = clock
        self._in_vain = 0
        self._look_s = 0.0
        """How long a look takes: the longest of late, slowly forgotten."""

    def look(self) -> bool:
        """One tick if there is something new; whether there was. Raises if Spark cannot be told: then look again.

        What goes wrong with the look itself ticks, too: the batch meets it, and tells.
        """
        began_us = self._clock.steady_us()
        try:
            is_due = self._inputs.have_grown()
        except Exception:
            is_due = True
        if is_due:
            self._ticks.tick()
            self._inputs.are_seen()
        self._in_vain = 0 if is_due else self._in_vain + 1
        self._look_s = max((self._clock.steady_us() - began_us) / 1e6, self._look_s * _FORGET)
        return is_due

    def pause_s(self) -> float:
        """How long to wait for the next look: until it would end shortly before Spark's, at a multiple of the interval.

        Without an interval, hardly at all; a quarter of a second once many looks have been in vain.
        """
        if self._every_s <= _OFTEN_S:
            return _OFTEN_S if self._in_vain < _OFTEN_LOOKS else _SELDOM_S
        ahead_s = max(min(_AHEAD_S, self._every_s / 4), self._look_s * _MARGIN)
        return (-self._clock.now_us() / 1e6 - ahead_s) % self._every_s
