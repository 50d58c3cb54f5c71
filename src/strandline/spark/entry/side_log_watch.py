"""Warnings about tuples that are set aside: the first one, and whenever there are ten times as many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from strandline.log.stream.block import Block
from strandline.log.stream.reason import (
    AHEAD,
    BARRIER,
    FUNCTION,
    INCOMPLETE,
    KEY,
    LATE,
    OVERFLOW,
    PROCESS,
    TIME,
    VALUE,
    WHERE,
)
from strandline.log.stream.spec import StreamSpec
from strandline.units import time_text
from strandline.user_warning import warn

_AGAIN_AT = 10
_NOUNS = {OVERFLOW: "window", INCOMPLETE: "window", WHERE: "pair"}
"""What is set aside, if it is not tuples."""


class SideLogWatch:
    """Counts what one run sets aside. Late tuples are ordinary; for all others it warns."""

    def __init__(self, spec: StreamSpec, where: str) -> None:
        self._spec = spec
        self._where = where
        self._seen: Counter[str] = Counter()
        self._warned: dict[str, int] = {}

    def saw(self, blocks: Sequence[Block], now_us: int) -> None:
        """Warns of what a batch has set aside, if it is new or much more than before."""
        aside = [b for b in blocks if b.partition == self._spec.late and b.reason != LATE]
        for reason, tuples in by_reason(aside).items():
            self._seen[reason] += tuples
            if self._seen[reason] >= _AGAIN_AT * self._warned.get(reason, 0):
                self._warned[reason] = self._seen[reason]
                self._warn(reason, [b for b in aside if b.reason == reason], now_us)

    def _warn(self, reason: str, blocks: Sequence[Block], now_us: int) -> None:
        earliest, latest = (self._text(t) for t in (min(b.time_min for b in blocks), max(b.time_max for b in blocks)))
        clock = time_text(now_us, is_timestamp=True)
        why = {
            AHEAD: f"their times are up to {latest} and the clock of this machine says {clock} (UTC), which is more "
            "than max_ahead apart; mend the source, or the clock if it is that which is wrong",
            TIME: f"their times, {earliest} to {latest}, are beyond what one can compute with; mend the source",
            KEY: "their keys are longer than operators can hold; shorten them before the stream, with a hash perhaps",
            VALUE: "where(…) or select(…) cannot be computed from them (as with a division by zero), or they have a "
            "value of 16 MiB or more; keep such tuples out with a where(…) before, or shorten the value",
            OVERFLOW: "they are windows whose integer sum does not fit 64 bits; sum a double, or smaller units",
            INCOMPLETE: "they are windows that closed in a recovery without the tuples that it skipped, which "
            "stream.losses() names; each lacks those tuples, and is in the side log only",
            FUNCTION: "the keyed function raised for them or for a key that expired, or returned what it must not; "
            "correct the function and give it a new version",
            PROCESS: "process() of the operator's class raised over them; correct it and give the class a new version",
            WHERE: "the condition of the join raised for them, and they are no results; correct the condition and say "
            "so: where(…, version=…)",
            BARRIER: "more tuples of their key waited than at_most allows; give the barrier a larger at_most, or find "
            "out why the other inputs have fewer tuples of the key",
        }
        what = _NOUNS.get(reason, "tuple")
        many = f"1 {what} was" if self._seen[reason] == 1 else f"{self._seen[reason]:,} {what}s were"
        warn(
            f"{many} set aside, in the side log of {self._where}: "
            f"{why.get(reason, reason)}. read(late=True, positions=True) shows them",
        )

    def _text(self, time: int) -> str:
        return time_text(time, is_timestamp=self._spec.time_is_timestamp)


def by_reason(blocks: Iterable[Block]) -> dict[str, int]:
    """Returns the tuples of the side log by reason."""
    found: Counter[str] = Counter()
    for block in blocks:
        found[block.reason] += block.tuples
    return dict(found)
