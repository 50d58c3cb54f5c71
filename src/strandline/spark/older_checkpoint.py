"""Tells of recoveries that could not begin with the newest checkpoint: results are right, a file is not."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from strandline.errors import StrandlineWarning
from strandline.processing.step import Done
from strandline.wording import plural


def warn_of_older(done: Sequence[Done], where: str) -> None:
    """Warns of every partition that had to look for an older checkpoint, with what was wrong with the newest."""
    for p, d in enumerate(done):
        if d.recovery is not None and d.recovery.is_older:
            warnings.warn(
                f"partition {p} of {where} could not be recovered from its newest checkpoint; an older one and "
                f"{plural(d.recovery.replayed, 'replayed tuple')} gave the same state: {d.recovery.problem}",
                StrandlineWarning,
                stacklevel=3,
            )
