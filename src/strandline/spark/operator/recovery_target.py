"""The warning for a user who asked for `recover_within`, as soon as it is known that the target cannot be met."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.checkpoint.policy import Policy
from strandline.log.operator_state.standing import Standing
from strandline.user_warning import warn


class RecoveryTarget:
    """The target of one operator, compared with the measurements of its tasks."""

    def __init__(self, policy: Policy, where: str) -> None:
        self._policy = policy
        self._where = where
        self._is_told = policy.recover_within_us is None

    def look(self, standings: Iterable[Standing]) -> None:
        """Warns, once, if a recovery in a new process takes longer than the target even at best."""
        if self._is_told:
            return
        found = next(filter(None, map(self._policy.missed_target, standings)), None)
        if found is not None:
            self._is_told = True
            warn(f"{found} ({self._where})")
