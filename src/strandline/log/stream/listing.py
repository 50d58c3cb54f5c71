"""Blocks of a stretch as a list, while others compact."""

from __future__ import annotations

from strandline.errors import ConflictError
from strandline.log.stream.block import Block
from strandline.log.stream.log import END, Log


def listed(
    log: Log,
    partition: int,
    first: int = 0,
    end: int = END,
    time_from: int | None = None,
    time_until: int | None = None,
) -> list[Block]:
    """What `Log.blocks` gives, whole: it is asked once more if blocks were compacted in this instant."""
    try:
        return list(log.blocks(partition, first, end, time_from, time_until))
    except ConflictError:
        return list(log.blocks(partition, first, end, time_from, time_until))
