"""Where the output of an operator begins in its inputs, if not with all that they hold: part of `stream.json`.

It is decided once, before the first commit. So a crash before that commit does not move it: also "latest" stays what it
was when the output was created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from strandline.units import time_text

Since = Literal["earliest", "latest"] | int | Mapping[int, int]
"""The beginning that a user asks for, in the log's integers: a word, a time, or offsets by partition."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first tuples that an operator takes in, per partition."""

    since: Since
    """The beginning that was asked for. A time is exact: no tuple before it is taken in, wherever it stands."""
    offsets: tuple[tuple[int, ...] | None, ...]
    """Per input and partition: no tuple before this offset is taken in. None for replicas, which have other offsets."""
    times: tuple[int | None, ...] = ()
    """Of a serialised input at its latest, per partition: no tuple before this time is taken in."""

    def time(self, partition: int) -> int | None:
        """Returns the time before which no tuple of the partition is taken in; None: only offsets decide."""
        if isinstance(self.since, int):
            return self.since
        return self.times[partition] if self.times else None

    def first(self, partition: int, number: int = 0) -> int:
        """Returns the offset of the partition, of the input with this number, before which no tuple is taken in."""
        offsets = self.offsets[number]
        return 0 if offsets is None else offsets[partition]

    @property
    def decides(self) -> list[Any]:
        """The part on which results depend: equal for outputs that take in the same tuples of the same inputs."""
        return [self.since] if isinstance(self.since, int) else [self.offsets, self.times]

    def to_json(self) -> dict[str, Any]:
        """Returns the beginning as `stream.json` holds it."""
        since = {str(p): o for p, o in self.since.items()} if isinstance(self.since, Mapping) else self.since
        offsets = [None if one is None else list(one) for one in self.offsets]
        return {"since": since, "offsets": offsets, **({"times": list(self.times)} if self.times else {})}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Beginning:
        """Returns what `to_json` wrote."""
        since = body["since"]
        asked = {int(p): int(o) for p, o in since.items()} if isinstance(since, Mapping) else since
        offsets = tuple(None if one is None else tuple(one) for one in body["offsets"])
        return cls(asked, offsets, tuple(body.get("times", ())))


def since_text(begins: Beginning | None, *, is_timestamp: bool) -> str:
    """Returns where an output began, as `start(since=…)` would say it, for people."""
    since = "earliest" if begins is None else begins.since
    return time_text(since, is_timestamp=is_timestamp) if isinstance(since, int) else str(since)


def firsts_of(begins: Beginning | None, starts: Sequence[int], number: int = 0) -> tuple[int, ...]:
    """Returns the offsets of an input at which a new output begins: no tuple before the `starts` is there any more."""
    return tuple(starts if begins is None else (max(start, begins.first(p, number)) for p, start in enumerate(starts)))
