"""Where an operator stands in one partition after a commit: all that recovery needs to know to begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

EXTENT_NS, REPLAY_NS = 900.0, 250.0
"""What a tuple of the extent and a replayed tuple cost, until it has been measured."""
FIXED_S = 0.5
"""What a recovery in a new process takes before it has read anything: opening the logs, loading the kernels."""

Mode = Literal["eventual", "instant", "none"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Part of every append of an operator's output stream, one a partition."""

    input: int
    """The input tuples before this offset are in the results and the state."""
    commit: int
    """The last commit of the input that was taken in whole, over all partitions."""
    open: int
    """N: open windows."""
    oldest: int
    """T: replay begins at this input offset."""
    extent: int
    """q: so many of the newest tuples of the output hold the eventual checkpoint."""
    replay: int
    """u: so many input tuples have to be replayed."""
    mode: Mode = "eventual"
    """How to recover: footprint by footprint, from the last whole checkpoint, or not at all."""
    saved: int = 0
    """instant: windows in the last whole checkpoint."""
    saved_us: int = 0
    """instant: when that was."""
    attempt: str = ""
    """Which attempt made this state, so that what it left on its machine can be told from what others left."""
    host: str = ""
    extent_ns: float = 0.0
    """What one tuple of the extent costs to read, as measured."""
    replay_ns: float = 0.0
    """What one replayed tuple costs, as measured."""
    due: int | None = None
    """No window that is open ends before this time; None if that is not known."""

    recovered: Mapping[str, float] | None = None
    """The last recovery: after which commit, extent read, tuples replayed, seconds of each."""
    seen: int = -1
    """The last commit of the input of which anything was taken in."""
    seen_checksum: str = ""
    """Its checksum: should the input be put back and go on otherwise, it will be another one."""

    @property
    def unit_costs(self) -> tuple[float, float]:
        """Nanoseconds to read a tuple of the extent and to replay a tuple, as measured or as assumed."""
        return self.extent_ns or EXTENT_NS, self.replay_ns or REPLAY_NS

    @property
    def predicted_s(self) -> float:
        """How long a recovery of this partition would take."""
        extent_ns, replay_ns = self.unit_costs
        return FIXED_S + (self.extent * extent_ns + self.replay * replay_ns) / 1e9

    def to_json(self) -> dict[str, Any]:
        """For manifests and snapshots."""
        # Not `asdict`, which copies value by value: a manifest has a standing for every partition.
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Standing:
        """What `to_json` wrote; fields of a later version are left out."""
        return cls(**{name: body[name] for name in cls.__slots__ if name in body})
