"""A log as a task needs it: what travels to a machine is a few blocks of one partition, however many there are."""

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


class Share(Log):
    """A handle that costs no I/O and knows no more than these blocks, which follow each other in one partition.

    Should one of them be gone when it is read, because it was compacted, the share becomes a handle on the whole log.
    """

    def __init__(self, storage: Storage, stream: StreamSpec, blocks: Sequence[Block] = ()) -> None:
        super().__init__(storage, stream)
        self._is_whole = False
        if blocks:
            partition, first, end = blocks[0].partition, blocks[0].first, blocks[-1].end
            starts, ends = list(self.state.starts), list(self.state.ends)
            starts[partition], ends[partition] = first, end
            self.state = replace(self.state, starts=tuple(starts), ends=tuple(ends))
            self._tail = Tail([AppendCommit(self.state.seq, stream.id, 0, blocks=tuple(blocks))])

    def refresh(self) -> bool:
        """Takes in the whole log: on what a share knows, the commits since cannot be built.

        Raises `StorageError` if that does not hold what the share knows of: else tuples would be left out, unnoticed.
        """
        if self._is_whole:
            return super().refresh()
        self._is_whole, known = True, self.state.ends
        super().__init__(self.storage, self.spec, self.clock)
        self.reload()
        if any(now < end for now, end in zip(self.state.ends, known, strict=True)):
            raise log_errors.gone(self.storage.url)
        return True
