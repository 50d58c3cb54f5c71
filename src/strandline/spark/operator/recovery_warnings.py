"""Warnings of recoveries that users should know: from an older checkpoint than the newest, or with a loss."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.running.step import Done
from strandline.user_warning import warn
from strandline.wording import plural


def warn_of_older(done: Sequence[Done], where: str) -> None:
    """Warns of every partition that had to use an older checkpoint, and says what was wrong with the newest."""
    for p, d in enumerate(done):
        if d.recovery is not None and d.recovery.is_older:
            warn(
                f"partition {p} of {where} could not be recovered from its newest checkpoint; an older one and "
                f"{plural(d.recovery.replayed, 'replayed tuple')} gave the same state: {d.recovery.problem}",
            )


def warn_of_losses(done: Sequence[Done], where: str) -> None:
    """Warns, once for all partitions, of the tuples that recoveries without a replay left out."""
    told = [loss.text for d in done if d.recovery is not None for loss in d.recovery.losses]
    if told:
        more = f"; and {len(told) - _TOLD_MAX:,} more" if len(told) > _TOLD_MAX else ""
        warn(f"{where}: {'; '.join(told[:_TOLD_MAX])}{more}. stream.losses() has it all")


_TOLD_MAX = 4
