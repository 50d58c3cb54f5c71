"""The time that goes into footprints: what a step has spent, and the budget of an interval (CI) of every period (CP).

Time is earned as it passes, `interval` in a `period`, and spent by the seconds that G-checks really took (CEC III,
IV.C). Time that is not spent is kept, up to one interval: so short batches share the interval of a long period, and a
quiet hour does not pay for a long pause. What was spent too much is paid back by later periods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.log.operator_state.standing import towards

FOOTPRINTS_MIN, LONG_S = 100, 0.01
"""Fewer footprints in less time say only that one does not cost more: what a save takes in any case is most of it."""
_GAP_US: Final = 10_000_000
"""A batch earns for at most this time, or a period if that is longer: a stall, or a clock that is set, is no reason for
a long pause."""
_INTERVALS_OWED_MAX: Final = 100
"""A write that hung for minutes is forgiven after so many periods; what was expected to take long is not."""


@dataclass(frozen=True, slots=True)
class FootprintCost:
    """The footprints of a step, the tuples of its output, and the seconds that went into them."""

    footprints: int
    checked: int
    """Those of them that are G-checks."""
    rows: int
    """All tuples of the output, results among them."""
    save_s: float
    """Choosing the footprints and copying their windows."""
    write_s: float
    """Encoding and storing all tuples of the output."""
    store_s: float
    """The part of it that passed in the storage, which takes its time however few tuples there are."""

    @property
    def checked_s(self) -> float:
        """The seconds of the G-checks: their part of the footprints, and of what was written."""
        if not self.checked:
            return 0.0
        return self.save_s * self.checked / self.footprints + self.write_s * self.checked / self.rows

    def footprint_ns(self, known_ns: float) -> float:
        """Returns what it costs to make one, from what was known before (0: nothing) and this step.

        Without the storage: one more footprint in a block that is stored anyway takes it next to no time. The time of
        G-checks has it, so a budget does not forget it.
        """
        if not self.footprints:
            return known_ns
        encode_s = max(0.0, self.write_s - self.store_s)
        sample_ns = (self.save_s / self.footprints + encode_s / self.rows) * 1e9
        took_s = self.save_s + encode_s * self.footprints / self.rows
        if self.footprints < FOOTPRINTS_MIN and took_s < LONG_S:
            sample_ns = min(sample_ns, known_ns)
        return round(towards(known_ns, sample_ns) if known_ns else sample_ns, 1)


NO_FOOTPRINTS = FootprintCost(0, 0, 0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class FootprintBudget:
    """An interval of every period.

    >>> budget = FootprintBudget(5_000, 100_000)
    >>> budget.footprints(budget.earned_us(None, 20_000), price_ns=1_000)
    5000
    """

    interval_us: int
    period_us: int

    def earned_us(self, credit_us: float | None, elapsed_us: int) -> float:
        """Returns the time that G-checks may take now, so long after the last batch, which left `credit_us`."""
        counted_us = min(max(elapsed_us, 0), max(self.period_us, _GAP_US))
        new_us = counted_us * self.interval_us / self.period_us
        before_us = self.interval_us if credit_us is None else credit_us
        return min(before_us + new_us, max(self.interval_us, new_us))

    def footprints(self, credit_us: float, price_ns: float) -> int:
        """Returns how many G-checks this time pays for: with a whole interval at least one, however dear it is."""
        if credit_us <= 0:
            return 0
        return max(int(credit_us * 1_000 / price_ns), int(credit_us >= self.interval_us))

    def left_us(self, credit_us: float, spent_us: float, expected_us: float) -> float:
        """Returns the time that is left after G-checks took `spent_us`; less than zero if they took too long.

        At most an interval: a long batch earns more, which it spends at once or not at all. `expected_us` is what the
        G-checks were expected to take, at the price that was known.
        """
        owed_us = max(_INTERVALS_OWED_MAX * self.interval_us, expected_us)
        return min(max(credit_us - spent_us, min(credit_us, -owed_us)), self.interval_us)
