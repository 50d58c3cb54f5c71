"""Where a reader of replicas stands: numbers of results and times, which mean the same in all of them.

A reader that keeps this together with what it has made of the results goes on without a double or a gap, from whatever
replica is there then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ResultPlace:
    """The place in one partition up to which a reader was shown tuples."""

    results: int = 0
    """The stable results before this one."""
    last: str = ""
    """A checksum of the last of them: another replica must have the same there. Empty if none was shown."""
    t_max: int | None = None
    """The latest time of a tentative result that counts; None if none does."""
    floor: int | None = None
    """Tentative results before this time are left out: those that count are another replica's, up to there."""
    is_open: bool = False
    """True if anything tentative was shown since the last reconciliation."""


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """The place in all partitions up to which a reader was shown tuples, and the replica that it read."""

    partitions: tuple[ResultPlace, ...]
    group: str
    """Of which replicas, see `upstream.group_of`."""
    stream: str = ""
    """The id of that replica's stream."""
    offsets: tuple[int, ...] = ()
    """The next offset in it, per partition: good for nothing in any other."""
    retold: int = 0
    """How often all guesses that count were told anew. A place behind that is another than the one before it."""

    @property
    def results(self) -> tuple[int, ...]:
        """How many stable results were shown, per partition."""
        return tuple(place.results for place in self.partitions)

    def to_json(self) -> dict[str, Any]:
        """Returns JSON with which a reader can go on from here later."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> ReplicaPlace:
        """Makes the place of the result of `to_json`."""
        places = tuple(ResultPlace(**place) for place in body["partitions"])
        return cls(places, body["group"], body["stream"], tuple(body["offsets"]), body.get("retold", 0))
