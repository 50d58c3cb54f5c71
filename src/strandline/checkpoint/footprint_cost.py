"""The time that a step has spent on footprints, as measured."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.log.operator_state.standing import towards

FOOTPRINTS_MIN, LONG_S = 100, 0.01
"""Fewer footprints in less time say only that one does not cost more: what a save takes in any case is most of it."""


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
