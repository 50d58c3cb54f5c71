"""A handle on a log that costs no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.log.block import Block
from strandline.log.index import Snapshot
from strandline.log.log import Log
from strandline.log.log_state import LogState
from strandline.log.manifest import Manifest
from strandline.log.recent_commits import Tail
from strandline.log.spec import StreamSpec
from strandline.log.storage.storage import Storage


def handle_on(storage: Storage, stream: StreamSpec, state: LogState, blocks: Sequence[Block] = ()) -> Log:
    """Returns a handle at this state that knows no more than these blocks."""
    log = Log(storage, stream)
    log.state = state
    log._snapshot = Snapshot(stream.id, state)
    log.commits.note(state.milestone)
    log._tail = Tail([Manifest(state.seq, "append", stream.id, state.published_us, blocks=tuple(blocks))])
    return log
