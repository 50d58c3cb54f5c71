"""A milestone: what all commits up to one of them add up to, so that those before it need not be kept.

The commit of a milestone names an immutable file that holds the state and the live blocks. Before anything is dropped
the milestone is *marked*: `milestones/<number>.json` is created, only if it is absent, and never deleted. The numbers
of milestones have no gaps, so a process that knows one finds a newer one with a single look.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.log.stream.json_part import JsonPart

FOLDER = "milestones"


@dataclass(frozen=True, slots=True)
class Milestone(JsonPart):
    """A milestone as a commit names it."""

    number: int
    """0, 1, 2, …"""
    folded: int
    """It holds what the commits up to this one add up to."""
    kept: int
    """The first commit that is kept. Those before it are dropped once the milestone is marked."""
    file: str
    checksum: str


def mark_key(number: int) -> str:
    """Returns the key of the mark of a milestone."""
    return f"{FOLDER}/{number:020d}.json"


def is_mark(key: str) -> bool:
    """Returns whether this is the key of a mark, which is never deleted."""
    number = key.removeprefix(f"{FOLDER}/").removesuffix(".json")
    return number.isdecimal() and key == mark_key(int(number))
