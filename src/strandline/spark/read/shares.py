"""How a limit on a batch is shared out among partitions."""

from __future__ import annotations

from collections.abc import Sequence


def shared_out(waiting: Sequence[int], limit: int) -> list[int]:
    """Divides a limit among the partitions in proportion to what waits, so that all pass through time together."""
    total = sum(waiting)
    found = [w * limit // total for w in waiting]
    rest = limit - sum(found)
    for p, w in enumerate(waiting):
        extra = min(rest, w - found[p])
        found[p] += extra
        rest -= extra
    return found
