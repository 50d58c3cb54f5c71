"""Warnings of recoveries: from an older checkpoint than the newest, with a loss, or beyond a target of the policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.checkpoint.policy import Policy
from strandline.log.operator_state.standing import Standing
from strandline.running.step import Done
from strandline.user_warning import warn
from strandline.wording import plural

_BATCHES = 2
"""A target that is missed by one batch is no reason to warn: an operator that catches up has large ones."""
_TOLD_MAX = 4


class RecoveryWarnings:
    """The warnings of one operator; its targets are compared with the measurements of its tasks."""

    def __init__(self, policy: Policy, where: str) -> None:
        self._policy = policy
        self._where = where
        self._has_warned = policy.recover_within_us is None
        self._missed: dict[str, int] = {}
        """By the option of a target, how many batches in a row have missed it; `_BATCHES` for good after a warning."""

    def compare(self, standings: Iterable[Standing]) -> None:
        """Warns, once, if a recovery in a new process takes longer than the target even at best."""
        if self._has_warned:
            return
        found = next(filter(None, map(self._policy.missed_target, standings)), None)
        if found is not None:
            self._has_warned = True
            warn(f"{found} ({self._where})")

    def compare_steps(self, done: Sequence[Done]) -> None:
        """Warns, once for each target, if several batches in a row miss it: nothing that is saved could meet it."""
        self.compare(d.standing for d in done)
        found = {missed.option: missed.text for d in done for missed in d.missed}
        warned = {option: many for option, many in self._missed.items() if many >= _BATCHES}
        self._missed = {option: self._missed.get(option, 0) + 1 for option in found} | warned
        for option, text in found.items():
            if option not in warned and self._missed[option] >= _BATCHES:
                warn(f"{text} ({self._where})")

    def of(self, done: Sequence[Done]) -> None:
        """Warns of the recoveries of a batch, and of targets that it misses."""
        self.of_older(done)
        self.of_losses(done)
        self.compare_steps(done)

    def of_older(self, done: Sequence[Done]) -> None:
        """Warns of every partition that had to use an older checkpoint, and says what was wrong with the newest."""
        for p, d in enumerate(done):
            if d.recovery is not None and d.recovery.is_older:
                warn(
                    f"partition {p} of {self._where} could not be recovered from its newest checkpoint; an older one "
                    f"and {plural(d.recovery.replayed, 'replayed tuple')} gave the same state: {d.recovery.problem}",
                )

    def of_losses(self, done: Sequence[Done]) -> None:
        """Warns, once for all partitions, of the tuples that recoveries without a replay left out."""
        told = [loss.text for d in done if d.recovery is not None for loss in d.recovery.losses]
        if told:
            more = f"; and {len(told) - _TOLD_MAX:,} more" if len(told) > _TOLD_MAX else ""
            warn(f"{self._where}: {'; '.join(told[:_TOLD_MAX])}{more}. stream.losses() has it all")
