"""Where an operator stands in one partition after a commit: all that recovery needs to know to begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Mode = Literal["eventual", "instant", "none"]


@dataclass(frozen=True, slots=True)
class Standing:
    """Part of every append of an operator's output stream, one a partition."""

    input: int
    """The input tuples before this offset are in the results and the state."""
    commit: int
    """The last commit of the input that was taken in."""
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

    @property
    def seconds(self) -> float:
        """The predicted time of a recovery."""
        return (self.extent * self.extent_ns + self.replay * self.replay_ns) / 1e9

    def to_json(self) -> dict[str, Any]:
        """For manifests and snapshots."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Standing:
        """What `to_json` wrote; fields of a later version are left out."""
        return cls(**{name: body[name] for name in cls.__slots__ if name in body})
