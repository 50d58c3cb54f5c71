"""The losses of an operator: a policy that does not replay recovers the state with a gap, and says where the gap is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from strandline.log.stream.json_part import JsonPart

LossReason = Literal["skipped", "footprints rotten", "nothing saved"]
"""Tuples since the last whole checkpoint, footprints that cannot be read, or all windows: there was no checkpoint."""


@dataclass(frozen=True, slots=True)
class Loss(JsonPart):
    """The tuples and windows that one recovery of one partition left out."""

    partition: int
    first: int
    """The input tuples from this place on are in no window that was open then; over one stream, their offset."""
    until: int
    """The operator goes on from this place."""
    windows: int
    """Windows that were open and are gone, with all their tuples."""
    incomplete: int
    """Windows that closed in the recovery, without the tuples left out: set aside for this reason."""
    at_us: int
    commit: int
    """The newest commit of the operator's stream then: results after it are those of an operator with this gap."""
    reason: LossReason
    time_from: int | None = None
    """Over several inputs: the tuples left out are those from this time on, ..."""
    time_until: int | None = None
    """... and before this one. None over one stream, and before the first tuple."""

    @property
    def tuples(self) -> int:
        """How many places of the input were passed over."""
        return self.until - self.first

    @property
    def text(self) -> str:
        """The loss in words, for people.

        >>> Loss(1, 40, 100, 3, 0, 0, 7, "skipped").text
        'partition 1 lost input 40 to 99 (60) and 3 open windows'
        """
        parts = [f"input {self.first:,} to {self.until - 1:,} ({self.tuples:,})"] if self.tuples else []
        if self.windows:
            parts.append(f"{self.windows:,} open window{'' if self.windows == 1 else 's'}")
        told = f"partition {self.partition} lost {' and '.join(parts) or 'footprints'}"
        told += f"; {self.incomplete:,} closed incomplete, in the side log" if self.incomplete else ""
        return told if self.reason == "skipped" else f"{told}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Losses(JsonPart):
    """All that an operator ever lost in a partition, in sums: part of its standing, of one size however many."""

    record: str
    """The key of the newest record, which leads to all others."""
    count: int
    tuples: int
    windows: int


@dataclass(frozen=True, slots=True)
class TotalLosses:
    """The losses of all partitions."""

    count: int
    tuples: int
    windows: int


def total_losses(partitions: Iterable[Losses | None]) -> TotalLosses | None:
    """Returns the sums over all partitions; None if nothing was ever lost."""
    found = [losses for losses in partitions if losses is not None]
    if not found:
        return None
    return TotalLosses(*(sum(getattr(losses, name) for losses in found) for name in TotalLosses.__slots__))
