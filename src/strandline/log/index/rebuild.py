"""A lost index, made anew."""

from __future__ import annotations

from strandline.errors import DroppedError
from strandline.log.index import index
from strandline.log.index.index import Index, Snapshot
from strandline.log.stream.commits import Commits
from strandline.log.stream.log_state import LogState
from strandline.log.stream.spec import StreamSpec


def rebuilt(spec: StreamSpec, commits: Commits, tree: Index, seq: int) -> Snapshot:
    """Returns the snapshot from the newest milestone and the manifests after it up to `seq`, without anything of the
    index."""
    while True:
        snapshot = commits.snapshot() or Snapshot(spec.id, LogState.empty(spec.partitions))
        try:
            for start in range(snapshot.state.seq + 1, seq + 1, index.FOLD_EVERY):
                snapshot = tree.fold(snapshot, commits.some(range(start, min(start + index.FOLD_EVERY, seq + 1))))
            return snapshot
        except DroppedError:
            continue  # there is a newer milestone
