"""The published part of a stream at one moment, in a few numbers: a batch read that is planned later still finds it.

Tuples never change and keep their offsets, so two offsets a partition are enough; and which tentative tuples count is
an offset and a time. Joining or moving blocks meanwhile changes nothing of that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from strandline.errors import StreamMismatchError
from strandline.log.operator_state.guesses import Guesses, guesses_of
from strandline.log.reading.bounds import Bounds
from strandline.log.stream.log import END, Log


@dataclass(frozen=True, slots=True)
class Moment:
    """The part of a stream that a batch read gets, as of one state of the log."""

    stream: str
    """Its id: one that has taken its place since is another."""
    extents: tuple[tuple[int, int], ...]
    """The first offset and the end, of every partition and of the side log; 0 is whatever is kept."""
    guesses: dict[int, Guesses]
    """The tentative results that count, of the partitions that have some; empty if they were not asked for."""

    @classmethod
    def of(cls, log: Log, bounds: Bounds | None = None, *, tentative: bool = False) -> Moment:
        """Returns the moment as the log stands now, within the offsets of the bounds; ignores their times."""
        state = log.state
        firsts, ends = (bounds.firsts, bounds.ends) if bounds else ({}, {})
        extents = tuple((firsts.get(p, 0), min(end, ends.get(p, END))) for p, end in enumerate(state.ends))
        found = {p: guesses_of(log, p) for p in range(log.spec.partitions)} if tentative else {}
        return cls(log.spec.id, extents, {p: one for p, one in found.items() if one is not None})

    def extent(self, log: Log, partition: int) -> tuple[int, int]:
        """Returns the first offset and the end of a partition, of the part that is left of it in the log.

        What retention has dropped since is left out, as everywhere, unless an offset was asked for: then this raises.
        It does so, too, if the stream is another one.
        """
        if log.spec.id != self.stream:
            raise StreamMismatchError(
                "the stream was replaced by another one since this DataFrame was made",
                stream=log.storage.url,
                todo="call read again",
            )
        first, end = self.extents[partition]
        if 0 < first < end:
            log.require_kept(partition, first)
        return max(first, log.state.starts[partition]), end

    def to_text(self) -> str:
        """Returns a text for `from_text`, in another process."""
        guesses = {str(p): (found.first, found.end, found.since) for p, found in self.guesses.items()}
        return json.dumps({"stream": self.stream, "extents": self.extents, "guesses": guesses})

    @classmethod
    def from_text(cls, text: str) -> Moment:
        """Returns the moment that `to_text` wrote."""
        read = json.loads(text)
        guesses = {int(p): Guesses(*found) for p, found in read["guesses"].items()}
        return cls(read["stream"], tuple((first, end) for first, end in read["extents"]), guesses)
