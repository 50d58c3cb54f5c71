"""The progress of an operator in the time of its input: some places of input and output, in few numbers.

To know which windows have been open for an hour takes the place of the input at which it was an hour earlier. So a
standing remembers where steps ended. Ends that lie close together for their age are forgotten: what is found is too
late by at most an eighth of the time that was asked for, and never too early.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

_PARTS = 8
"""Of each span that is asked for: ends of steps that lie closer together are not told apart."""


@dataclass(frozen=True, slots=True)
class StepEnd:
    """Where a step ended."""

    time: int
    """The largest time of the input by then."""
    input: int
    output: int


@dataclass(frozen=True, slots=True)
class InputTimes:
    """Ends of steps, oldest first, with times that increase.

    >>> times = InputTimes().then(StepEnd(100, 5, 2), [60]).then(StepEnd(150, 9, 4), [60])
    >>> times.before(150)
    StepEnd(time=100, input=5, output=2)
    """

    ends: tuple[StepEnd, ...] = ()

    def then(self, end: StepEnd, spans: Sequence[int]) -> Self:
        """Adds an end and drops those that are not needed to look back by these spans of time; returns the times."""
        ends = [e for e in self.ends if e.time < end.time]
        oldest = max((i for i, e in enumerate(ends) if e.time < end.time - max(spans)), default=0)
        return type(self)(tuple(_thinned([*ends[oldest:], end], spans)))

    def before(self, time: int) -> StepEnd | None:
        """Returns the last end before this time; None if none is known."""
        return next((e for e in reversed(self.ends) if e.time < time), None)

    @property
    def words(self) -> tuple[int, ...]:
        """For the standing: the first end, and how far each of the others lies behind the one before it."""
        words = np.array([(e.time, e.input, e.output) for e in self.ends], np.int64).reshape(-1, 3)
        return tuple(np.diff(words, axis=0, prepend=0).ravel().tolist())

    @classmethod
    def of_words(cls, words: Sequence[int]) -> Self:
        """Returns what `words` gave."""
        return cls(tuple(StepEnd(*row) for row in np.array(words, np.int64).reshape(-1, 3).cumsum(axis=0).tolist()))


def _thinned(ends: Sequence[StepEnd], spans: Sequence[int]) -> Iterable[StepEnd]:
    """Returns the ends without those between two that are close together for their age."""
    now, kept = ends[-1].time, [ends[0]]
    for end, behind in pairwise(ends[1:]):
        # By each span it is asked for until the one behind it has grown as old.
        asked = [span for span in spans if now - behind.time <= span]
        if not asked or behind.time - kept[-1].time > min(asked) // _PARTS:
            kept.append(end)
    return kept if len(ends) == 1 else [*kept, ends[-1]]
