"""Where the n-th result of a partition stands: what replicas of an operator have in common is numbers of results.

Offsets differ from replica to replica, because footprints and tentative tuples take some up.
"""

from __future__ import annotations

from strandline.control_columns import OFFSET
from strandline.errors import CorruptManifestError, KeyMissingError
from strandline.log.index.leaf import Ints
from strandline.log.stream.block import Block
from strandline.log.stream.kinds import is_result
from strandline.log.stream.listing import listed
from strandline.log.stream.log import Log
from strandline.log.stream.log_errors import uncounted

_SPAN = 64
"""Results are looked for among so many of the last tuples first: callers have usually read nearly all."""


def offset_of_result(log: Log, partition: int, ordinal: int) -> int:
    """Returns the offset of the result that has `ordinal` others before it; the partition's end if it is to come.

    Raises `TruncatedError` if it was dropped, `StreamMismatchError` if the results of this stream were not counted. It
    takes a list of the partition's blocks from there on, and one of them.
    """
    counted = _counted(log, partition)
    if ordinal >= counted:
        return log.state.ends[partition]
    try:
        return _found(log, partition, ordinal, counted)
    except KeyMissingError:  # compacted meanwhile, and collected
        log.refresh()
        return _found(log, partition, ordinal, _counted(log, partition))


def _found(log: Log, partition: int, ordinal: int, counted: int) -> int:
    span = _SPAN
    start, end = log.state.starts[partition], log.state.ends[partition]
    while True:
        before = counted
        for block in reversed(listed(log, partition, end - span)):
            before -= block.results
            if before <= ordinal:
                found = int(_offsets_in(log, block)[ordinal - before])
                log.require_kept(partition, found)
                return found
        if end - span <= start:
            break
        span *= 8
    log.require_kept(partition, log.state.starts[partition] - 1)
    raise CorruptManifestError(
        f"partition {partition} counts {counted:,} results and holds {counted - before:,}",
        stream=log.storage.url,
        todo="run `strandline verify` on the stream",
    )


def _offsets_in(log: Log, block: Block) -> Ints:
    """Returns the offsets of the results in a block."""
    table = log.read_block(block, [])
    found: Ints = table.filter(is_result(table)).column(OFFSET).to_numpy()
    return found


def _counted(log: Log, partition: int) -> int:
    counted = log.state.standings[partition].results if log.state.standings else 0
    if counted is None:
        raise uncounted(log.storage.url)
    return counted


def first_kept_result(log: Log, partition: int) -> int:
    """Returns the number of the oldest result that was not dropped; the number of the next one if there is none."""
    return results_before(log, partition, log.state.starts[partition])


def results_between(log: Log, partition: int, first: int, end: int) -> int:
    """Returns how many results a partition has at the offsets [first, end). Reads the blocks that reach beyond them."""
    if first >= end:
        return 0
    try:
        return _counted_between(log, partition, first, end)
    except KeyMissingError:  # compacted meanwhile, and collected
        log.refresh()
        return _counted_between(log, partition, first, end)


def _counted_between(log: Log, partition: int, first: int, end: int) -> int:
    found = 0
    for block in listed(log, partition, first, end):
        if first <= block.first and block.end <= end:
            found += block.results
        elif block.results:
            offsets = _offsets_in(log, block)
            found += int(((offsets >= first) & (offsets < end)).sum())
    return found


def results_before(log: Log, partition: int, offset: int) -> int:
    """Returns how many results a partition has published before an offset: the number of the first one behind it."""
    behind = 0
    for block in listed(log, partition, offset):
        if block.first >= offset:
            behind += block.results
        elif block.results:  # the first one, of which some are before it
            behind += int((_offsets_in(log, block) >= offset).sum())
    return _counted(log, partition) - behind
