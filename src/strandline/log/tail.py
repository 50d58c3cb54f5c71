"""The commits since the last fold: what they add to the blocks of the index, and what they put in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from strandline.log.block import Block
from strandline.log.index import covers
from strandline.log.manifest import Manifest


def blocks(
    tail: Iterable[Manifest],
    partition: int,
    first: int,
    end: int,
    time_from: int | None = None,
    time_until: int | None = None,
) -> Iterator[Block]:
    """Appended blocks that hold an offset in [first, end) and may hold a time in [time_from, time_until)."""
    for m in tail:
        if m.kind == "append":
            for b in m.blocks:
                if b.partition == partition and b.first < end and first < b.end:
                    late_enough = time_from is None or b.time_max >= time_from
                    if late_enough and (time_until is None or b.time_min < time_until):
                        yield b


def replaced(found: Iterable[Block], tail: Sequence[Manifest], partition: int) -> Iterator[Block]:
    """The blocks found, or, once each, the compacted ones that stand for them by now."""
    # Newest first, for a newer one may cover an older one.
    compacted = [b for m in reversed(tail) if m.kind == "compact" for b in m.blocks if b.partition == partition]
    shown: Block | None = None
    for block in found:
        stands_for = next((b for b in compacted if covers(b, block)), block)
        if stands_for is not shown:
            yield stands_for
        shown = stands_for
