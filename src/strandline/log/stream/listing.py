"""Looking through the blocks of a stream while others compact them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from strandline.errors import ConflictError
from strandline.log.stream.block import Block
from strandline.log.stream.log import END, Log

T = TypeVar("T")


def undisturbed(look: Callable[[], T]) -> T:
    """Returns what `look` finds in `Log.blocks`; looks a second time if blocks were compacted during the first.

    `Log.blocks` cannot go on by itself: it has shown blocks that the compacted one overlaps. The first look has taken
    in the new index, so only another compaction in the same instant can disturb the second, which then raises.
    """
    try:
        return look()
    except ConflictError:
        return look()


def listed(
    log: Log,
    partition: int,
    first: int = 0,
    end: int = END,
    time_from: int | None = None,
    time_until: int | None = None,
) -> list[Block]:
    """Returns the blocks of `Log.blocks` as a list."""
    return undisturbed(lambda: list(log.blocks(partition, first, end, time_from, time_until)))
