"""Appends without tuples: they say that time has passed although nothing came, or that nothing will come any more.

Such an append speaks for the batch before it: same query, same batch, same source offsets. So a comparison of
Spark's checkpoint with the newest manifest has the same outcome as without it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from strandline.log.storage.storage import Durability
from strandline.log.stream.append_commit import Append, AppendCommit
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState


def pass_time(
    log: Log, boundary: int, run: str, durability: Durability = "fsync", base: LogState | None = None
) -> AppendCommit | None:
    """Publishes that no tuple before `boundary` will follow; None, and nothing published, if that was known.

    Raises, as `Log.append` does, if another writer has published since `base` (by default the newest state seen).
    """
    base = base or log.state
    boundaries = base.boundaries_until(boundary)
    return None if boundaries == base.boundaries else _append(log, base, run, durability, boundaries=boundaries)


def finish(log: Log, run: str, durability: Durability = "fsync", base: LogState | None = None) -> AppendCommit | None:
    """Publishes that no tuple will follow at all, as `pass_time`; None, and nothing published, if that was known."""
    base = base or log.state
    return None if base.finished else _append(log, base, run, durability, finished=True)


def _append(log: Log, base: LogState, run: str, durability: Durability, **said: Any) -> AppendCommit:
    """Publishes by the newest query and batch, in this run; without them before the first batch."""
    writer = None if base.writer is None else replace(base.writer, run=run)
    return log.append(Append(writer=writer, source=base.source, durability=durability, **said), base=base)
