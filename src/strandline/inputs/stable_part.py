"""The part of a stream that guesses do not move: results, their boundaries, and whether others can follow.

An operator with a bound over one stream asks whether that part has moved. It must not take a commit of guesses for
progress: that would undo what its fork has made of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from strandline.errors import DroppedError, StorageError
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.appends import appends_after
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState

_NOTED: WeakKeyDictionary[Log, tuple[int, StablePart]] = WeakKeyDictionary()
"""By stream, the part as of the append that was asked for last: every look asks for the same one."""


@dataclass(frozen=True, slots=True)
class StablePart:
    """The results of a stream as of an append."""

    results: tuple[int | None, ...]
    """Their number per partition; of a stream without an operator, its ends."""
    boundaries: tuple[int | None, ...]
    finished: bool

    @classmethod
    def of(cls, log: Log, known: LogState | AppendCommit) -> StablePart:
        """Returns the part as of a state, or an append, of the stream."""
        results = tuple(s.results for s in known.standings) or known.ends[: log.spec.partitions]
        return cls(results, known.boundaries, known.finished)

    @classmethod
    def at(cls, log: Log, seq: int) -> StablePart | None:
        """Returns the part as of the append with this number, -1 for none; None if it cannot be read."""
        if seq < 0:
            many = log.spec.partitions
            return cls((0,) * many, (None,) * many, finished=False)
        noted = _NOTED.get(log)
        if noted is None or noted[0] != seq:
            try:
                found = log.commit(seq) if seq >= log.kept else None
            except (DroppedError, StorageError):
                return None  # the next look may be able to read it
            if not isinstance(found, AppendCommit):
                return None
            _NOTED[log] = noted = (seq, cls.of(log, found))
        return noted[1]


def has_moved(log: Log, seq: int, *, in_time: bool) -> bool:
    """Returns whether results, the end or, `in_time`, a boundary came after the append with this number (-1: none).

    Returns True, too, if that append cannot be read: it may have been dropped.
    """
    before, now = StablePart.at(log, seq), StablePart.of(log, log.state)
    if before is None or before.finished != now.finished or (in_time and before.boundaries != now.boundaries):
        return True
    if None not in before.results:
        return before.results != now.results
    return any(block.has_results for append in appends_after(log, seq) for block in append.blocks)  # not counted
