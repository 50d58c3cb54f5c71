"""A log as a task needs it: a few blocks of one partition travel to a machine, however many the stream has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strandline.log.storage.storage import Storage
from strandline.log.stream import log_errors
from strandline.log.stream.append_commit import AppendCommit
from strandline.log.stream.block import Block
from strandline.log.stream.log import Log
from strandline.log.stream.recent_commits import Tail
from strandline.log.stream.spec import StreamSpec


class PartialLog(Log):
    """A handle that costs no I/O and knows only these blocks, which follow each other in one partition.

    If one of them is gone when it is read, because it was compacted, this becomes a handle on the whole log.
    """

    def __init__(self, storage: Storage, stream: StreamSpec, blocks: Sequence[Block] = ()) -> None:
        super().__init__(storage, stream)
        self._is_whole = False
        if blocks:
            partition, first, end = blocks[0].partition, blocks[0].first, blocks[-1].end
            starts, ends = list(self.state.starts), list(self.state.ends)
            starts[partition], ends[partition] = first, end
            self.state = replace(self.state, starts=tuple(starts), ends=tuple(ends))
            self.tail = Tail([AppendCommit(self.state.seq, stream.id, 0, blocks=tuple(blocks))])

    def refresh(self) -> bool:
        """Takes in the whole log: commits since then cannot be applied to the few blocks that this handle knows.

        Raises `StorageError` if the log lacks blocks that this handle knows: else tuples would be left out, unnoticed.
        """
        if self._is_whole:
            return super().refresh()
        self._is_whole, known = True, self.state.ends
        self.state, self.tail = self.snapshot.state, Tail()
        self.reload()
        if any(now < end for now, end in zip(self.state.ends, known, strict=True)):
            raise log_errors.gone(self.storage.url)
        return True
