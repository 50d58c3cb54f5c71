"""A handle on a log that costs no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.log.index.index import Snapshot
from strandline.log.storage.storage import Storage
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.stream.log_state import LogState
from strandline.log.stream.recent_commits import Tail
from strandline.log.stream.spec import StreamSpec


def handle_on(storage: Storage, stream: StreamSpec, state: LogState, blocks: Sequence[Block] = ()) -> Log:
    """Returns a handle at this state that knows no more than these blocks."""
    log = Log(storage, stream)
    log.state = state
    log.snapshot = Snapshot(stream.id, state)
    log.commits.note(state.milestone)
    log.tail = Tail([AppendCommit(state.seq, stream.id, state.published_us, blocks=tuple(blocks))])
    return log
