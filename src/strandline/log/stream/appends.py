"""The appends of a stream one after the other, also those whose commits were dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strandline.errors import DroppedError
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.log import Log


def appends_after(log: Log, seq: int) -> Iterator[AppendCommit]:
    """Yields the appends after `seq`, up to the last refresh. Of dropped ones only `cuts`, without their blocks."""
    while True:
        try:
            if seq + 1 < log.kept:
                for cut in log.commits.cuts(seq):
                    if cut.seq > log.state.seq:
                        return
                    yield cut
                    seq = cut.seq
                seq = max(seq, log.kept - 1)
            for m in log.after(seq):
                if isinstance(m, AppendCommit):
                    yield m
                seq = m.seq
            return
        except DroppedError:
            continue  # while they were read; by now there are cuts of them


def before_append_at(log: Log, offsets: Sequence[int]) -> int:
    """Returns the number of a commit after which the next append ends at these offsets, or before them in some
    partitions.

    It is the last such append among the commits that are kept; -1 if none is. Few commits are read, by bisection.
    """
    low, high, found = log.kept, log.state.seq, -1
    while low <= high:
        middle = (low + high) // 2
        last = next((m for m in log.before(middle + 1) if isinstance(m, AppendCommit) or m.seq <= low), None)
        if last is None:
            return found  # dropped in this instant
        if isinstance(last, AppendCommit) and any(
            end > offset for end, offset in zip(last.ends, offsets, strict=False)
        ):
            high = last.seq - 1
            continue
        if isinstance(last, AppendCommit):
            found = last.seq - 1
        low = middle + 1
    return found
