"""Appends without tuples: they say that time has passed although nothing came, or that nothing will come any more.

Such an append speaks for the batch before it: same query, same batch, same source offsets. So a comparison of
Spark's checkpoint with the newest manifest has the same outcome as without it.
"""

from __future__ import annotations

from strandline.log.storage.storage import Durability
from strandline.log.stream.append_commit import Append, AppendCommit
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.log.stream.manifest import Writer


def pass_time(log: Log, boundary: int, run: str, durability: Durability = "fsync") -> AppendCommit | None:
    """Publishes that no tuple before `boundary` will follow; None, and nothing published, if that was known."""
    base = log.state
    boundaries = base.boundaries_until(boundary)
    if boundaries == base.boundaries:
        return None
    who = _writer(base, run)
    return log.append(Append(writer=who, source=base.source, boundaries=boundaries, durability=durability), base=base)


def finish(log: Log, run: str, durability: Durability = "fsync") -> AppendCommit | None:
    """Publishes that no tuple will follow at all; None, and nothing published, if that was known."""
    base = log.state
    if base.finished:
        return None
    who = _writer(base, run)
    return log.append(Append(writer=who, source=base.source, finished=True, durability=durability), base=base)


def _writer(base: LogState, run: str) -> Writer | None:
    """Returns the newest query and batch, in this run; None before the first batch, which Spark counts from."""
    return None if base.writer is None else Writer(base.writer.query, run, base.writer.batch)
