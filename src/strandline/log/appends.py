"""The appends of a stream one after the other, also those whose commits were dropped."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.errors import DroppedError
from strandline.log.log import Log
from strandline.log.manifest import Manifest


def appends_after(log: Log, seq: int) -> Iterator[Manifest]:
    """The appends after `seq`, up to the last refresh. Of dropped ones only some, without their blocks (`cuts`)."""
    while True:
        try:
            if seq + 1 < log.kept:
                for m in log.commits.cuts(seq):
                    if m.seq > log.state.seq:
                        return
                    yield m
                    seq = m.seq
                seq = max(seq, log.kept - 1)
            for m in log.after(seq):
                if m.kind == "append":
                    yield m
                seq = m.seq
            return
        except DroppedError:
            continue  # while they were read; by now there are cuts of them
