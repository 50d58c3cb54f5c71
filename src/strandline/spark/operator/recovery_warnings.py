"""Warnings of recoveries: from an older checkpoint than the newest, with a loss, or slower than `recover_within`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.checkpoint.policy import Policy
from strandline.log.operator_state.standing import Standing
from strandline.running.step import Done
from strandline.user_warning import warn
from strandline.wording import plural


class RecoveryTarget:
    """The target of one operator, compared with the measurements of its tasks."""

    def __init__(self, policy: Policy, where: str) -> None:
        self._policy = policy
        self._where = where
        self._has_warned = policy.recover_within_us is None

    def compare(self, standings: Iterable[Standing]) -> None:
        """Warns, once, if a recovery in a new process takes longer than the target even at best."""
        if self._has_warned:
            return
        found = next(filter(None, map(self._policy.missed_target, standings)), None)
        if found is not None:
            self._has_warned = True
            warn(f"{found} ({self._where})")


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
