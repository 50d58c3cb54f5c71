"""A milestone: what all commits up to one of them add up to, so that those before it need not be kept.

The commit of a milestone names an immutable file that holds the state and the live blocks. Before anything is dropped
the milestone is *marked*: `milestones/<number>.json` is created, only if it is absent, and never deleted. The numbers
of milestones have no gaps, so whoever knows one finds out with a single look whether there is a newer one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

FOLDER = "milestones"


@dataclass(frozen=True, slots=True)
class Milestone:
    """What a commit says of a milestone."""

    number: int
    """0, 1, 2, …"""
    folded: int
    """It holds what the commits up to this one add up to."""
    kept: int
    """The first commit that is kept. Those before it are dropped once the milestone is marked."""
    file: str
    checksum: str

    def to_json(self) -> dict[str, Any]:
        """For manifests, snapshots and marks."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Milestone:
        """What `to_json` wrote; fields of a later version are left out."""
        return cls(**{name: body[name] for name in cls.__slots__})


def mark_key(number: int) -> str:
    """Where the mark of a milestone lies."""
    return f"{FOLDER}/{number:020d}.json"


def is_mark(key: str) -> bool:
    """Whether this is the key of a mark, which is never deleted."""
    number = key.removeprefix(f"{FOLDER}/").removesuffix(".json")
    return number.isdecimal() and key == mark_key(int(number))
